"""Rows equal those of transformers' tokenizers; windows show every token."""

from pathlib import Path

import pytest
from transformers import AutoTokenizer

from pipeline.data.tokenizers.folders import copy_for_transformers, read_vocabulary
from pipeline.downstream.features import (
    RowEncoder,
    answer_tokens,
    most_context,
    token_offsets,
    window_starts,
)
from pipeline.downstream.reading.examples import Answer, Example
from pipeline.downstream.reading.published import read_squad
from tests.pipeline.downstream.small_work import EXPORTS, every_family

A, B = "The cats sat, on Washington's mat.", "Where? É  on the mat"


def encoder(family: str, length: int = 200) -> RowEncoder:
    return RowEncoder(read_vocabulary(EXPORTS / family), length)


@every_family
def test_rows_equal_transformers(family: str) -> None:
    theirs = AutoTokenizer.from_pretrained(EXPORTS / family, add_prefix_space=False)
    examples = [Example("0", (A, B), "x"), Example("1", (B, A), "y")]
    one, two = encoder(family).encode(examples, "classification", ("x", "y"))
    expected = theirs(A, B, return_token_type_ids=True)
    assert one.rows[0].ids == expected["input_ids"]
    assert (one.targets, two.targets) == ((0,), (1,))
    if family not in ("roberta", "modernbert"):  # which have no segments
        types = [int(place >= one.rows[0].second) for place in range(len(one.rows[0].ids))]
        assert types == expected["token_type_ids"]
    alone = Example("0", (A,), None)
    (single,) = encoder(family).encode([alone], "classification", ())
    assert single.rows[0].ids == theirs(A)["input_ids"] and single.targets == ()
    assert single.rows[0].second == len(single.rows[0].ids)


@every_family
def test_words_equal_transformers(family: str, tmp_path: Path) -> None:
    words = ("The", "cat", "sat", "on", "Washington", "'s", "mat", "\u200d", ".")
    copy_for_transformers(EXPORTS / family, tmp_path, encoder(family).vocabulary)
    theirs = AutoTokenizer.from_pretrained(tmp_path, add_prefix_space=True)
    expected = theirs(list(words), is_split_into_words=True)
    tags = tuple("abcdefghi")
    rows = encoder(family)
    (feature,) = rows.encode([Example("0", words, tags)], "tags", tags)
    assert feature.rows[0].ids == expected["input_ids"]
    numbers = expected.word_ids()
    firsts = [place for place, word in enumerate(numbers)
              if word is not None and word != numbers[place - 1]]  # fmt: skip
    assert feature.rows[0].places == firsts
    found = tuple(numbers[place] for place in firsts)
    assert feature.words == found == tuple(map(int, feature.targets))
    assert rows.lost.words == len(words) - len(firsts)
    (short,) = encoder(family, 6).encode([Example("0", words, tags)], "tags", tags)
    assert len(short.rows[0].ids) == 6 and max(short.rows[0].places) < 5


def test_the_longer_text_is_cut_and_an_example_counted_once() -> None:
    """As google-research/bert's _truncate_seq_pair, one token at a time."""
    for space in range(4, 30):
        rows = encoder("bert", space + 3)
        left, right = rows.ids([A, B])
        (feature,) = rows.encode([Example("0", (A, B), None)], "classification", ())
        too_long = len(left) + len(right) > space
        while len(left) + len(right) > space:
            (left if len(left) > len(right) else right).pop()
        v = rows.vocabulary
        assert feature.rows[0].ids == [v.bos, *left, v.eos, *right, v.eos]
        assert rows.lost.texts == too_long
    rows = encoder("bert", 32)
    choices = Example("0", (" ".join(["word"] * 40), "a", "b", "c", "d"), "1")
    (feature,) = rows.encode([choices], "choices", ())
    assert len(feature.rows) == 4 and feature.targets == (1,)
    assert rows.lost.describe() == {"texts": 1, "answers": 0, "words": 0}


def test_windows_cover_a_paragraph() -> None:
    assert window_starts(10, 10, 3) == [0]
    assert window_starts(11, 10, 3) == [0, 3]
    for tokens in range(1, 60):
        starts = window_starts(tokens, 10, 3)
        shown = [most_context(starts, number, tokens, 10) for number in range(len(starts))]
        best = [start + place for start, part in zip(starts, shown)
                for place in range(len(part)) if part[place]]  # fmt: skip
        assert sorted(best) == list(range(tokens))  # one window for each


@pytest.mark.parametrize(("length", "stride"), [(32, 10), (390, 128)])
@every_family
def test_windows_equal_transformers(family: str, length: int, stride: int) -> None:
    """Their stride is what two windows share, ours how far apart they start: a third of a row, at
    most 128 tokens."""
    theirs = AutoTokenizer.from_pretrained(EXPORTS / family, add_prefix_space=False)
    rows = encoder(family, length)
    space = length - len(theirs("q", "a")["input_ids"]) + 1
    for tokens in (*range(space - 4, space + 5), 5 * length):
        paragraph = " ".join("ab"[place % 2] for place in range(tokens))
        features = rows.encode([Example("0", ("q", paragraph), ())], "spans", ())
        expected = theirs(
            "q", paragraph, truncation="only_second", max_length=length, stride=space - stride,
            return_overflowing_tokens=True,
        )  # fmt: skip
        assert [feature.rows[0].ids for feature in features] == expected["input_ids"]


def test_answers_beyond_every_window_are_counted() -> None:
    paragraph = " ".join(["word"] * 200)
    rows = encoder("bert", 32)
    gold = (Answer(paragraph[:600], 0),)
    features = rows.encode([Example("0", ("who", paragraph), gold)], "spans", ())
    assert (rows.lost.answers, rows.lost.texts) == (1, 0)  # other windows have the rest
    assert {feature.targets for feature in features} == {(0, 0)} and len(features) > 10
    assert max(len(feature.rows[0].ids) for feature in features) == 32
    features = rows.encode([Example("0", ("who", paragraph), ())], "spans", ())
    assert rows.lost.answers == 1
    rows.encode([Example("0", (paragraph, "word"), ())], "spans", ())  # a question's rest is lost
    assert (rows.lost.answers, rows.lost.texts) == (1, 1)
    (long,) = encoder("bert").encode([Example("0", (paragraph, "word"), ())], "spans", ())
    assert long.rows[0].second == 64 + 2  # run_squad.py, max_query_length


@every_family
def test_offsets_are_those_of_the_text(family: str) -> None:
    """An accent that is a character of its own stays with its letter."""
    rows = encoder(family)
    text = "a cafe\u0301, e\u0301lan"
    (feature,) = rows.encode([Example("0", ("q", text), (Answer("cafe\u0301", 2),))], "spans", ())
    assert feature.window is not None
    first, last = (int(place) - feature.window.first for place in feature.targets)
    offsets = feature.window.offsets
    assert text[offsets[first][0] : offsets[last][1]] == "cafe\u0301"
    text = "A café — 東京\u3000costs £5,  right?"
    offsets = token_offsets(text, rows.tokenizer.encode(text, add_special_tokens=False))
    found = answer_tokens(Example("0", ("q", text), (Answer("café", 2),)), offsets)
    assert found is not None
    assert text[offsets[found[0]][0] : offsets[found[1]][1]] == "café"
    assert answer_tokens(Example("0", ("q", text), ()), offsets) is None


@pytest.mark.parametrize(
    ("name", "inside"), [("bert/bert-base-cased-vocab.txt", 1), ("gpt2", 13), ("albert", 73)]
)
def test_spans_are_exact_on_real_questions(real_data: Path, name: str, inside: int) -> None:
    """The characters of the gold tokens are the answer, unless it starts or ends inside a token.

    inside: answers that do, which no two tokens can give: the answer `highways` where the tokens
    are `highway` and `s.`, `2,70` of 2,700. They get the fewest tokens that hold them.
    """
    path = EXPORTS / name if name == "albert" else real_data / "tokenizers" / name
    rows = RowEncoder(read_vocabulary(path), 384)
    examples = read_squad(real_data / "eval/XQuAD/xquad.en.json")
    assert len(examples) == 1190
    exact, wider = set(), set()
    for feature in rows.encode(examples, "spans", ()):
        first, last = map(int, feature.targets)
        if (first, last) == (0, 0):
            continue
        example, window = examples[feature.example], feature.window
        assert window is not None and isinstance(example.gold, tuple)
        answer = example.gold[0]
        assert isinstance(answer, Answer) and answer.text == answer.text.strip()
        end = answer.start + len(answer.text)
        (a, b), (c, d) = (window.offsets[place - window.first] for place in (first, last))
        assert a <= answer.start < b and c < end <= d
        if (a, d) == (answer.start, end):
            exact.add(feature.example)
            assert example.texts[1][a:d] == answer.text
        else:
            wider.add(feature.example)
    assert rows.lost.answers == 0
    assert (len(exact), len(wider), len(exact & wider)) == (1190 - inside, inside, 0)
