"""A 50,265-token vocabulary for benchmarks: RoBERTa's if available, else trained."""

import os
import shutil
import tempfile
from pathlib import Path

from pipeline.data.preparation.tokenizer_training import train_tokenizer
from pipeline.data.tokenizers.folders import read_vocabulary, save_vocabulary
from pipeline.data.tokenizers.vocabulary import Vocabulary
from pipeline.ingest.corpora.sources import corpus_sources
from pipeline.recipes import recipe


def given_vocabularies() -> Path | None:
    """The folder of published ones in $TENFOLD_TEST_DATA, if there is one."""
    folder = Path(os.environ.get("TENFOLD_TEST_DATA", "/nonexistent")) / "tokenizers"
    return folder if folder.is_dir() else None


def bench_vocabulary(directory: Path) -> Vocabulary:
    """Save a vocabulary of RoBERTa's size in `directory` and return it."""
    if not (given := given_vocabularies()):
        data = recipe("roberta_base").data
        return train_tokenizer(corpus_sources("sample", [])[1], data, directory)
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(given / "roberta" / "roberta-base-vocab.json", Path(folder) / "vocab.json")
        shutil.copy(given / "gpt2" / "vocab.bpe", Path(folder) / "merges.txt")
        vocabulary = read_vocabulary(Path(folder))
    save_vocabulary(vocabulary, directory, 512)
    return vocabulary
