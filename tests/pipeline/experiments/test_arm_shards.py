"""One directory for a format; what is held out is the same in all formats."""

from __future__ import annotations

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
from pipeline.experiments.arm_shards import (
    directories,
    held_out,
    prepare_shards,
    why_not_scored,
)
from pipeline.experiments.arms import arms_from_arguments
from pipeline.experiments.children import Children
from tests.launching.process import quick_python
from tests.pipeline.experiments.small_ablation import write_corpus

ARMS = [
    ("base", []),
    ("faster", ["optimizer.peak_lr=0.1", "data.order=blocks"]),
    ("static", ["data.mask_mode=static", "data.duplicates=1"]),
    ("whole-words", ["data.masking=whole_word"]),
    ("short", ["data.sequence_length=16"]),
    ("two-lengths", ['phases=[{"steps": 9, "sequence_length": 16, "sequences": 9}]']),
]


@pytest.fixture
def ablation(tmp_path: Path, sample_text: list[str], tiny_tokenizer: Path) -> Ablation:
    table = arms_from_arguments("roberta_tiny", ARMS)
    corpus = write_corpus(tmp_path / "text.jsonl", sample_text, 60)
    inputs = ("--corpus", "mine", "--input", str(corpus), "--tokenizer", str(tiny_tokenizer))
    return Ablation(
        table=table, arms=make_arms(table, [], 0), seeds=2, tune=False, grammar=None,
        inputs=inputs, output=tmp_path / "out",
    )  # fmt: skip


def held_out_documents(directory: Path) -> set[str]:
    rows = pq.read_table(directory / DOCUMENTS).to_pylist()
    return {row["id"] for row in rows if row["first_sequence"] >> 32 & 1}


def test_formats_are_prepared_once_and_hold_out_the_same(
    ablation: Ablation, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "executable", str(quick_python()))
    base, faster, static, words, short, two = ablation.arms
    for arm in ablation.arms:
        prepare_shards(ablation, arm, Children())
    assert capsys.readouterr().out.count("preparing ") == 4
    assert held_out(ablation, faster) == held_out(ablation, base)
    assert directories(ablation, two) == [held_out(ablation, short), held_out(ablation, base)]
    manifests = {arm.name: read_manifest(held_out(ablation, arm)) for arm in ablation.arms}
    keys = {name: held_out_key(manifest, 0.0) for name, manifest in manifests.items()}
    assert keys["static"] == keys["base"] != keys["whole-words"]  # its only mask is the first
    assert held_out_key(manifests["static"], 0.3) == held_out_key(manifests["base"], 0.3)
    assert held_out_key(manifests["base"], 0.3) != keys["base"]
    documents = {arm.name: held_out_documents(held_out(ablation, arm)) for arm in ablation.arms}
    assert documents["base"] and all(found == documents["base"] for found in documents.values())
    assert not any(why_not_scored(ablation, arm, base) for arm in (static, words))
    few = replace(short, run=override(short.run, ["encoder.positions=16"]))
    assert why_not_scored(ablation, few, static) == (
        "fewer positions than static's sequences have tokens"
    )
    path = held_out(ablation, words) / MANIFEST
    other = path.read_text().replace(manifests["base"].tokenizer["sha256"], "0" * 64)
    path.write_text(other)
    assert why_not_scored(ablation, words, base) == "another tokenizer than the baseline's"


def test_all_formats_are_prepared_from_the_same_text(
    ablation: Ablation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(quick_python()))
    base, words = ablation.arms[0], ablation.arms[3]
    prepare_shards(ablation, base, Children())
    corpus = Path(ablation.inputs[3])
    corpus.write_text(corpus.read_text().replace("the", "teh"))
    with pytest.raises(DataError, match=r"was prepared from other text than .*; remove it and the"):
        prepare_shards(ablation, words, Children())
