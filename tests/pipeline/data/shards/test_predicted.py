"""Text without spaces is predicted like any other, and shards that predict little say so."""

import random
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline import plan, train
from pipeline.base.errors import DataError
from pipeline.data.shards.manifest import MaskFile, read_manifest
from pipeline.data.shards.predicted import describe_predicted, predicted_share
from pipeline.data.shards.row_statistics import measure_rows
from pipeline.data.tokenizers.folders import read_vocabulary, read_word_starts, save_vocabulary
from pipeline.data.tokenizers.trainers import train_vocabulary
from pipeline.data.tokenizers.vocabulary import Vocabulary
from tests.pipeline.preparing import Call, Prepare, tiny, write_jsonl

SCRIPTS = {
    "Han": "天地玄黄宇宙洪荒日月盈昃辰宿列张寒来暑往秋收冬藏",
    "Thai": "กขคงจฉชซญดตถทธนบปผพฟมยรลวศสหอาเแโไ่้ิีุ",
}


def without_spaces(script: str, documents: int = 12) -> list[str]:
    rng = random.Random(script)
    return ["".join(rng.choices(SCRIPTS[script], k=600)) for _ in range(documents)]


@pytest.fixture(scope="module")
def bytewise(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A byte-level vocabulary that has merged the first bytes of these letters, and few letters."""
    folder = tmp_path_factory.mktemp("bytewise")
    texts = [text for script in SCRIPTS for text in without_spaces(script, 2)]
    trained = train_vocabulary("byte-bpe", lambda: iter(texts), 320, lower_case=False)
    save_vocabulary(trained, folder, 128)
    return folder


@pytest.mark.parametrize(
    ("script", "masking"),
    [("Han", "whole_word"), ("Han", "ngram"), ("Thai", "span")],
)
def test_words_of_scripts_without_spaces_are_predicted(
    script: str, masking: str, run: Prepare, bytewise: Path, tmp_path: Path
) -> None:
    file = write_jsonl(tmp_path / "text.jsonl", without_spaces(script))
    out = tmp_path / "out"
    long = ("--set", "data.sequence_length=128", "--set", "encoder.positions=128")
    said = run("--corpus", "mine", "--input", file, *tiny(bytewise, out),
               "--set", f"data.masking={masking}", *long)  # fmt: skip
    manifest = read_manifest(out)
    statistics = measure_rows(out, manifest, read_vocabulary(out / "tokenizer"))
    exact = statistics.predictions.sum() / (10 * statistics.text_tokens)
    assert predicted_share(manifest) == pytest.approx(exact)
    assert exact > 0.9 * 0.15
    assert f"masks: {exact:.2%} of text tokens are predicted, 15.00% was asked for" in said


@pytest.mark.parametrize("stored", [True, False])
def test_rows_of_words_beyond_their_budget_are_reported_and_refused(
    stored: bool, make: Prepare, show: Call, call: Call, tmp_path: Path
) -> None:
    """Words between spaces keep the rule of their scheme: too long for the row, never predicted."""
    rng = random.Random(0)
    words = ["".join(rng.choices("қңғүұөһәіы", k=40)) for _ in range(400)]
    texts = [" ".join(words[start : start + 20]) for start in range(0, 400, 20)]
    file = write_jsonl(tmp_path / "text.jsonl", texts)
    out = tmp_path / "out"
    settings = ["--set", "data.masking=whole_word", "--set", "data.sequence_length=32"]
    if not stored:
        settings += ["--set", "data.mask_mode=per-epoch", "--set", "data.duplicates=0"]
    said, shown = make("--corpus", "mine", "--input", file, *settings), show(out)
    assert "masks: 0.00% of text tokens are predicted, 15.00% was asked for" in said
    assert "predicted    0.0000% of text tokens" in shown and "nan" not in shown
    for text in (said, shown):
        assert "warning: whole_word masks skip words" in text
    arguments = ("roberta_tiny", *settings, "--data", out)
    refused = call(train.main, *arguments, "--output", tmp_path / "run", "--dry-run", code=2)
    file = out / "mask-0" / "train-00000.arrow" if stored else out
    assert f"{file} predict no token: whole_word" in refused and "data.masking=token" in refused
    if stored:
        machine = ("--nodes", 1, "--gpus-per-node", 1, "--gpu", "h100")
        assert "predict no token" in call(plan.main, *arguments, *machine, code=2)


def test_less_than_nine_tenths_are_warned_about(prepared: Path) -> None:
    """Nothing is said without stored masks."""
    manifest = read_manifest(prepared)
    corpus = {"packed": {"text_tokens": 1900, "repeated_tokens": 200, "dropped_tokens": 100}}
    about = replace(manifest, corpora={"mine": corpus}, totals={"tokens": 2000})
    for predictions, warned in ((268, True), (270, False), (300, False)):
        one = MaskFile(file="", predictions=predictions, bytes=0, xxh3_64="")
        shard = replace(manifest.shards[0], tokens=2000, sequences=10, masks=(one,))
        stored = replace(about, shards=(shard,))
        assert predicted_share(stored) == predictions / 2000
        lines = describe_predicted(predicted_share(stored), stored)
        assert [line.startswith("warning: ") for line in lines] == [False] + [True] * warned
    manifest = replace(manifest, shards=())
    assert describe_predicted(predicted_share(manifest), manifest) == []


def test_masks_are_drawn_by_the_flags_that_the_shards_store(
    make: Prepare, show: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a later rule for words does not change the masks of shards that a run already reads."""
    out = tmp_path / "out"
    file = write_jsonl(tmp_path / "text.jsonl", without_spaces("Han"))
    make("--corpus", "mine", "--input", file, "--set", "data.masking=whole_word")
    before = read_vocabulary(out / "tokenizer").word_starts
    monkeypatch.setattr("pipeline.data.tokenizers.vocabulary.begins_spaceless", lambda _: False)
    assert read_vocabulary(out / "tokenizer").word_starts.sum() < before.sum()
    assert "masks match their keys" in show(out, "--verify")


def test_flags_of_another_vocabulary_are_refused(
    tiny_vocabulary: Vocabulary, tmp_path: Path
) -> None:
    (tmp_path / "word_starts.bin").write_bytes(b"\1" * 7)
    with pytest.raises(DataError, match=r"word_starts\.bin has 7 flags"):
        read_word_starts(tmp_path, tiny_vocabulary)
