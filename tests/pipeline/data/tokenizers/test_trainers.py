"""Training: reproducible bytes, the requested size, rare characters dropped."""

import json
import os
import subprocess
import sys

import pytest

from pipeline.data.tokenizers.trainers import train_vocabulary
from pipeline.data.tokenizers.vocabulary import Vocabulary

PROGRAM = """
import sys
from pipeline.data.tokenizers.trainers import train_vocabulary
texts = sys.stdin.read().split("\\0")
for kind in sys.argv[1:]:
    print(train_vocabulary(kind, lambda: iter(texts), 600, lower_case=True).sha256)
"""
"""Another process has other hash keys, which break ties between equal counts in `tokenizers`."""


def test_another_process_gives_the_same_bytes(sample_text: list[str]) -> None:
    """One that has no threads, too."""
    kinds, texts = ("wordpiece", "unigram"), sample_text[:8]
    theirs = subprocess.run(
        [sys.executable, "-c", PROGRAM, *kinds], input="\0".join(texts), capture_output=True,
        text=True, check=True, env=os.environ | {"TOKENIZERS_PARALLELISM": "false"},
    ).stdout.split()  # fmt: skip
    ours = [train_vocabulary(kind, lambda: iter(texts), 600, lower_case=True) for kind in kinds]
    assert theirs == [vocabulary.sha256 for vocabulary in ours]


def test_vocabularies_have_the_requested_size(word_vocabularies: dict[str, Vocabulary]) -> None:
    assert {vocabulary.size for vocabulary in word_vocabularies.values()} == {2000}
    assert not any(vocabulary.special[5:].any() for vocabulary in word_vocabularies.values())


@pytest.mark.parametrize("kind", ["wordpiece", "unigram"])
def test_unusual_texts(kind: str) -> None:
    """Few words give fewer ids, rare characters are dropped, and characters take at most a quarter
    of the ids."""

    def trained(texts: list[str], size: int, lower_case: bool = False) -> Vocabulary:
        return train_vocabulary(kind, lambda: iter(texts), size, lower_case=lower_case)

    small = trained(["The cat sat on the mat. Naïve cats."] * 5, 5000, lower_case=True)
    content = json.loads(small.text_json())["model"]["vocab"]
    names = content if kind == "wordpiece" else [piece for piece, _ in content]
    assert 20 < small.size < 200
    assert {"the", "cat"} <= {name.removeprefix("▁") for name in names}
    rare = trained(["ab cd " * 20_000, "one ☃"], 600).text_json()
    assert "☃" not in rare and "ab" in rare
    many = "".join(chr(0x4E00 + i) for i in range(3000)) + " and words" * 3000
    assert trained([many], 400).size <= 400
