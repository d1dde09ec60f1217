"""Commands that do the same work at the same time where locks fail: each ends well, or says why.

A preloaded library (tests/benchmarks/file_system_calls.c) has flock fail, as on a file system
without locks, or succeed without excluding anyone, as on Lustre mounted with localflock.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import pytest

from tests.benchmarks.file_system_calls import FileSystemCalls
from tests.pipeline import preparing
from tests.pipeline.ingest.web_archive import articles, members
from tests.pipeline.preparing import contents
from tests.pipeline.remote.publishers import publisher

ROOT = Path(__file__).parents[2]
PREPARE = (sys.executable, ROOT / "tests/end_to_end/small_splits.py")
TAKEDOWN = (sys.executable, "-m", "pipeline.takedown")
Locks = Literal["none", "local"]
MODES: tuple[Locks, ...] = ("none", "local")


def write_corpus(folder: Path, documents: int) -> None:
    """JSON lines, and plain text to extract; every fifth document has a near-duplicate."""
    words = [f"word{number * 7919 % 1013}" for number in range(documents * 60)]
    texts = [" ".join(words[60 * n : 60 * n + 50]) + f" number {n}." for n in range(documents)]
    texts += [f"{text} More." for text in texts[::5]]
    folder.mkdir(parents=True)
    half = len(texts) // 2
    lines = (json.dumps({"text": text}) + "\n" for text in texts[:half])
    (folder / "a.jsonl").write_text("".join(lines))
    for number in range(2):
        (folder / f"b{number}.txt").write_text("\n\n".join(texts[half + number :: 2]))


def at_once(commands: Sequence[Sequence[object]], environment: dict[str, str]) -> None:
    """Run commands at the same time, all to the exit code 0."""
    for code, printed, errors in preparing.at_once(*commands, **environment):
        assert code == 0, printed + errors
        assert "Traceback" not in printed + errors


class Corpus:
    """A corpus, its undisturbed shards, and the commands that make the same ones."""

    def __init__(self, folder: Path, tokenizer: Path | None, documents: int) -> None:
        self.folder = folder
        self.tokenizer = tokenizer
        write_corpus(folder / "in", documents)
        self.calls = FileSystemCalls.below(folder, folder.with_name(f"{folder.name}-calls"))
        at_once([self.prepare("plain")], self.environment("plain"))
        self.expected = contents(folder / "plain" / "out")

    def environment(self, place: str, locks: Locks | None = None) -> dict[str, str]:
        """Of commands whose root is `place`, undisturbed or where locks fail."""
        own = self.calls.environment(locks=locks) if locks else {}
        root = str(self.folder / place)
        return {**own, "TENFOLD_ROOT": root, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}

    def prepare(self, place: str, *more: object) -> list[object]:
        """The command that prepares the corpus in `place`."""
        small = ("--set", "data.vocab_size=600")
        given = ("--tokenizer", self.tokenizer) if self.tokenizer else small
        return [
            *PREPARE, "--corpus", "mine", "--input", self.folder / "in", "--plain-text",
            "blank_lines", "--dedup", "near", "--recipe", "roberta_tiny", "--workers", 1,
            "--output", self.folder / place / "out", *given, *more,
        ]  # fmt: skip


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory, tiny_tokenizer: Path) -> Corpus:
    return Corpus(tmp_path_factory.mktemp("locks") / "small", tiny_tokenizer, 150)


@pytest.mark.parametrize("locks", MODES)
def test_two_that_prepare_the_same(small: Corpus, locks: Locks) -> None:
    """They extract, deduplicate, make and publish the same at the same time."""
    at_once([small.prepare(locks)] * 2, small.environment(locks, locks))
    assert contents(small.folder / locks / "out") == small.expected


@pytest.mark.slow
@pytest.mark.parametrize("locks", MODES)
def test_parts_and_a_takedown(tmp_path: Path, locks: Locks) -> None:
    """Also the tokenizer is trained by all of them."""
    corpus = Corpus(tmp_path / "corpus", None, 1500)
    for attempt in range(3):
        place = f"{locks}{attempt}"
        environment = corpus.environment(place, locks)
        at_once([corpus.prepare(place, "--part", f"{n}/3") for n in (1, 2, 3)], environment)
        if not (tmp_path / "corpus" / place / "out" / "manifest.json").exists():
            at_once([corpus.prepare(place)], environment)  # as the parts have said
        assert contents(tmp_path / "corpus" / place / "out") == corpus.expected
    shards = tmp_path / "corpus" / place / "out"
    taken = [
        [*TAKEDOWN, "--data", shards, "--documents", "a.jsonl@0", "--workers", 1, "--output", new]
        for new in (tmp_path / "corpus" / "taken", tmp_path / "corpus" / "taken", tmp_path / "one")
    ]
    at_once(taken[2:], corpus.environment(place))
    at_once(taken[:2], corpus.environment(place, locks))
    assert contents(tmp_path / "corpus" / "taken") == contents(tmp_path / "one")


@pytest.mark.slow
@pytest.mark.parametrize("locks", MODES)
def test_two_that_fetch_the_same(tmp_path: Path, tiny_tokenizer: Path, locks: Locks) -> None:
    calls = FileSystemCalls.below(tmp_path, tmp_path.with_name(f"{tmp_path.name}-calls"))
    with publisher() as server:
        server.put_month("2019-01", {"00001": members(articles(40))})
        server.put_month("2019-02", {"00002": members(articles(41, "www.other.org"))})

        def prepare(place: str) -> list[object]:
            return [
                sys.executable, "-m", "pipeline.prepare", "--corpus", "cc-news", "--months",
                "2019-01..2019-02", "--mirror", server.address, "--recipe", "roberta_tiny",
                "--tokenizer", tiny_tokenizer, "--workers", 1,
                "--output", tmp_path / place / "out",
            ]  # fmt: skip

        def environment(place: str) -> dict[str, str]:
            return {"TENFOLD_ROOT": str(tmp_path / place), "PYTHONPATH": str(ROOT)}

        at_once([prepare("plain")], environment("plain"))
        at_once([prepare("both")] * 2, calls.environment(locks=locks) | environment("both"))
    assert contents(tmp_path / "both" / "out") == contents(tmp_path / "plain" / "out")
