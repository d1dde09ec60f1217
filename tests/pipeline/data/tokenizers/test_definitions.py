"""tokenizer.json of each kind: what it does to a text, by hand."""

import pytest
from tokenizers import Tokenizer

from pipeline.data.tokenizers import definitions
from pipeline.data.tokenizers.definitions import BYTE_BPE, SPECIALS, UNIGRAM, WORDPIECE


def tokenizer(kind: str, lower_case: bool = False) -> Tokenizer:
    names = [*SPECIALS[kind].values()]
    if kind == UNIGRAM:
        scores = [(name, -float(i)) for i, name in enumerate([*names, "▁", "▁a", "b", "▁ab"])]
        return Tokenizer.from_str(definitions.unigram_json(scores, lower_case=lower_case))
    names += ["a", "##b", "##a", ",", "中"] if kind == WORDPIECE else ["a", "b", "ab", "Ġ", "Ġa"]
    ids = {name: number for number, name in enumerate(names)}
    if kind == WORDPIECE:
        return Tokenizer.from_str(definitions.wordpiece_json(ids, lower_case=lower_case))
    return Tokenizer.from_str(definitions.byte_bpe_json(ids, [("a", "b"), ("Ġ", "a")]))


@pytest.mark.parametrize("kind", SPECIALS)
def test_special_tokens_have_the_first_ids_and_enclose_a_text(kind: str) -> None:
    """The mask takes the space before it, not in WordPiece; second segments are of type 1."""
    found, names = tokenizer(kind), SPECIALS[kind]
    assert [found.token_to_id(token) for token in names.values()] == [0, 1, 2, 3, 4]
    tokens = found.encode("ab").tokens
    assert (tokens[0], tokens[-1]) == (names["bos"], names["eos"])
    masked = found.encode(f"a {names['mask']}", add_special_tokens=False).tokens[-1]
    assert masked == " " * (kind != WORDPIECE) + names["mask"]
    if kind != BYTE_BPE:
        assert found.encode("a", "a").type_ids == [0, 0, 0, 1, 1]


def test_text_to_tokens() -> None:
    for kind, lower_case, text, expected in (
        (BYTE_BPE, False, "ab a", ["ab", "Ġa"]),
        (WORDPIECE, False, "aba, a", ["a", "##b", "##a", ",", "a"]),
        (WORDPIECE, False, "A", ["[UNK]"]),
        (WORDPIECE, True, "ÁB", ["a", "##b"]),
        (WORDPIECE, False, "a中a", ["a", "中", "a"]),
        (WORDPIECE, False, "a" * 101, ["[UNK]"]),
        (UNIGRAM, False, "a ab", ["▁a", "▁ab"]),
        (UNIGRAM, True, "Áb", ["▁ab"]),
    ):
        found = tokenizer(kind, lower_case).encode(text, add_special_tokens=False).tokens
        assert found == expected, (kind, text)
    # as ALBERT's normalizer
    assert definitions.unigram_normalizer(False).normalize_str("``Éﬁ''") == '"Éfi"'
    assert definitions.unigram_normalizer(True).normalize_str("``Éﬁ''") == '"efi"'
