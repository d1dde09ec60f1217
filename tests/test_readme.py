"""The README is true: its commands run, print what it shows, and its links lead somewhere."""

from __future__ import annotations

import bz2
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pipeline.data.dump import large_dump
from tests.pipeline.data.web_archive import articles, members

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = [
    line[2:]
    for block in re.findall(r"```console\n(.*?)```", TEXT, re.S)
    for line in block.splitlines()
    if line.startswith("$ python -m pipeline.")
]


def shell(command: str, directory: Path) -> str:
    """Run a line as the README's reader would, in an activated environment."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    unset = ("TENFOLD_ROOT", "COLUMNS")
    environment = {k: v for k, v in os.environ.items() if k not in unset} | {"PATH": path}
    result = subprocess.run(
        ["bash", "-c", command], cwd=directory, env=environment, capture_output=True, text=True,
        timeout=900, check=False,
    )  # fmt: skip
    assert result.returncode == 0, f"{command}\n{result.stderr}"
    return result.stdout


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A place with the files that the README calls the user's own."""
    folder = tmp_path_factory.mktemp("readme")
    record = '{"%s": "A piece of news. It has two sentences, number %d."}\n'
    news = [
        f"News {n}: {n * 7} people in {n * n} towns had {n + 3} cats. Number {n}."
        for n in range(50)
    ]
    (folder / "news.jsonl").write_text("".join(f'{{"text": "{text}"}}\n' for text in news))
    large_dump(folder / "enwiki-20260101-pages-articles1.xml", 20)
    (folder / "enwiki-20260101-pages-articles1.xml.bz2").write_bytes(
        bz2.compress((folder / "enwiki-20260101-pages-articles1.xml").read_bytes())
    )
    (folder / "CC-NEWS-20260101.warc.gz").write_bytes(members(articles(20)))
    (folder / "books").mkdir()
    for number in range(3):
        text = f"Chapter {number}. It was a dark and stormy night.\n\nThe end."
        (folder / "books" / f"{number}.txt").write_text(text)
    numbers = " ".join(map(str, range(20)))
    for name, text in (
        ("glue/dev.tsv", f"1\t{numbers}\n"),
        ("squad/dev-v2.0.json", json.dumps({"data": [{"context": numbers}]})),
    ):
        (folder / name).parent.mkdir()
        (folder / name).write_text(text)
    (folder / "shards").mkdir()
    lines = "".join(record % ("article", n) for n in range(20))
    (folder / "shards" / "0.jsonl").write_text(lines)
    pack = (
        "import zstandard, pathlib, pyarrow as pa, pyarrow.parquet as pq\n"
        "raw = pathlib.Path('shards/0.jsonl')\n"
        "pathlib.Path('shards/0.jsonl.zst').write_bytes(zstandard.compress(raw.read_bytes()))\n"
        "raw.unlink()\n"
        "pq.write_table(pa.table({'article': ['A table. Two sentences.'] * 5}), 'more.parquet')\n"
    )
    subprocess.run([sys.executable, "-c", pack], cwd=folder, check=True)
    return folder


def test_commands_and_what_they_print(directory: Path) -> None:
    assert len(COMMANDS) >= 7
    printed = [shell(command, directory) for command in COMMANDS]
    shown = re.search(r"```text\n(data/shards.*?)```", TEXT, re.S)
    assert shown
    assert _without_fingerprint(printed[2]) == _without_fingerprint(shown[1])
    for snippet in re.findall(r"```python\n(.*?)```", TEXT, re.S):
        result = subprocess.run(
            [sys.executable, "-c", snippet], cwd=directory, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        assert result.returncode == 0, result.stderr
        assert "torch.Size([64, 512])" in result.stdout


def _without_fingerprint(text: str) -> list[str]:
    """Lines; the fingerprint and the engine depend on installed versions."""
    text = re.sub(r"[0-9a-f]{16}", "FINGERPRINT", text)
    return re.sub(r"gigatoken [\d.]+", "gigatoken", text).rstrip().splitlines()


def test_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    assert set(re.findall(r"(?:\$ |`)make ([a-z-]+)", TEXT)) <= targets


def test_every_command_is_mentioned_and_helps() -> None:
    for path in sorted((ROOT / "pipeline").glob("*.py")):
        if 'if __name__ == "__main__":' in path.read_text():
            assert f"pipeline.{path.stem}" in TEXT, path.stem
            help_text = shell(f"python -m pipeline.{path.stem} --help", ROOT)
            assert "usage:" in help_text and len(help_text.splitlines()) > 10


def test_every_recipe_is_mentioned() -> None:
    from pipeline.recipes import RECIPES

    for name in RECIPES:
        assert f"`{name}`" in TEXT, name


def test_the_table_of_families_is_what_the_code_counts() -> None:
    from model.families import ELECTRA, their_config
    from pipeline.config.run import max_predictions
    from pipeline.recipes import RECIPES, recipe
    from pipeline.training.planning.plan import encoder_config, flops_of, has_pairs, parameters_of

    rows = re.findall(
        r"^\| `(\w+)` \| ([\d,]+) \| ([\d.]+) T.* \|.*\| (?:`(\w+)`.*)?\|$", TEXT, re.M
    )
    listed = [name for name in RECIPES if not name.endswith(("_tiny", "_v1", "_published"))]
    assert [name for name, *_ in rows] == listed
    assert sum(architecture != "" for *_, architecture in rows) == 5
    for name, parameters, flops, architecture in rows:
        run = recipe(name)
        found = flops_of(run, 1, max_predictions(run.data), run.data.sequence_length) / 1e12
        assert (f"{parameters_of(run):,}", f"{found:.3f}") == (parameters, flops), name
        if run.objective.kind == "rtd":
            theirs = ELECTRA.architecture
        else:
            (theirs,) = their_config(encoder_config(run), has_pairs(run))["architectures"]
        assert architecture in (theirs, ""), name


def test_links_lead_somewhere() -> None:
    targets = re.findall(r"\]\(([^)#]+)\)", TEXT)
    assert ".github/loss.png" in targets
    for target in targets:
        assert target.startswith("http") or (ROOT / target).exists(), target
