"""Commands to their ends on the null GPU, and what their files say of the device.

`check_commands` trains, evaluates and fine-tunes tiny models there, then asks other commands for
what was made: every file names the device, and every command that reads weights refuses them. As a
script it is `pipeline.train` with counters around the trainer's micro-batches and updates.
"""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
EXPORT = ROOT / "tests" / "golden" / "exports" / "roberta"
SETTINGS = (
    "precision=bf16", "steps=4", "batch.sequences=64", "batch.per_device=32",
    "schedule.warmup_steps=1", "validation.every=4", "logging.every=4", "encoder.dropout=0.1",
    "encoder.attention_dropout=0.1",
)  # fmt: skip
COUNTED = "counted: "
COMMAND_SECONDS = 900
GATE_SECONDS = 1200


def check_commands(
    python: Path, variables: Mapping[str, str], folder: Path, *, gate: bool
) -> Iterator[str]:
    """What does not hold. python, variables: of a process on the null GPU; folder: an empty one;
    gate: also run the whole GPU gate, which takes ten minutes."""

    def run(*command: object, seconds: int = COMMAND_SECONDS) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(python), "-m", *map(str, command)], env=dict(variables), cwd=ROOT,
            capture_output=True, text=True, check=False, timeout=seconds,
        )  # fmt: skip

    for recipe in ("roberta_tiny", "electra_tiny"):
        shards, output = folder / f"{recipe}-shards", folder / recipe
        yield from failure(
            run("pipeline.prepare", "--corpus", "sample", "--recipe", recipe, "--output", shards)
        )
        settings = [f"--set={setting}" for setting in SETTINGS]
        result = run(
            "tests.null_gpu.commands", recipe, "--data", shards, "--output", output, *settings
        )
        if failed := failure(result):
            yield from failed
            continue
        yield from trained(recipe, output, result.stdout)
        for refusing in (
            ("pipeline.export", output, "--output", folder / "out"),
            ("pipeline.evaluate", output, "--data", shards),
            ("pipeline.report", output, "--text"),
        ):
            yield from refusal(run(*refusing))
    yield from evaluated(run, folder)
    yield from fine_tuned(run, folder)
    if gate:
        kept = ("--append", folder / "gate.md", "--cache", folder / "gate-cache")
        yield from failure(run("tests.benchmarks.gpu_gate", *kept, seconds=GATE_SECONDS))
        if "device: null" not in (folder / "gate.md").read_text():
            yield f"{folder / 'gate.md'} does not say device: null"
        if not (folder / "gate-cache").exists():
            yield f"the gate left no {folder / 'gate-cache'}"


def trained(recipe: str, output: Path, printed: str) -> Iterator[str]:
    """A run: its files, and the waits and copies of the real loader's micro-batches."""
    metrics = output / "metrics.jsonl"
    for path in (output / "run.json", metrics, *output.glob("checkpoints/*/state.json")):
        yield from silence(path)
    steps = [
        json.loads(line.removeprefix(COUNTED))
        for line in printed.splitlines()
        if line.startswith(COUNTED)
    ]
    if len(steps) != 2 * 4:
        yield f"pipeline.train {recipe} counted {len(steps)} halves of steps, expected 8"
    for step in steps[2:]:  # code is compiled in the first
        if step["part"] == "micro-batches" and step["waits"]:
            yield f"pipeline.train {recipe} waits in a micro-batch: {step['waits']}"
        if step["part"] == "update" and sum(step["waits"].values()) > 2:
            yield f"pipeline.train {recipe} waits more than twice per update: {step['waits']}"
        if pageable := [way for way in step["copies"] if "pageable ->" in way]:
            yield f"pipeline.train {recipe} copies {pageable[0]} in {step['part']}"


def evaluated(run: Any, folder: Path) -> Iterator[str]:
    """The scores of real weights, computed by the null device."""
    lines = folder / "lines.txt"
    lines.write_text("The house was <mask> and old.\n")
    result = run("pipeline.evaluate", EXPORT, "--cloze", lines, "--json")
    yield from failure(result)
    if not result.returncode and json.loads(result.stdout)["device"] != "null":
        yield "pipeline.evaluate --json does not say device: null"


def fine_tuned(run: Any, folder: Path) -> Iterator[str]:
    """Fine-tuning real weights on the null device."""
    rows = [json.dumps({"text": f"line {n} of it", "label": f"{n % 2}"}) for n in range(16)]
    (folder / "train.jsonl").write_text("\n".join(rows[:8]) + "\n")
    (folder / "dev.jsonl").write_text("\n".join(rows[8:]) + "\n")
    output = folder / "tuned"
    task = (
        "--task", "classification", "--text", "text", "--target", "label",
        "--train", folder / "train.jsonl", "--dev", folder / "dev.jsonl",
        "--seeds", "1", "--grid", "none", "--baselines", "majority",
    )  # fmt: skip
    result = run("pipeline.finetune", EXPORT, *task, "--output", output)
    yield from failure(result)
    if result.returncode:
        return
    for path in (output / "finetune.json", *output.glob("jobs/*/result.json")):
        yield from silence(path)
    yield from silence(output / "scores.json", "model", "device")
    yield from silence(output / "model" / "config.json", "tenfold_device")
    yield from refusal(
        run("pipeline.finetune", output / "model", *task, "--output", folder / "tuned-again")
    )


def silence(path: Path, *names: str) -> Iterator[str]:
    """What is wrong with a file, each line of which must name the device; names: of the entry that
    does, and of what it is in."""
    text = path.read_text()
    for line in text.splitlines() if path.suffix == ".jsonl" else [text]:
        entry = json.loads(line)
        for name in names or ("device",):
            entry = entry.get(name, {})
        if entry != "null":
            yield f"{path} does not say device: null"


def failure(result: subprocess.CompletedProcess[str]) -> list[str]:
    """Why a command failed, if it did."""
    if not result.returncode:
        return []
    last = result.stderr.strip().splitlines()[-1:]
    return [f"{' '.join(result.args[2:5])} exits {result.returncode}: {''.join(last)}"]


def refusal(result: subprocess.CompletedProcess[str]) -> list[str]:
    """What is wrong with a command that must refuse, in one line, what the null GPU made."""
    said = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    if result.returncode == 2 and len(said) == 1 and "was made on a null GPU" in said[0]:
        return []
    return [f"{' '.join(result.args[2:5])} does not refuse: {result.returncode}, {said}"]


def train(arguments: Sequence[str]) -> None:
    """`pipeline.train` with these arguments; prints a line of counts for each half of a step."""
    from pipeline import train as command
    from pipeline.training.loop import Trainer
    from tests.null_gpu.ledger import counting

    def counted(part: str, method: Any) -> Any:
        def call(self: Any, *given: Any) -> Any:
            with counting() as found:
                result = method(self, *given)
            counts = {"part": part, "waits": found.of("wait"), "copies": found.of("copy")}
            print(COUNTED + json.dumps(counts), flush=True)
            return result

        return call

    accumulate, update = Trainer._accumulate, Trainer._update
    Trainer._accumulate = counted("micro-batches", accumulate)  # type: ignore[method-assign]
    Trainer._update = counted("update", update)  # type: ignore[method-assign]
    sys.argv = ["train", *arguments]
    command.main()


if __name__ == "__main__":
    train(sys.argv[1:])
