"""Terms of text by their rules, and what is counted of them."""

import itertools

from pipeline.data.selection.terms import HAS_LETTER, IS_SYMBOL, Terms, find_terms, hash_term
from tests.pipeline.data.selection.conftest import arrays


def split(*texts: str) -> tuple[list[str], Terms]:
    buffer, offsets = arrays(texts)
    terms = find_terms(buffer, offsets)
    view = buffer.tobytes()
    return [view[start:stop].decode() for start, stop in terms.spans.tolist()], terms


def test_terms() -> None:
    for text, terms in (
        ("It rains, again.", "It rains , again ."),
        ("don't, he’s, 'tis, boys'", "don 't , he ’s , ' tis , boys '"),
        ("well-known COVID-19 1990-2000", "well - known COVID-19 1990 - 2000"),
        ("3.5% of 1,000 at 10:30, 3/4", "3.5 % of 1,000 at 10:30 , 3/4"),
        ("J. Smith of the U.S. said", "J. Smith of the U.S. said"),
        ("the end.Next e.g. NATO.", "the end . Next e.g . NATO ."),
        ("a...b -- c", "a ... b -- c"),
        ("see https://x.org/a-b?c now", "see https://x.org/a-b?c now"),
        ("a_b@c.org AT&T and/or", "a_b@c.org AT&T and / or"),
        ("$5 (yes) #tag ##", "$ 5 ( yes ) # tag # #"),
        ("漢字かな นี้ x", "漢 字 か な นี้ x"),
        ("क्षि café", "क्षि café"),
        ("نمی\u200cخواهم", "نمی\u200cخواهم"),
    ):
        assert split(text)[0] == terms.split(" ")


def test_flags_lengths_and_hashes() -> None:
    words, terms = split("Don't 3.5 ... €é", "…")
    assert words == ["Don", "'t", "3.5", "...", "€", "é", "…"]
    assert terms.bounds.tolist() == [0, 6, 7]
    assert terms.lengths.tolist() == [3, 2, 3, 3, 1, 1, 1]
    assert [bool(flag & HAS_LETTER) for flag in terms.flags] == [1, 1, 0, 0, 0, 1, 0]
    assert [bool(flag & IS_SYMBOL) for flag in terms.flags] == [0, 0, 0, 1, 0, 0, 1]
    assert terms.hashes.tolist() == [hash_term(word) for word in words]
    assert hash_term("The") != hash_term("the")
    assert terms.add_up(terms.lengths).tolist() == [13, 1]


def test_documents_do_not_depend_on_each_other() -> None:
    texts = ["One 'two", "3", "https://a b", "x-", "é…", "J."] * 3
    alone = [split(text)[0] for text in texts]
    words, terms = split(*texts)
    assert [words[start:stop] for start, stop in itertools.pairwise(terms.bounds)] == alone
