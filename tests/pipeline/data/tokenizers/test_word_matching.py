"""Ids of words by the rules of WordPiece and unigram."""

import numpy as np
import pytest

from pipeline.data.text.cleaning import clean
from pipeline.data.tokenizers.document_encoder import TextEncoder
from pipeline.data.tokenizers.trainers import train_vocabulary
from tests.pipeline.data.tokenizers.test_word_engine import same


@pytest.mark.parametrize("lower_case", [False, True])
def test_sentences_without_white_space_between(lower_case: bool) -> None:
    """Of Chinese a paragraph is one word of unigram; sentences begin at tokens inside it."""
    rng = np.random.default_rng(0)
    words = ["".join(map(chr, rng.integers(0x4E00, 0x4E40, n))) for n in (1, 2, 2, 3, 3, 4)]
    words += ["½", "ﬁne", "Éa", "x"]  # of which some become more characters, or fewer bytes

    def sentence() -> str:
        return "".join([*rng.choice(words, rng.integers(2, 9)), str(rng.choice([*"。！？"]))])

    texts = ["".join(sentence() for _ in range(8)) for _ in range(60)]
    vocabulary = train_vocabulary("unigram", lambda: iter(texts), 200, lower_case=lower_case)
    expected = same(TextEncoder.create(vocabulary), clean(texts).texts())
    assert len(expected.sentence_starts) > 4 * len(texts)
