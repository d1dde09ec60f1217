"""The README files are correct: commands run and print what is shown; links and names exist.

Every page works for a reader who has run the commands of the first page.
"""

import ast
import bz2
import functools
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from pipeline import __version__
from pipeline.base.command_table import COMMANDS
from pipeline.config.run import Run
from pipeline.config.settings import override, setting_types
from pipeline.data.shards.manifest import SCHEMA_VERSION
from pipeline.recipes import RECIPES, recipe
from pipeline.training.checkpoints import read
from pipeline.training.run_directory import run_json
from tests.launching import process
from tests.pages import (
    FIRST,
    ROOT,
    Page,
    expand,
    inner_command,
    missing_packages,
    parse,
    read_pages,
    split,
)
from tests.pipeline.ingest.dump import large_dump
from tests.pipeline.ingest.web_archive import articles, members

PAGES = read_pages()
FILES = subprocess.run(
    ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
    cwd=ROOT, capture_output=True, text=True, check=True,
).stdout.splitlines()  # fmt: skip
"""Folder of the checkout."""
WALK, RECIPE_PAGE = "pipeline/README.md", "pipeline/recipes/README.md"
SHARDS = "pipeline/data/shards/README.md"
USING = "pipeline/USING.md"

MOST_LINES = {
    FIRST: 200, WALK: 60, RECIPE_PAGE: 200, USING: 180, "slurm/README.md": 200,
    "docker/README.md": 200,
}  # fmt: skip
MOST_LINES_OF_A_ROOM, MOST_COLUMNS = 80, 120

SHORTER = {"pipeline.prepare": ("--workers", "1"), "pipeline.train": ("--stop-at", "4")}
"""Arguments that the test adds to a command so that it ends in seconds."""

OURS = re.compile(r"python -m pipeline\.|tenfold ")
NOT_RUN = {
    "make", ".", "git", "export", "sbatch", "tail", "docker", "apptainer", "enroot", "srun",
    "mpiexec", "torchrun", "deepspeed", "slurm/pipeline.sh", ".venv/bin/python", "python",
    "pip", "hf", "vllm",
}  # fmt: skip
"""Programs whose commands are checked but not run."""

THEIRS = {
    "max-restarts", "requeue", "gres", "gpus-per-task", "batch", "signal", "partition", "account",
    "me", "check", "nodes", "ntasks-per-node", "prepare", "train", "export", "help",
}  # fmt: skip
"""Options of torchrun, Slurm and slurm/pipeline.sh that the text names."""

DEVELOPMENT = {"test", "dev"}
"""Extras for those who change the code."""

all_pages = pytest.mark.parametrize("page", PAGES.values(), ids=lambda page: page.name)


def launch(words: list[str], directory: Path) -> str:
    """Run `python ARGUMENTS...`, given without `python`, and return what it prints."""
    unset = ("TENFOLD_ROOT", "COLUMNS")
    environment = {k: v for k, v in os.environ.items() if k not in unset}
    if "load_dataset" in words[-1]:
        environment["HF_DATASETS_CACHE"] = str(directory / "datasets")
    environment["OMP_NUM_THREADS"] = "1"
    result = process.run([sys.executable, *words], cwd=directory, env=environment)
    assert result.returncode == 0, f"{words}\n{result.stderr}"
    return result.stdout


@dataclass(slots=True)
class Reader:
    """A reader who runs the commands of pages in a directory with their own files."""

    directory: Path
    printed: dict[str, list[str]] = field(default_factory=dict)
    """Per page, what each command and program has printed."""

    def read(self, page: Page) -> list[str]:
        """Run the first page, then this one, each once; returns the output of this one."""
        for name in (FIRST, page.name):
            if name not in self.printed:
                self.printed[name] = []  # first, so that a failing page runs only once
                for command in PAGES[name].commands("console"):
                    if command.startswith("python"):
                        self.printed[name].append(launch(self._words(command), self.directory))
                for program in PAGES[name].blocks("python"):
                    if not missing_packages(program):
                        self.printed[name].append(launch(["-c", program], self.directory))
        return self.printed[page.name]

    def _words(self, command: str) -> list[str]:
        words = expand(command, self.directory)
        option, value = SHORTER.get(words[2], ("", ""))
        ends_at_once = {option, "--dry-run"} & set(words)
        return words[1:] if not option or ends_at_once else [*words[1:], option, value]


def _as_lines(values: Iterable[object]) -> bytes:
    return "".join(json.dumps(value) + "\n" for value in values).encode()


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Reader:
    """A reader with the files that the pages assume."""
    folder = tmp_path_factory.mktemp("readme")
    news = [f"News {n}: {n * 7} of {n * n} towns had {n + 3} cats. Number {n}." for n in range(50)]
    reviews = [f"The room was {'bad' if n % 2 else 'good'}, and number {n}." for n in range(600)]
    entities = [
        {"words": f"{name} met the mayor of {town} .", "tags": "B-PER O O O O B-LOC O"}
        for name in ("Anna", "Bo", "Carl", "Dora")
        for town in ("Paris", "Rome", "Oslo", "Lima", "Cairo")
    ]
    numbers = " ".join(map(str, range(20)))
    articles_of = ({"article": f"A piece of news. It is number {n}."} for n in range(20))
    for name, content in {
        "news.jsonl": _as_lines({"text": text} for text in news),
        "entities.jsonl": _as_lines(entities),
        "reviews.jsonl": _as_lines({"text": text} for text in reviews),
        "reviews.csv": "".join(
            ["text,stars\n", *(f'"{text}",{1 + n % 2}\n' for n, text in enumerate(reviews[:40]))]
        ).encode(),
        "CC-NEWS-20260101.warc.gz": members(articles(20)),
        "glue/dev.tsv": f"1\t{numbers}\n".encode(),
        "squad/dev-v2.0.json": json.dumps({"data": [{"context": numbers}]}).encode(),
        "pairs/determiners.txt": b"look at this things .\nlook at this thing .\n",
        "sentences.txt": b"The dog [MASK] in the garden.\n",
        "shards/0.jsonl.zst": zstandard.compress(_as_lines(articles_of)),
        **{
            f"books/{n}.txt": f"Chapter {n}. It was a dark and stormy night.\n\nThe end.".encode()
            for n in range(3)
        },
    }.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
    dump = folder / "enwiki-20260101-pages-articles1.xml"
    large_dump(dump, 20)
    dump.with_name(f"{dump.name}.bz2").write_bytes(bz2.compress(dump.read_bytes()))
    dump.unlink()
    pq.write_table(pa.table({"article": ["A table. Two sentences."] * 5}), folder / "more.parquet")
    return Reader(folder)


@all_pages
def test_commands_run(page: Page, reader: Reader) -> None:
    printed = reader.read(page)
    programs = page.blocks("python")
    missing = {name for program in programs for name in missing_packages(program)}
    ran = len(programs) - sum(bool(missing_packages(program)) for program in programs)
    assert all(output.strip() for output in printed[len(printed) - ran :])
    if missing:
        pytest.skip(f"all ran but the programs that need {', '.join(sorted(missing))}")


def test_the_shown_output_is_what_inspect_prints(reader: Reader) -> None:
    printed = reader.read(PAGES[SHARDS])
    (shown,) = PAGES[SHARDS].blocks("text")
    assert _without_fingerprint(printed[0]) == _without_fingerprint(shown)
    assert "input_ids" in printed[1], "load_dataset"


def test_programs_print_batches_and_words_for_the_mask(reader: Reader) -> None:
    assert "torch.Size([65])" in reader.read(PAGES["pipeline/loading/README.md"])[0]
    assert len(re.findall(r"^\d+% ", reader.read(PAGES[FIRST])[-1], re.M)) == 5


def test_tenfold_prints_something(tmp_path: Path) -> None:
    commands = [c for page in PAGES.values() for c in page.commands("console")]
    commands = [command for command in commands if command.startswith("tenfold ")]
    assert len(commands) >= 3
    for command in commands:
        assert launch(["-m", "pipeline.tenfold", *split(command)[1:]], tmp_path).strip(), command


def _without_fingerprint(text: str) -> list[str]:
    """Lines, without the fingerprint and engine, which depend on installed versions."""
    text = re.sub(r"[0-9a-f]{16}", "FINGERPRINT", text)
    text = re.sub(r"(gigatoken|tokenizers) [\d.]+", r"\1", text)
    return [line.rstrip() for line in text.rstrip().splitlines()]


@all_pages
def test_commands_are_legal(page: Page) -> None:
    """All commands, including those for a cluster, an image or a large corpus."""
    indented = re.findall(r"^ {7,8}(\S.*)$", page.text, re.M) if "slurm" in page.name else []
    inline = [span for span in page.spans() if OURS.match(f"{span} ") and " " in span]
    for command in page.commands("console") + page.commands("bash") + indented + inline:
        words = split(command)
        while re.match(r"[A-Z_]+=", words[0]):
            words.pop(0)
        if words[0] != "tenfold":
            assert words[0] in NOT_RUN, f"{page.name}: {command}"
        if "..." not in words:
            _check(words)


def _check(words: list[str]) -> None:
    """A command's files, its module, its arguments, recipe and settings."""
    for word in words:
        if word.endswith((".sbatch", ".sh", "Dockerfile")):
            assert (ROOT / word).is_file(), word
            if not word.endswith("Dockerfile"):
                subprocess.run(["bash", "-n", ROOT / word], check=True)
    if words[0] == "make":
        assert words[1] in _make_targets(), words
    called = inner_command(words)
    if words[0] == "tenfold" and not words[1].startswith("-"):
        assert words[1] in ("recipes", "settings") or words[1] in COMMANDS, words
    if len(called) > 1:
        arguments = parse([word.replace("$", "") for word in called])
        if name := getattr(arguments, "recipe", None):
            kind = getattr(arguments, "kind", None)
            changes = [f"data.tokenizer={kind}"] if kind else []
            if "/" not in name:  # the others are models that are not here
                override(recipe(name), [*changes, *getattr(arguments, "set", [])])


def _make_targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))


@all_pages
def test_sizes(page: Page) -> None:
    lines = page.text.splitlines()
    assert len(lines) <= MOST_LINES.get(page.name, MOST_LINES_OF_A_ROOM)
    assert not [line for line in lines if len(line) > MOST_COLUMNS]


@all_pages
def test_links_lead_somewhere(page: Page) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", page.text):
        if not target.startswith("http"):
            path, _, anchor = target.partition("#")
            found = (page.folder / path).resolve() if path else ROOT / page.name
            assert found.exists(), target
            if anchor:
                headings = re.findall(r"^#+ (.*)$", found.read_text().lower(), re.M)
                anchors = [re.sub(r"[^a-z0-9 -]", "", h).replace(" ", "-") for h in headings]
                assert anchor in anchors, target


@all_pages
def test_names_in_the_text_exist(page: Page) -> None:
    """Targets of make, options, settings, and files and folders of the checkout."""
    settings = {re.sub(r"\[\]|\.\d+", "", path) for path in setting_types(Run)}
    sections = {path.split(".")[0] for path in settings if "." in path}
    for span in page.spans():
        if match := re.match(r"make ([a-z-]+)", span):
            assert match[1] in _make_targets(), span
        for path in re.findall(r"(?<![\w./-])([a-z_]+\.[a-z_][a-z_.]*)(?=[=\s]|$)", span):
            if path.split(".")[0] in sections - {"data"} or path.startswith("data."):
                known = path in settings or any(s.startswith(f"{path}.") for s in settings)
                assert known or Path(path).suffix in (".json", ".md", ".py"), path
        if re.fullmatch(r"(pipeline|model|tests|slurm|docker|ds_configs)/[\w./*-]*", span):
            assert list(ROOT.glob(span.rstrip("/"))), span
        if re.fullmatch(r"[\w/]+\.(py|sbatch|sh)", span):
            assert any(f"/{file}".endswith(f"/{span}") for file in FILES), span


@functools.cache
def _sources(folder: str) -> str:
    return "".join(path.read_text() for path in (ROOT / folder).rglob("*.py"))


@all_pages
def test_options_in_the_text_exist(page: Page) -> None:
    if page.name.startswith("docker/"):
        return  # options of other programs
    folder = page.name.rpartition("/")[0]
    sources = _sources(folder if folder in ("tests/null_gpu", "tests/golden") else "pipeline")
    for span in page.spans():
        for option in re.findall(r"(?:^|\s)--([a-z][a-z0-9-]+)", span):
            assert f'"--{option}"' in sources or option in THEIRS, option


@all_pages
def test_named_tests_exist(page: Page) -> None:
    for file, name in re.findall(r"(tests/[\w/]+\.py)`?\s*`?::(\w+)", page.text):
        path = ROOT / file
        assert path.exists(), file
        functions = {n.name for n in ast.parse(path.read_text()).body if hasattr(n, "name")}
        assert name in functions, f"{file}::{name}"


def test_one_document_and_one_step_never_turn_back() -> None:
    """In both tables of the walk each step is one file, and no folder comes twice."""
    tables = re.split(r"^## ", PAGES[WALK].text, flags=re.M)
    walks = [re.findall(r"^\| \d+ \| `([^`]+)` \|", table, re.M) for table in tables]
    assert [len(walk) > 8 for walk in walks if walk] == [True, True]
    for walk in filter(None, walks):
        folders = [file.rpartition("/")[0] for file in walk]
        entered = [f for f, before in zip(folders, ["", *folders]) if f != before]
        assert len(entered) == len(set(entered)), entered
        for file in walk:
            home = ROOT if file.startswith("model/") else ROOT / "pipeline"
            assert (home / file).is_file(), file


def test_a_version_promises_the_formats_that_it_writes() -> None:
    for part in (
        f"## {__version__}\n", f"`schema_version` {SCHEMA_VERSION} in",
        f"`format` {read.FORMAT} in", f"`run.json` of a run | `format` {run_json.FORMAT} |",
    ):  # fmt: skip
        assert part in PAGES["pipeline/RELEASES.md"].text, part


def test_every_folder_of_the_map_exists() -> None:
    rows = re.findall(r"^\| ((?:`[\w/]+/(?:\*\.py)?`(?:, )?)+) \|", PAGES[FIRST].text, re.M)
    folders = [folder for row in rows for folder in re.findall(r"`([\w/]+/)", row)]
    assert len(folders) >= 10
    for folder in folders:
        assert (ROOT / folder).is_dir(), folder


def test_the_first_screen_has_uses_status_and_picture() -> None:
    screen = PAGES[FIRST].text[: PAGES[FIRST].text.index("## Install")]
    for part in (
        "python -m pipeline.prepare --corpus cc-news", "sbatch slurm/roberta_large.sbatch",
        "docker build", "no recipe has been validated", ".github/loss.png",
    ):  # fmt: skip
        assert part in screen, part


def test_every_command_is_mentioned_and_helps(tmp_path: Path) -> None:
    text = "".join(page.text for page in PAGES.values())
    for name in sorted(COMMANDS):
        assert f"pipeline.{name}" in text
        help_text = launch(["-m", f"pipeline.{name}", "--help"], tmp_path)
        assert "usage:" in help_text and len(help_text.splitlines()) > 10


def test_every_recipe_is_mentioned() -> None:
    assert [name for name in RECIPES if f"`{name}`" not in PAGES[RECIPE_PAGE].text] == []


def test_the_speed_table_repeats_what_was_measured_on_a_few_screens() -> None:
    measured = (ROOT / "tests/benchmarks/RESULTS.md").read_text()
    assert measured.count("\n") <= 250, "move superseded figures to its history, or drop them"
    table = PAGES[FIRST].text.partition("## Speed")[2].partition("## ")[0]
    row = r"^\| .*? \| ([\d.]+)\S* .*? \| ([\d.]+)\S* .* \| ([\d.,]+)x \|$"
    rows = re.findall(row, table, re.M)
    assert len(rows) == table.count("\n| ") - 1
    for ours, theirs, ratio in rows:
        assert ours in measured and theirs in measured, (ours, theirs)
        assert float(ratio.replace(",", "")) > 1


def test_the_first_page_names_every_extra() -> None:
    extras = (ROOT / "pyproject.toml").read_text().partition("[project.optional-dependencies]")[2]
    names = re.findall(r"^(\w+) = \[$", extras.partition("\n[project.")[0], re.M)
    install = PAGES[FIRST].text.partition("## Install")[2].partition("## ")[0]
    assert len(names) > 8
    assert not [name for name in names if f"`{name}`" not in install and name not in DEVELOPMENT]


def test_the_glossary_is_linked() -> None:
    """From the pages where its words come first."""
    text = "".join(page.text for page in PAGES.values())
    linked = set(re.findall(r"GLOSSARY\.md#([a-z-]+)", text))
    words = re.findall(r"^## (.*)$", (ROOT / "pipeline/GLOSSARY.md").read_text(), re.M)
    assert len(words) >= 20 and len(linked) >= 10
    assert linked <= {word.lower().replace(" ", "-") for word in words}


def test_the_table_of_families_is_what_the_code_counts() -> None:
    from model.hugging_face.config_json import their_config
    from model.hugging_face.families import ELECTRA
    from pipeline.config.data_settings import max_predictions
    from pipeline.planning.phase_plan import encoder_config, flops_of, has_pairs, parameters_of

    row = r"^\| `(\w+)` \| ([\d,]+) \| ([\d.]+) T.* \|.*\| (?:`(\w+)`.*)?\|$"
    rows = re.findall(row, PAGES[RECIPE_PAGE].text, re.M)
    variant = ("_tiny", "_mini", "_published")
    listed = [name for name in RECIPES if not name.endswith(variant)]
    assert [name for name, *_ in rows] == listed
    assert sum(architecture != "" for *_, architecture in rows) == 6
    for name, parameters, flops, architecture in rows:
        run = recipe(name)
        found = flops_of(run, 1, max_predictions(run.data), run.data.sequence_length) / 1e12
        assert (f"{parameters_of(run):,}", f"{found:.3f}") == (parameters, flops), name
        if run.objective.kind == "rtd":
            theirs = ELECTRA.architecture
        else:
            (theirs,) = their_config(encoder_config(run), has_pairs(run))["architectures"]
        assert architecture in (theirs, ""), name
