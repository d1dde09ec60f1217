import zipfile
from pathlib import Path

import pytest

from pipeline.base.errors import DataError
from pipeline.evaluation.zero_shot import grammar_pairs
from pipeline.evaluation.zero_shot.grammar_pairs import Completion, Paradigm, read_paradigms

BLIMP = (
    '{"sentence_good": "Cats sleep.", "sentence_bad": "Cats sleeps.", "UID": "regular_plural", '
    '"linguistics_term": "agreement"}\n'
)
ZORRO = "the cats sleeps .\nthe cats sleep .\nthe dog run .\nthe dog runs .\n"


def sides(*texts: str) -> tuple[Completion, ...]:
    return tuple(map(Completion, texts))


AGREEMENT = Paradigm("regular_plural", "agreement", (sides("Cats sleep.", "Cats sleeps."),))
SLEEP = Paradigm(
    "island-effects-adjunct", "island-effects",
    (sides("the cats sleep .", "the cats sleeps ."), sides("the dog runs .", "the dog run .")),
)  # fmt: skip


def test_published_forms_are_read_and_other_files_skipped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "island-effects-adjunct.txt").write_text(ZORRO)
    (tmp_path / "LICENSE").write_text("MIT")
    (tmp_path / "readme.txt").write_text("Two\nlines\n")
    (tmp_path / "scores.csv").write_text("1,2,3")
    (tmp_path / "_old-island-effects-adjunct.txt").write_text(ZORRO)
    with zipfile.ZipFile(tmp_path / "BLiMP.zip", "w") as archive:
        archive.writestr("data/plural.jsonl", BLIMP)
        archive.writestr("__MACOSX/data/plural.jsonl", "junk")
        archive.writestr("README.md", "junk")
    assert read_paradigms(tmp_path) == [SLEEP, AGREEMENT]
    assert " 5 file(s) and folder(s) are skipped by their names" in capsys.readouterr().out
    assert read_paradigms(tmp_path / "BLiMP.zip") == [AGREEMENT]
    assert read_paradigms(tmp_path / "island-effects-adjunct.txt") == [SLEEP]


def test_what_is_malformed_is_named(tmp_path: Path) -> None:
    for name, content, message in (
        ("a-b.txt", b"one\ntwo\nthree\n", "a-b.txt has 3 lines"),
        ("a-b.txt", b"one\n\nthree\nfour\n", "a-b.txt:2: .*empty"),
        ("a-b.txt", b"", "a-b.txt is empty"),
        ("a-b.txt", b"\xff\xfeo", "a-b.txt is not UTF-8"),
        ("a.jsonl", b"{}\n", "a.jsonl:1: sentence_good"),
        ("a.jsonl", BLIMP.encode() + b"[]\n", "a.jsonl:2: .* list"),
        ("a.jsonl", BLIMP.replace("Cats sleeps.", " ").encode(), "a.jsonl:1: sentence_bad"),
        ("a.zip", b"PK", "a.zip is"),
        ("a.csv", b"1", "expected .txt"),
        ("a.jsonl", BLIMP.replace('"regular_plural"', "null").encode(), "a.jsonl:1: UID is None"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(DataError, match=message):
            read_paradigms(tmp_path)
        (tmp_path / name).unlink()


def test_a_file_may_have_several_paradigms_and_a_sample_is_spread_over_it(tmp_path: Path) -> None:
    """And its name does not matter if it is given by itself; only a newline ends a sentence."""
    other = BLIMP.replace("regular_plural", "passive").replace("agreement", "voice")
    (tmp_path / "all.jsonl").write_text(BLIMP + other.replace("sleep.", "sleep\u2028.") + BLIMP)
    passive = Paradigm("passive", "voice", (sides("Cats sleep\u2028.", "Cats sleeps."),))
    twice = Paradigm("regular_plural", "agreement", AGREEMENT.pairs * 2)
    assert read_paradigms(tmp_path) == [passive, twice]
    (tmp_path / "mine.txt").write_text("a\x0cb\nc\n")
    assert read_paradigms(tmp_path / "mine.txt") == [
        Paradigm("mine", "mine", (sides("c", "a\x0cb"),))
    ]
    pairs = tuple(sides(f"good {index}", f"bad {index}") for index in range(10))
    paradigm = Paradigm("x", "y", pairs)
    assert paradigm.sample(4).pairs == (pairs[0], pairs[2], pairs[5], pairs[7])
    assert paradigm.sample(10) == paradigm.sample(99) == paradigm


def test_missing_doubled_and_huge_files_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(DataError, match="none: no such"):
        read_paradigms(tmp_path / "none")
    for name in ("a.jsonl", "b.jsonl"):
        (tmp_path / name).write_text(BLIMP)
    with pytest.raises(DataError, match="'regular_plural' appears twice"):
        read_paradigms(tmp_path)
    monkeypatch.setattr(grammar_pairs, "MOST_BYTES", 10)
    with pytest.raises(DataError, match="split it"):
        read_paradigms(tmp_path)
