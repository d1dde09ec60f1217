"""What a user can type, and what is written: settings, options, exit codes, names and keys.

Everything is seen from outside, through commands. A difference here is a change of the contract.
"""

import ast
import contextlib
import io
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipeline import prepare
from pipeline.base.errors import run_command
from tests.golden import recording
from tests.golden.compare import Case
from tests.golden.recording import CELLS, EXPORTS, FAMILIES, RUNS, command, ended
from tests.launching.process import ROOT

COMMANDS = (
    "train_tokenizer", "prepare", "inspect", "plan", "doctor", "train", "status", "report",
    "export", "evaluate", "finetune", "ablate", "tenfold",
)  # fmt: skip
RECIPES = [CELLS[family][0] for family in FAMILIES]
VALUES = ("-1", "0", "1", "2", "16", "512", "0.1", "1e-6", "1e3", "true", "false", "x", "")
"""Tried for every setting, beside its choices."""
OTHERS = {
    "name": ("a/b", "a b"),
    "data.sequence_length": ("24",),
    "phases": ("[]", '[{"steps": 1, "sequence_length": 16, "sequences": 4}]'),
    "batch.mixture": ("[]", '[{"corpus": "x", "weight": 1}]'),
    "batch.corpora": ("[]", '["x", "y"]'),
    "logging.to": ("[]", '["tensorboard", "wandb"]'),
    "checkpoint.at_words": ("1e6..3e6/1e6",),
}
"""Values that only one setting takes."""
NEEDS = {
    "data.mask_mode": "data.duplicates=1",
    "data.reader": "data.order=blocks",
    "spikes.rollbacks": "spikes.deviations=10",
}
"""Settings that other values of a setting need."""


def settings(work: Path) -> dict[str, Any]:
    """Values of each setting that are accepted, and those that are refused.

    If the first recipe accepts fewer than two, those that another family's accepts.
    `prepare` reads the settings before it looks for its input, which does not exist.
    """
    found: dict[str, Any] = {}
    for path, choices in _choices().items():
        tried = [*(choices or VALUES), *OTHERS.get(path, ())]
        recipes = iter(RECIPES)
        accepted: set[str] = set()
        while len(accepted) < 2 + len(choices) // 3 and (recipe := next(recipes, "")):
            accepted |= {value for value in tried if not _problem(recipe, f"{path}={value}")}
        if choices:
            tried += [value for value in ("x", "1") if _problem(RECIPES[0], f"{path}={value}")]
        refused = [value for value in tried if value not in accepted]
        found[path] = {"accepted": sorted(accepted), "refused": refused}
    found["no.such_setting"] = {"accepted": [], "refused": [_refused("no.such_setting=1")]}
    return found


def _choices() -> dict[str, list[str]]:
    """Every setting, with what it can be if that is a choice."""
    lines = command("tenfold", "settings", RECIPES[0]).splitlines()
    found = {}
    for line, below in zip(lines, [*lines[1:], ""]):
        if setting := re.match(r"  ([a-z_.0-9]+)=", line):
            text = line if "one of " in line or not below.startswith("      ") else below
            names = re.search(r"one of ([\w, -]+)", text)
            found[setting[1]] = names[1].strip().split(", ") if names else []
    return found


def _problem(recipe: str, change: str) -> str:
    """The line that refuses a setting; empty if only the input is wrong."""
    path = change.partition("=")[0]
    changes = [word for text in (NEEDS.get(path), change) if text for word in ("--set", text)]
    words = ("--corpus", "mine", "--input", "no-such-input", "--recipe", recipe, *changes)
    with (
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()) as errors,
        contextlib.suppress(SystemExit),
    ):
        recording.call(lambda: run_command(prepare.main), *words)
    said = errors.getvalue()
    if "no-such-input" in said:
        return ""
    assert said.startswith("error: ") and path in said, said
    return said


def _refused(change: str) -> str:
    assert _problem(RECIPES[0], change)
    return change.partition("=")[2]


def options(work: Path) -> dict[str, Any]:
    """The usage of every command: options with the names of their values, required ones bare."""
    found = {}
    for name in COMMANDS:
        usage = " ".join(command(name, "--help").partition("\n\n")[0].split()[1:])
        found[name] = re.findall(r"\[[^\[\]]*(?:\[[^\[\]]*\][^\[\]]*)*\]|[^\s\[\]]+", usage)
    found["tenfold COMMAND"] = re.findall(r"^  (\w+) ", command("tenfold"), re.MULTILINE)
    return found


ENVIRONMENT = re.compile(
    r"(?:TENFOLD|SLURM|SLURMD|TORCHELASTIC|TORCH|TORCHINDUCTOR|TRITON|HF|NCCL|GLOO|OMP|CUDA|PMI|PMIX|OMPI"
    r"|MPIR|WANDB|XDG|NUMBA|DS|MASTER|LOCAL|GROUP|ROLE|DEEPSPEED|UCX|FI|AWS)_[A-Z0-9_]+"
    r"|RANK|WORLD_SIZE|HOME|COLUMNS|TMPDIR"
)


def environment(work: Path) -> dict[str, Any]:
    """Names of environment variables that the sources and the batch files mention."""
    texts = [
        node.value
        for room in ("pipeline", "model")
        for path in (ROOT / room).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    batch = "".join(path.read_text() for path in (ROOT / "slurm").glob("*.s*"))
    return {
        "python": sorted(set(filter(ENVIRONMENT.fullmatch, texts))),
        "slurm": sorted(set(filter(ENVIRONMENT.fullmatch, re.findall(r"\w+", batch)))),
    }


TRAIN = ("bert_tiny", "--data", "SHARDS", "--output", "NEW")
CAUSES: dict[str, tuple[object, ...]] = {
    "help": ("prepare", "--help"),
    "unknown command": ("tenfold", "no_such_command"),
    "unknown option": ("train", *TRAIN, "--no-such-option"),
    "unknown recipe": ("train", "no_such_recipe", *TRAIN[1:]),
    "unknown setting": ("train", *TRAIN, "--set", "no.such=1"),
    "no DeepSpeed file": ("train", *TRAIN, "--ds", "no-such-file"),
    "shards of other settings": ("train", "roberta_tiny", *TRAIN[1:]),
    "no shards": ("train", "bert_tiny", "--data", "EMPTY", "--output", "NEW"),
    "no input": ("prepare", "--corpus", "mine", "--input", "no-such-file"),
    "an empty folder": ("prepare", "--corpus", "mine", "--input", "EMPTY"),
    "no tokenizer": ("prepare", "--corpus", "sample", "--tokenizer", "EMPTY"),
    "bad part": ("prepare", "--corpus", "sample", "--part", "3/2"),
    "unknown filter": ("prepare", "--corpus", "sample", "--filter", "no-such-filter"),
    "no run": ("status", "EMPTY"),
    "a run": ("status", "RUN"),
    "no run to export": ("export", "EMPTY", "--output", "NEW"),
    "an output that exists": ("export", "RUN", "--output", "SHARDS"),
    "nothing to score": ("evaluate", "RUN"),
    "no model": ("evaluate", "EMPTY", "--data", "SHARDS"),
    "another tokenizer's shards": ("evaluate", EXPORTS / "roberta", "--data", "SHARDS"),
    "unknown task": ("finetune", "RUN", "--task", "no-such-task", "--output", "NEW"),
    "no arms": ("ablate", "--recipe", "bert_tiny", "--corpus", "sample", "--output", "NEW"),
    "no device": ("plan", "bert_tiny", "--tokens", "1e9"),
    "nothing to report": ("report", "--text"),
    "nothing to inspect": ("inspect", "no-such-path"),
    "no text to learn from": ("train_tokenizer", "--corpus", "x", "--input", "EMPTY",
                              "--output", "NEW"),
    "no run for these settings": ("doctor", "--set", "steps=1"),
    "diverged": ("train", *recording.run_arguments("bert", Path("SHARDS"), Path("NEW")),
                 "--set", "optimizer.peak_lr=1e30", "--set", "optimizer.kind=adamw",
                 "--set", "optimizer.clip_norm=0"),
    "stopped as asked": ("train", *recording.run_arguments("bert", Path("SHARDS"), Path("NEW"),
                                                           "--stop-at", 1)),
}  # fmt: skip
"""Cause -> a command. Upper-case words are folders, see `exit_codes`. Signals, nohup and a closed
terminal have tests of their own, see README.md."""


def exit_codes(work: Path) -> dict[str, Any]:
    """Exit code by cause, and whether the output exists then; a failure is one line of error."""
    folders = {"SHARDS": recording.lesson(recording.prepared("bert", work / "bert"))}
    folders |= {name: work / name for name in ("EMPTY", "RUN", "NEW")}
    folders["EMPTY"].mkdir()
    shutil.copytree(RUNS / "bert", folders["RUN"])
    found = {}
    for cause, (name, *words) in CAUSES.items():
        given = [folders.get(str(word), word) for word in words]
        done = ended(str(name), *given, TENFOLD_ROOT=str(work / "root"))
        found[cause] = {"code": done.returncode, "writes": folders["NEW"].exists()}
        errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
        assert len(errors) == (done.returncode in (2, 3)), (cause, done.stderr)
        shutil.rmtree(folders["NEW"], ignore_errors=True)
    return found


TASK = "text\tlabel\n" + "".join(
    f"a {('bad', 'good')[n % 2]} film {n}\t{n % 2}\n" for n in range(8)
)


def outputs(work: Path) -> dict[str, Any]:
    """Names of files that commands write, and keys of every JSON that they write or print."""
    shards = recording.lesson(recording.prepared("bert", work / "bert"))
    (work / "task.tsv").write_text(TASK)
    run, export, tuned = work / "run", work / "export", work / "tuned"
    train = recording.run_arguments("bert", shards, run)
    plan = ("--cpu", "--gpus-per-node", 1, "--json")
    printed = {
        "train": command("train", *train) and "",
        "export": command("export", run, "--output", export) and "",
        "evaluate": command("evaluate", run, "--data", shards, "--json"),
        "status": command("status", run, "--json"),
        "plan": command("plan", *train[:3], *plan, *train[train.index("--set") :]),
        "finetune": command(
            "finetune", export, "--task", "classification", "--train", work / "task.tsv",
            "--dev", work / "task.tsv", "--text", "text", "--target", "label", "--output", tuned,
            "--seeds", 1, "--epochs", 1, "--baselines", "majority",
        ) and "",
        "doctor": command("doctor", "--json"),
    }  # fmt: skip
    found: dict[str, Any] = {}
    folders = {"prepare": work / "bert", "train": run, "export": export, "finetune": tuned}
    for name, folder in folders.items():
        files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        found[f"{name}: files"] = sorted({_plain_name(folder, path) for path in files})
        for path in files:
            if path.suffix in (".json", ".jsonl") and path.name != "tokenizer.json":
                found[f"{name}: keys of {_plain_name(folder, path)}"] = _keys(path.read_text())
    return found | {f"{name} --json": _keys(text) for name, text in printed.items() if text}


def _plain_name(folder: Path, path: Path) -> str:
    """Without the time, machine and process in a name of tensorboard's."""
    return re.sub(r"(events\.out\.tfevents\.).*", r"\1*", str(path.relative_to(folder)))


def _keys(text: str) -> list[str]:
    """Paths of all keys in a JSON, or in the lines of a JSON lines file."""
    try:
        values = [json.loads(text)]
    except ValueError:
        values = [json.loads(line) for line in text.splitlines()]
    return sorted({path for value in values for path in _paths(value) if path})


def _paths(value: Any, path: str = "") -> Iterator[str]:
    yield path
    for key, item in value.items() if isinstance(value, dict) else ():
        yield from _paths(item, f"{path}.{key}" if path else key)
    for item in value if isinstance(value, list) else ():
        yield from _paths(item, f"{path}[]")


CASES = [
    Case("settings", settings), Case("options", options), Case("environment", environment),
    Case("exit_codes", exit_codes), Case("outputs", outputs),
]  # fmt: skip
