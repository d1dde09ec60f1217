"""Evaluation files of each shape give the runs of words of their texts."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from pipeline.data.cleaning import clean
from pipeline.data.contamination import RUN_WORDS, Evaluation
from pipeline.data.shingles import have_run, runs
from pipeline.errors import DataError

FIRST = "The quick brown fox jumps over the lazy dog and then it sleeps until next morning"
SECOND = "Which of these animals, asked Mr. O'Neill, was it that slept all day in the barn?"


def known(evaluation: Evaluation, *texts: str) -> list[bool]:
    text = clean([*texts])
    return have_run(text.buffer, text.offsets, RUN_WORDS, evaluation.table).tolist()


def squad(first: str, second: str) -> str:
    question = {"question": second, "id": "1", "answers": [{"text": "dog", "answer_start": 1}]}
    data = [{"title": "Dogs", "paragraphs": [{"context": first, "qas": [question]}]}]
    return json.dumps({"version": "v2.0", "data": data}, indent=1)


SHAPES = {
    "dev-v2.0.json": squad(FIRST, SECOND),
    "dev.tsv": f"index\tsentence1\tsentence2\tlabel\n7\t{FIRST}\t{SECOND}\t1\n",
    "dev.jsonl": f"{json.dumps({'premise': FIRST})}\n{json.dumps({'a': [SECOND], 'label': 1})}\n",
    "notes.txt": f"[1] {FIRST}\n\n{SECOND}\n",
}


@pytest.mark.parametrize("name", SHAPES)
def test_each_shape(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + SHAPES[name].encode())
    found = Evaluation.read([str(tmp_path / name)])
    held = known(
        found,
        f"He wrote: “{FIRST.upper()}”",
        " ".join(FIRST.split()[:13]),
        " ".join(FIRST.split()[:12]) + " soon",
        "said to no one: " + SECOND.replace(" ", "\n"),
        "nothing of the sort " * 20,
    )
    assert held == [True, True, False, True, False]
    (tmp_path / f"{name}.gz").write_bytes(gzip.compress(SHAPES[name].encode()))
    assert Evaluation.read([str(tmp_path / f"{name}.gz")]).mark == found.mark


def test_several_files_and_their_directory(tmp_path: Path) -> None:
    for task, text in (("RTE", FIRST), ("MRPC", SECOND)):
        (tmp_path / task).mkdir()
        (tmp_path / task / "dev.tsv").write_text(text)
    both = Evaluation.read([str(tmp_path)])
    assert Evaluation.read([str(tmp_path / task / "dev.tsv") for task in ("RTE", "MRPC")]).mark == (
        both.mark
    )
    assert known(both, FIRST, SECOND) == [True, True]
    text = clean([FIRST, SECOND])
    expected = np.unique(runs(text.buffer, text.offsets, RUN_WORDS))
    assert sorted(set(both.table.tolist()) - {0}) == expected.tolist()


def test_no_files_are_nothing() -> None:
    assert Evaluation.read([]).mark == "" and not len(Evaluation.read([]).table)


def test_files_that_tell_nothing(tmp_path: Path) -> None:
    (tmp_path / "short.txt").write_text("only a few words")
    with pytest.raises(DataError, match="no text of 13 words in 1 file"):
        Evaluation.read([str(tmp_path / "short.txt")])
    with pytest.raises(DataError, match="does not exist"):
        Evaluation.read([str(tmp_path / "none.txt")])
