"""One row per document: a signature, or the first reason for dropping it."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from pipeline.data.selection.clusters import EXACT, NEAR, Likeness
from pipeline.data.selection.contamination import Evaluation
from pipeline.data.selection.filters import Filters, Reasons
from pipeline.data.selection.minhash import signatures, word_hashes
from pipeline.data.selection.survey import Rules, SurveyTask, read_words, survey_stage
from pipeline.data.text.cleaning import Offsets
from pipeline.data.text.text_tasks import cut_tasks
from pipeline.execution.workers import unfinished
from pipeline.ingest.documents import time_limit
from pipeline.ingest.documents.sniff import sniff
from pipeline.kernels.bits import Bytes
from tests.pipeline.data.selection.conftest import arrays
from tests.pipeline.ingest.documents.test_time_limit import compute
from tests.pipeline.preparing import write_jsonl

EVALUATION = "a b c d e f g h i j k l m"
TEXTS = ["one two three", "one", f"so {EVALUATION} it is", "1 2 3 4 5", " ", "three two one"]


def survey(folder: Path, likeness: Likeness | None) -> tuple[Path, list[str]]:
    """The Parquet file, and the documents that are not empty."""
    (folder / "eval.txt").write_text(EVALUATION)
    path = write_jsonl(folder / "in.jsonl", TEXTS)
    [task] = cut_tasks([sniff(path, "news", path.name)])
    filters = {"news": Filters(min_words=2, min_letters=0.5)}
    rules = Rules(likeness, filters, Evaluation.read([str(folder / "eval.txt")]))
    made = SurveyTask(task, folder / "made.parquet")
    stage = survey_stage(folder, rules)
    assert unfinished(stage, [made]) == [made]
    stage.start()(made)
    assert unfinished(stage, [made]) == []
    written = made.target.stat().st_mtime_ns
    stage.start()(made)
    assert made.target.stat().st_mtime_ns == written, "the first file stays"
    return made.target, [text for text in TEXTS if text.strip()]


def test_each_document_has_a_row(tmp_path: Path) -> None:
    """With a signature, the hash of its words, or neither."""
    path, texts = survey(tmp_path, NEAR)
    rows = pq.read_table(path)
    starts = [0, 26, 42, 89, 125]
    assert rows["id"].to_pylist() == [f"in.jsonl@{start}" for start in starts]
    assert rows["dropped"].to_pylist() == [
        None, "too few words", "contaminated", "too few letters", None,
    ]  # fmt: skip
    signed = signatures(*arrays(texts))
    assert rows.column_names == ["id", "dropped", *(f"word-{word:02d}" for word in range(32))]
    words, has = read_words([path], 5, range(32))
    assert has.tolist() == [True, False, False, False, True] and (words == signed).all()
    words, _ = read_words([path, path], 10, range(3, 5))
    assert (words == np.concatenate([signed, signed])[:, 3:5]).all()
    path.unlink()
    path, _ = survey(tmp_path, EXACT)
    words, has = read_words([path], 5, range(1))
    assert np.flatnonzero(has).tolist() == [0, 4] and (words == word_hashes(*arrays(texts))).all()
    path.unlink()
    path, _ = survey(tmp_path, None)
    assert pq.read_schema(path).names == ["id", "dropped"]


def test_a_word_is_read_in_one_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches share a row group, until it has enough rows."""
    monkeypatch.setattr("pipeline.data.text.documents.BATCH_CHARACTERS", 10)
    path, texts = survey(tmp_path, NEAR)
    assert pq.read_metadata(path).num_row_groups == 1
    path.unlink()
    monkeypatch.setattr("pipeline.data.selection.survey._GROUP_ROWS", 2)
    path, _ = survey(tmp_path, NEAR)
    about = pq.read_metadata(path)
    sizes = [about.row_group(group).num_rows for group in range(about.num_row_groups)]
    assert len(sizes) > 1 and min(sizes[:-1]) >= 2 and sum(sizes) == 5
    words, _ = read_words([path], 5, range(32))
    assert (words == signatures(*arrays(texts))).all()


def test_a_document_that_is_filtered_too_long_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow_reasons(self: Filters, buffer: Bytes, offsets: Offsets) -> Reasons:
        compute(0.06 if b"1 2 3 4 5" in buffer.tobytes() else 0)
        yield "too few words", np.diff(offsets) < 5

    survey(tmp_path, NEAR)[0].unlink()  # the kernels are compiled then
    monkeypatch.setattr(Filters, "reasons", slow_reasons)
    monkeypatch.setattr(time_limit, "SECONDS", 0.05)
    path, _ = survey(tmp_path, NEAR)
    rows = pq.read_table(path)
    assert rows["dropped"].to_pylist() == [
        None, "too few words", "contaminated", "over 10 s of CPU", None,
    ]  # fmt: skip
    _, has = read_words([path], 5, range(1))
    assert np.flatnonzero(has).tolist() == [0, 4]
