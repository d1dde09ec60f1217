"""Models of SentencePiece give the ids of the sentencepiece package, or are refused."""

import sys
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from pipeline.base.errors import DataError
from pipeline.data.tokenizers import sentencepiece_model
from pipeline.data.tokenizers.document_encoder import TextEncoder
from pipeline.data.tokenizers.folders import read_vocabulary
from tests.pipeline.data.tokenizers.conftest import AWKWARD, documents, encode
from tests.pipeline.data.tokenizers.test_word_engine import same

ALBERT = {
    "pad_id": 0, "unk_id": 1, "bos_id": -1, "eos_id": -1,
    "control_symbols": "[CLS],[SEP],[MASK]",
    "user_defined_symbols": "(,),-,.,–,£,€",
}  # fmt: skip
"""As in 30k-clean.model."""


def trained(folder: Path, texts: list[str], **options: Any) -> Path:
    sentencepiece = pytest.importorskip("sentencepiece")
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts), model_prefix=str(folder / "spiece"), minloglevel=2,
        num_threads=1, **({"vocab_size": 700, "model_type": "unigram"} | ALBERT | options),
    )  # fmt: skip
    return folder / "spiece.model"


@pytest.fixture(scope="module")
def lines(sample_text: list[str]) -> list[str]:
    return [line[:300].lower() for text in sample_text[:20] for line in text.split("\n")]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, lines: list[str]) -> Path:
    return trained(tmp_path_factory.mktemp("albert"), lines)


def test_ids_are_those_of_sentencepiece(model: Path, sample_text: list[str]) -> None:
    """By both engines, after what ALBERT's own code does to text, with its table of characters."""
    import sentencepiece

    reference = sentencepiece.SentencePieceProcessor(model_file=str(model))
    vocabulary = read_vocabulary(model.parent)
    assert (vocabulary.kind, vocabulary.size, vocabulary.lower_case) == ("unigram", 700, True)
    special = [vocabulary.pad, vocabulary.unk, vocabulary.bos, vocabulary.eos, vocabulary.mask]
    assert special == [0, 1, 2, 3, 4]
    encoders = [TextEncoder.create(vocabulary, fast=fast) for fast in (True, False)]
    for text in [*sentencepiece_model.PROBE, *AWKWARD, *(text[:2000] for text in sample_text[:10])]:
        clean = " ".join(text.replace(",", "").split())
        expected = reference.encode(sentencepiece_model.albert_text(clean, True))
        for encoder in encoders:
            assert documents(encode(encoder, [clean])) == [expected], text
    same(encoders[0], sample_text[:30])


def test_user_defined_symbols_are_taken_wherever_they_stand(
    tmp_path: Path, lines: list[str]
) -> None:
    import sentencepiece

    path = trained(tmp_path, lines, user_defined_symbols="<url>,methylation,(,),-,.,–,£,€")
    reference = sentencepiece.SentencePieceProcessor(model_file=str(path))
    encoder = TextEncoder.create(read_vocabulary(path), fast=True)
    for text in ("see <url>.", "the<url>house", "demethylations of <url><url>", "a methylation"):
        (found,) = documents(encode(encoder, [text]))
        assert found == reference.encode(text)
        assert {reference.piece_to_id(name) for name in ("<url>", "methylation")} & {*found}


def test_a_digit_and_a_comma_are_apart(tmp_path: Path) -> None:
    """ALBERT's code splits such a piece after SentencePiece, transformers' converter too."""
    texts = [f"in {year}9, or 9, and 9 x{year}9," for year in range(100, 180)] * 5
    together = {"split_by_unicode_script": False, "split_by_number": False}
    model = trained(tmp_path, texts, vocab_size=60, hard_vocab_limit=False, **together)
    tokenizer = Tokenizer.from_str(read_vocabulary(model).tokenizer_json)
    pieces = tokenizer.get_vocab()
    assert "1229," in pieces
    found = tokenizer.encode("in 1229, or 9, x", add_special_tokens=False).tokens
    assert found.count(",") == 2 and not any(piece.endswith("9,") for piece in found)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model_type": "bpe"}, "is not a unigram model"),
        ({"control_symbols": "[CLS],[SEP]"}, r"lacks \[MASK\]"),
        ({"add_dummy_prefix": False}, "gives other ids than sentencepiece"),
    ],
)
def test_other_models_are_refused(
    options: dict[str, Any], message: str, lines: list[str], tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=message):
        read_vocabulary(trained(tmp_path, lines[:200], vocab_size=300, **options))


def test_what_is_no_model(tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.model"
    for content in (b"", b"text", model.read_bytes()[:1000]):
        path.write_bytes(content)
        with pytest.raises(DataError):
            read_vocabulary(path)
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    with pytest.raises(DataError, match=r"sentencepiece package: pip install"):
        read_vocabulary(path)
