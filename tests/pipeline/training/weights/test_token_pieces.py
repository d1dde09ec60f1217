from pathlib import Path

import pytest
from tokenizers import Tokenizer, pre_tokenizers

from pipeline.data.tokenizers.folders import read_vocabulary
from pipeline.data.tokenizers.vocabulary import Vocabulary
from pipeline.training.weights.token_pieces import BYTES, LETTERS, pieces_of_tokens

MARKS = {"wordpiece": "{}", "unigram": "\u2581{}", "byte-bpe": "\u0120{}"}


def test_bytes_are_written_as_byte_level_bpe_writes_them() -> None:
    assert set(LETTERS.values()) == set(pre_tokenizers.ByteLevel.alphabet())
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    for text in ("a b", "\u00e9\n", "\U0001f600\u4e2d"):
        ((written, _),) = level.pre_tokenize_str(text)
        assert bytes(BYTES[letter] for letter in written) == text.encode()


@pytest.fixture(scope="module")
def vocabularies(
    word_vocabularies: dict[str, Vocabulary], tiny_tokenizer: Path
) -> dict[str, Vocabulary]:
    return word_vocabularies | {"byte-bpe": read_vocabulary(tiny_tokenizer)}


@pytest.mark.parametrize("theirs", ["wordpiece", "wordpiece-uncased", "unigram", "byte-bpe"])
@pytest.mark.parametrize("ours", ["wordpiece", "unigram", "byte-bpe"])
def test_a_word_has_the_pieces_that_its_tokenizer_gives_it(
    vocabularies: dict[str, Vocabulary], ours: str, theirs: str
) -> None:
    """Across kinds: words as text, so the tokenizers themselves are the reference."""
    words = ["walking", "unhappiness", "The", "zebra", "caf\u00e9"]
    tokens = {index: MARKS[ours].format(word) for index, word in enumerate(words)}
    if ours == "byte-bpe":
        tokens[4] = "\u0120caf\u00c3\u00a9"
    found = pieces_of_tokens(vocabularies[ours], tokens, vocabularies[theirs])
    reference = Tokenizer.from_str(vocabularies[theirs].text_json())
    for index, word in enumerate(words):
        text = f" {word}" if theirs == "byte-bpe" else word
        expected = reference.encode(text, add_special_tokens=False).ids
        if vocabularies[theirs].unk not in expected:
            assert found[index] == expected, (word, found[index], expected)


def test_the_inside_of_a_word_has_no_first_pieces(vocabularies: dict[str, Vocabulary]) -> None:
    ours, theirs = vocabularies["byte-bpe"], vocabularies["wordpiece"]
    ids = Tokenizer.from_str(theirs.tokenizer_json).get_vocab()
    names = {index: token for token, index in ids.items()}
    found = pieces_of_tokens(ours, {0: "ington", 1: "\u0120ington", 2: "\u00c3"}, theirs)
    assert "".join(names[each].removeprefix("##") for each in found[0]) == "ington"
    assert all(names[each].startswith("##") for each in found[0])
    assert not names[found[1][0]].startswith("##")
    assert 2 not in found  # half of a letter
    back = {0: "##ington", 1: "ington", 2: "\u4e2d"}
    again = pieces_of_tokens(theirs, back, ours)
    letters = {index: token for token, index in
               Tokenizer.from_str(ours.tokenizer_json).get_vocab().items()}  # fmt: skip
    assert "".join(letters[each] for each in again[0]) == "ington"
    assert "".join(letters[each] for each in again[1]) == "\u0120ington"
    assert len(again[2]) == 4  # the space and three bytes, or fewer pieces of them


def test_a_letter_that_they_lack_is_skipped(vocabularies: dict[str, Vocabulary]) -> None:
    theirs = vocabularies["unigram"]
    known, mixed = pieces_of_tokens(
        vocabularies["wordpiece"], {0: "a", 1: "a\u4e2d"}, theirs
    ).values()
    assert mixed == known and theirs.unk not in mixed
