"""Shared by tests: a small vocabulary, a prepared sample, real data if available."""

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.data.preparation.tokenizer_training import train_tokenizer
from pipeline.data.selection.sample import sample_texts
from pipeline.data.text.documents import DocumentCounts
from pipeline.data.tokenizers.folders import read_vocabulary
from pipeline.data.tokenizers.trainers import train_vocabulary
from pipeline.data.tokenizers.vocabulary import Vocabulary
from pipeline.ingest.corpora.sources import corpus_sources
from pipeline.recipes import recipe
from tests.launching import process
from tests.launching.shared import WORKER, build_once
from tests.pipeline.data.small_shards import prepare_here

LONG = (
    "test_features", "test_engine", "test_readme", "test_train", "test_faults", "test_layouts",
    "test_families", "test_zero_objectives",
)  # fmt: skip
"""Files with tests that take minutes."""

Command = Callable[..., "subprocess.CompletedProcess[str]"]
_OWNER = pytest.StashKey[process.ForkServerOwner]()


def pytest_configure(config: pytest.Config) -> None:
    """One server for all workers, owned by the process that starts them."""
    # Hubs of tests are on the loopback, where offline mode would forbid them as well.
    os.environ.pop("HF_HUB_OFFLINE", None)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # where a shell started us with &
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if WORKER not in os.environ:
        config.stash[_OWNER] = process.ForkServerOwner()


def pytest_unconfigure(config: pytest.Config) -> None:
    if _OWNER in config.stash:
        config.stash[_OWNER].close()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files first, or one of two workers would begin one when the other has nothing left."""
    items.sort(key=lambda item: LONG.index(name) if (name := item.path.stem) in LONG else len(LONG))


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Tokenizers, golden ids and corpora that we may not ship; without them a test skips."""
    folder = Path(os.environ.get("TENFOLD_TEST_DATA", "/nonexistent"))
    if not folder.is_dir():
        pytest.skip("TENFOLD_TEST_DATA names no folder")
    return folder


@pytest.fixture(scope="session")
def tiny_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Byte-level BPE with 2,048 ids, trained on the sample."""

    def build(folder: Path) -> None:
        _, sources = corpus_sources("sample", [])
        train_tokenizer(sources, recipe("roberta_tiny").data, folder / "byte-bpe-2048")

    return build_once(tmp_path_factory, "tokenizer", build) / "byte-bpe-2048"


@pytest.fixture(scope="session")
def tiny_vocabulary(tiny_tokenizer: Path) -> Vocabulary:
    return read_vocabulary(tiny_tokenizer)


@pytest.fixture(scope="session")
def sample_text() -> list[str]:
    """Half a megabyte of the sample, by document."""
    _, sources = corpus_sources("sample", [])
    return list(sample_texts(sources, 500_000, DocumentCounts()))


@pytest.fixture(scope="session")
def word_vocabularies(
    tmp_path_factory: pytest.TempPathFactory, sample_text: list[str]
) -> dict[str, Vocabulary]:
    """WordPiece and unigram with 2,000 ids, cased and not, trained on `sample_text`."""

    def build(folder: Path) -> None:
        trained = {
            f"{kind}{'-uncased' * lower_case}": train_vocabulary(
                kind, lambda: iter(sample_text), 2000, lower_case=lower_case
            )
            for kind in ("wordpiece", "unigram")
            for lower_case in (False, True)
        }
        (folder / "vocabularies").write_bytes(pickle.dumps(trained))

    folder = build_once(tmp_path_factory, "word-vocabularies", build)
    found: dict[str, Vocabulary] = pickle.loads((folder / "vocabularies").read_bytes())
    return found


@pytest.fixture(scope="session")
def command() -> Command:
    """Runs `python -m pipeline.NAME ARGUMENTS...` as a user does, output in a pipe."""

    def run(name: str, *arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
        return process.run(
            [sys.executable, "-m", f"pipeline.{name}", *arguments], env=os.environ | environment
        )

    return run


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory, tiny_tokenizer: Path) -> Path:
    """The sample corpus, prepared for roberta_tiny. Tests must not write into it."""

    def build(folder: Path) -> None:
        prepare_here(tiny_tokenizer, folder / "sample", "--corpus", "sample")

    return build_once(tmp_path_factory, "prepared", build) / "sample"
