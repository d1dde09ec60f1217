"""One directory for a format; what is held out is the same in all formats."""

import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pipeline.base.errors import DataError
from pipeline.config.settings import override
from pipeline.data.shards.document_index import DOCUMENTS
from pipeline.data.shards.held_out_check import held_out_key
from pipeline.data.shards.manifest import MANIFEST, read_manifest
from pipeline.experiments.ablation import Ablation, make_arms
from pipeline.experiments.arm_shards import directories, held_out, prepare_shards, why_not_scored
from pipeline.experiments.arms import arms_from_arguments
from pipeline.experiments.children import Children
from tests.launching.process import quick_python
from tests.pipeline.experiments.small_ablation import write_corpus
from tests.pipeline.experiments.test_ablation import ablation

ARMS = [
    ("base", []),
    ("faster", ["optimizer.peak_lr=0.1", "data.order=blocks"]),
    ("static", ["data.mask_mode=static", "data.duplicates=1"]),
    ("whole-words", ["data.masking=whole_word"]),
    ("short", ["data.sequence_length=16"]),
    ("two-lengths", ['phases=[{"steps": 9, "sequence_length": 16, "sequences": 9}]']),
]


@pytest.fixture
def given(
    tmp_path: Path, sample_text: list[str], tiny_tokenizer: Path, monkeypatch: pytest.MonkeyPatch
) -> Ablation:
    monkeypatch.setattr(sys, "executable", str(quick_python()))
    table = arms_from_arguments("roberta_tiny", ARMS)
    corpus = write_corpus(tmp_path / "text.jsonl", sample_text, 60)
    inputs = ("--corpus", "mine", "--input", str(corpus), "--tokenizer", str(tiny_tokenizer))
    own = ablation(tmp_path / "out")
    return replace(own, table=table, arms=make_arms(table, [], 0), inputs=inputs)


def test_formats_are_prepared_once_from_the_same_text_and_hold_out_the_same(
    given: Ablation, capsys: pytest.CaptureFixture[str]
) -> None:
    base, faster, static, words, short, two = given.arms
    for arm in given.arms:
        prepare_shards(given, arm, Children())
    assert capsys.readouterr().out.count("preparing ") == 4
    assert held_out(given, faster) == held_out(given, base)
    assert directories(given, two) == [held_out(given, short), held_out(given, base)]
    manifests = {arm.name: read_manifest(held_out(given, arm)) for arm in given.arms}
    keys = {name: held_out_key(manifest, 0.0) for name, manifest in manifests.items()}
    assert keys["static"] == keys["base"] != keys["whole-words"]  # its only mask is the first
    assert held_out_key(manifests["static"], 0.3) == held_out_key(manifests["base"], 0.3)
    assert held_out_key(manifests["base"], 0.3) != keys["base"]
    documents = []
    for arm in given.arms:
        rows = pq.read_table(held_out(given, arm) / DOCUMENTS).to_pylist()
        documents.append({row["id"] for row in rows if row["first_sequence"] >> 32 & 1})
    assert documents[0] and all(found == documents[0] for found in documents)
    assert not any(why_not_scored(given, arm, base) for arm in (static, words))
    few = replace(short, run=override(short.run, ["encoder.positions=16"]))
    assert why_not_scored(given, few, static).startswith("fewer positions than static's")
    path = held_out(given, words) / MANIFEST
    other = path.read_text().replace(manifests["base"].tokenizer["sha256"], "0" * 64)
    path.write_text(other)
    assert why_not_scored(given, words, base) == "another tokenizer than the baseline's"
    shutil.rmtree(path.parent)
    corpus = Path(given.inputs[3])
    corpus.write_text(corpus.read_text().replace("the", "teh"))
    with pytest.raises(DataError, match="other text"):
        prepare_shards(given, words, Children())
