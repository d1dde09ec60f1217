"""The rules of C4, one by one."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.data.text.cleaning import clean
from pipeline.data.text.line_rules import KeptLines, keep_lines

FIVE = "One is here. Two is here. Three is here. Four is here! Is five here?"


def apply(*texts: str) -> KeptLines:
    return keep_lines(clean([*texts]), np.ones(len(texts), np.bool_))


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("This line has no end mark", "lines without an end mark"),
        ("This line goes on...", "lines without an end mark"),
        ("Two words.", "lines under 3 words"),
        ("Please turn on JavaScript now.", "lines with JavaScript"),
        ("Read the Privacy Policy here.", "lines about policies"),
        (f"It is {'x' * 1001}.", "lines with a word over 1,000 letters"),
    ],
)
def test_a_line_is_cut(line: str, reason: str) -> None:
    made = apply(f"{line}\n{FIVE}", FIVE)
    assert made.text.texts() == [FIVE, FIVE] and made.dropped == {}
    assert made.cut == {f"c4: {reason}": len(line) + 1}


@pytest.mark.parametrize("line", ["He said 'no way.'", 'He said "no way."', f"A {'x' * 999} b."])
def test_a_line_is_kept(line: str) -> None:
    made = apply(f"{FIVE}\n{line}")
    assert made.text.texts() == [f"{FIVE}\n{line}"] and not made.cut


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"{FIVE}\nLorem ipsum is here.", "lorem ipsum"),
        (f"{FIVE}\nA function f() {{ is here.", "curly bracket"),
        (FIVE.replace("One is here. ", ""), "under 5 sentences"),
        (
            f"{FIVE[:30]}\nThis line has no end. It is cut. So is this\nand this.",
            "under 5 sentences",
        ),
    ],
)
def test_a_document_is_dropped(text: str, reason: str) -> None:
    made = apply(FIVE, text, FIVE)
    assert (made.dropped == {1: f"c4: {reason}"} and not made.cut) or reason == "under 5 sentences"


def test_a_bracket_in_a_line_that_is_cut_drops_nothing() -> None:
    made = apply(f"function f() {{\nlorem ipsum\n{FIVE}")
    assert made.dropped == {} and made.text.texts() == [FIVE]


def test_citation_marks_are_removed() -> None:
    made = apply(f"The fact[1] is[edit] known [citation needed] here.[22]\n{FIVE}")
    assert made.text.texts() == [f"The fact is known here.\n{FIVE}"]


def test_only_chosen_documents() -> None:
    text = clean(["No end", "No end either", FIVE])
    made = keep_lines(text, np.array([False, True, True]))
    assert made.dropped == {1: "c4: under 5 sentences"}
    assert [made.text.document(index) for index in (0, 2)] == ["No end", FIVE]
