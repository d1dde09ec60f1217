"""Commands that do the same work at the same time where locks fail: each ends well, or says why.

A preloaded library (tests/benchmarks/file_system_calls.c) has flock fail, as on a file system
without locks, or succeed without excluding anyone, as on Lustre mounted with localflock.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest

from tests.benchmarks.file_system_calls import FileSystemCalls
from tests.pipeline import preparing
from tests.pipeline.preparing import ROOT, SMALL_SPLITS, contents, write_jsonl

Locks = Literal["", "none", "local"]
MODES: tuple[Locks, ...] = ("none", "local")
AtOnce = Callable[..., None]
Command = list[object]


@pytest.fixture
def at_once(tmp_path: Path) -> AtOnce:
    """at_once(root, command..., locks=): run commands at the same time, all to the exit code 0."""
    calls = FileSystemCalls.below(tmp_path, tmp_path.with_name(f"{tmp_path.name}-calls"))

    def at_once(root: Path, *commands: Command, locks: Locks = "") -> None:
        own = calls.environment(locks=locks) if locks else {}
        own |= {"TENFOLD_ROOT": str(root), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        for code, printed, errors in preparing.at_once(*commands, **own):
            assert code == 0, printed + errors
            assert "Traceback" not in printed + errors

    return at_once


def write_corpus(folder: Path, documents: int) -> Path:
    """JSON lines, and plain text to extract; every fifth document has a near-duplicate."""
    words = [f"word{number * 7919 % 1013}" for number in range(documents * 60)]
    texts = [" ".join(words[60 * n : 60 * n + 50]) + f" number {n}." for n in range(documents)]
    texts += [f"{text} More." for text in texts[::5]]
    folder.mkdir()
    half = len(texts) // 2
    write_jsonl(folder / "a.jsonl", texts[:half])
    for number in range(2):
        (folder / f"b{number}.txt").write_text("\n\n".join(texts[half + number :: 2]))
    return folder


def prepare(corpus: Path, root: Path, *more: object) -> Command:
    return [
        sys.executable, SMALL_SPLITS, "--corpus", "mine", "--input", corpus, "--plain-text",
        "blank_lines", "--dedup", "near", "--recipe", "roberta_tiny", "--workers", 1,
        "--output", root / "out", *more,
    ]  # fmt: skip


def test_two_that_prepare_the_same(at_once: AtOnce, tmp_path: Path, tiny_tokenizer: Path) -> None:
    """They extract, deduplicate, make and publish the same at the same time."""
    corpus, given = write_corpus(tmp_path / "in", 150), ("--tokenizer", tiny_tokenizer)
    plain = tmp_path / "plain"
    at_once(plain, prepare(corpus, plain, *given))
    for locks in MODES:
        root = tmp_path / locks
        at_once(root, *[prepare(corpus, root, *given)] * 2, locks=locks)
        assert contents(root / "out") == contents(plain / "out")


@pytest.mark.slow
def test_parts(at_once: AtOnce, tmp_path: Path) -> None:
    """Also the tokenizer is trained by all of them."""
    corpus, plain = write_corpus(tmp_path / "in", 1500), tmp_path / "plain"
    small = ("--set", "data.vocab_size=600")
    at_once(plain, prepare(corpus, plain, *small))
    for root, locks in ((tmp_path / f"{locks}{n}", locks) for locks in MODES for n in range(3)):
        parts = [prepare(corpus, root, *small, "--part", f"{n}/3") for n in (1, 2, 3)]
        at_once(root, *parts, locks=locks)
        if not (root / "out" / "manifest.json").exists():
            at_once(root, prepare(corpus, root, *small), locks=locks)  # as the parts have said
        assert contents(root / "out") == contents(plain / "out")
