"""The rules of C4, one by one."""

import numpy as np

from pipeline.data.text.cleaning import clean
from pipeline.data.text.line_rules import KeptLines, keep_lines

FIVE = "One is here. Two is here. Three is here. Four is here! Is five here?"


def apply(*texts: str) -> KeptLines:
    return keep_lines(clean([*texts]), np.ones(len(texts), np.bool_))


def test_lines_that_are_cut_and_kept() -> None:
    for line, reason in (
        ("This line has no end mark", "lines without an end mark"),
        ("This line goes on...", "lines without an end mark"),
        ("Two words.", "lines under 3 words"),
        ("Please turn on JavaScript now.", "lines with JavaScript"),
        ("Read the Privacy Policy here.", "lines about policies"),
        (f"It is {'x' * 1001}.", "lines with a word over 1,000 letters"),
    ):
        made = apply(f"{line}\n{FIVE}", FIVE)
        assert made.text.texts() == [FIVE, FIVE] and made.dropped == {}, line
        assert made.cut == {f"c4: {reason}": len(line) + 1}
    for line in ("He said 'no way.'", 'He said "no way."', f"A {'x' * 999} b."):
        made = apply(f"{FIVE}\n{line}")
        assert made.text.texts() == [f"{FIVE}\n{line}"] and not made.cut, line
    # a bracket in a line that is cut drops nothing, citation marks are removed
    made = apply(f"function f() {{\nlorem ipsum\n{FIVE}")
    assert made.dropped == {} and made.text.texts() == [FIVE]
    made = apply(f"The fact[1] is[edit] known [citation needed] here.[22]\n{FIVE}")
    assert made.text.texts() == [f"The fact is known here.\n{FIVE}"]


def test_documents_that_are_dropped() -> None:
    """Of those that are chosen."""
    cut = f"{FIVE[:30]}\nThis line has no end. It is cut. So is this\nand this."
    for text, reason in (
        (f"{FIVE}\nLorem ipsum is here.", "lorem ipsum"),
        (f"{FIVE}\nA function f() {{ is here.", "curly bracket"),
        (FIVE.replace("One is here. ", ""), "under 5 sentences"),
        (cut, "under 5 sentences"),
    ):
        made = apply(FIVE, text, FIVE)
        assert made.dropped == {1: f"c4: {reason}"}, text
        assert text == cut or not made.cut
    made = keep_lines(clean(["No end", "No end either", FIVE]), np.array([False, True, True]))
    assert made.dropped == {1: "c4: under 5 sentences"}
    assert [made.text.document(index) for index in (0, 2)] == ["No end", FIVE]
