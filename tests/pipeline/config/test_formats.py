"""Every format with every masking, from text to `inspect --verify`; bytes for any workers."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline import inspect, prepare
from pipeline.config.formats import SEPARATORS
from pipeline.data.shards import arrow_files
from pipeline.data.shards.manifest import read_manifest
from pipeline.data.shards.well_formed import wrong_rows
from pipeline.data.tokenizers.folders import read_vocabulary
from tests.pipeline.data.small_shards import edited, with_column
from tests.pipeline.preparing import (
    FORKED,
    MPIEXEC,
    Call,
    contents,
    finish,
    rewrite,
    tiny,
    write_jsonl,
)

FORMATS = {
    "doc_sentences": [],
    "single_segment": ["data.segments.short_share=0.3"],
    "segment_pair": ["data.segments.single_share=0.1", "data.segments.short_share=0.05"],
    "segment_pair next": ["data.segments.label=next"],
    "segment_pair order": ["data.segments.label=order"],
    "sentence_pair next": ["data.segments.label=next", "data.segments.draws=2"],
    "sentence_pair order": ["data.segments.label=order"],
}
SHOWN = {
    "segment_pair next": (1, "B of another document"),
    "segment_pair order": (0, "A and B in order"),
}
"""Formats of which inspect shows a pair with this label, and its words."""
MASKS: dict[str, list[str]] = {
    "token": ["data.mask_mode=per-epoch", "data.duplicates=0"],
    "whole_word": [],
    "ngram": [],
    "span": ["data.masks.max_span=5"],
    "electra": ["data.masks.mask_share=0.85", "data.masks.random_share=0"],
}


@pytest.fixture(scope="module")
def stories(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """120 documents of 1 to 12 sentences of 3 to 20 words."""
    rng = np.random.default_rng(0)
    words = ["river", "stone", "winter", "morning", "letter", "window", "music", "garden"]
    texts = [
        " ".join(
            " ".join(rng.choice(words, rng.integers(3, 20))).capitalize() + "."
            for _ in range(rng.integers(1, 13))
        )
        + f" Story {number}."
        for number in range(120)
    ]
    return write_jsonl(tmp_path_factory.mktemp("stories") / "in.jsonl", texts)


@pytest.fixture(scope="module")
def made(
    tmp_path_factory: pytest.TempPathFactory, stories: Path, tiny_tokenizer: Path
) -> dict[str, Path]:
    """The stories in formats that several tests read."""
    folder = tmp_path_factory.mktemp("made")
    found = {name: folder / name for name in ("full_sentences", *SHOWN)}
    for name, output in found.items():
        chosen = settings(name, "data.duplicates=3")
        words = [*given(stories, tiny_tokenizer, output), *chosen]
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr("sys.argv", ["prepare", *map(str, words)])
            prepare.main()
    return found


def given(stories: Path, tokenizer: Path, output: Path) -> list[object]:
    return ["--corpus", "news", "--input", stories, "--workers", 1, *tiny(tokenizer, output)]


def settings(name: str, *more: str) -> list[str]:
    chosen = [f"data.format={name.split()[0]}", *FORMATS.get(name, []), *more]
    return [word for setting in chosen for word in ("--set", setting)]


def text_of(directory: Path, split: str) -> list[int]:
    """The documents' own ids, row by row: no special tokens and no random next segments."""
    special = read_vocabulary(directory / "tokenizer").special
    found: list[int] = []
    for shard in read_manifest(directory).of(split):
        for row in arrow_files.read_table(directory / shard.file).to_pylist():
            own = row["second_segment"] if row["pair_label"] == 1 else len(row["input_ids"])
            found += [token for token in row["input_ids"][:own] if not special[token]]
    return found


def each_format() -> list[Any]:
    """Every format with one of the masks, and with the others if slow."""
    cells: list[Any] = []
    for number, name in enumerate(FORMATS):
        others = [*MASKS]
        own = others.pop(number % len(others))
        cells += [(name, [own]), pytest.param(name, others, marks=pytest.mark.slow)]
    return cells


@pytest.mark.parametrize(("name", "schemes"), each_format())
def test_every_format_with_every_mask(
    name: str, schemes: list[str], stories: Path, made: dict[str, Path],
    tiny_tokenizer: Path, tmp_path: Path, call: Call,
) -> None:  # fmt: skip
    """Shards verify, inspect shows them, and every draw has the text of full_sentences."""
    for scheme in schemes:
        mode = [] if scheme == "token" else ["data.mask_mode=static", "data.duplicates=1"]
        chosen = settings(name, f"data.masking={scheme}", *mode, *MASKS[scheme])
        output = tmp_path / scheme
        call(prepare.main, *given(stories, tiny_tokenizer, output), *chosen)
        out = call(inspect.main, output, "--verify", "--workers", 1)
        assert "masks match their keys" in out
        assert ("pairs  " in out) == ("pair" in name)
        assert ("show B before A" in out) == ("order" in name)
        draws = 2 if name == "sentence_pair next" else 1
        whole = made["full_sentences"]
        assert text_of(output, "train") == draws * text_of(whole, "train")
        assert text_of(output, "validation") == text_of(whole, "validation")
        packed = read_manifest(output).corpora["news"]["packed"]
        assert packed["text_tokens"] > 1000 and packed["dropped_tokens"] == 0


@pytest.mark.usefixtures("quick_workers")
@pytest.mark.parametrize(
    "name",
    [
        "sentence_pair order",
        *(pytest.param(name, marks=pytest.mark.slow)
          for name in ("doc_sentences", "single_segment", "segment_pair next")),
    ],
)  # fmt: skip
def test_the_same_bytes_for_any_workers_parts_and_ranks(
    name: str, tiny_tokenizer: Path, tmp_path: Path, call: Call
) -> None:
    """Rows and masks of five corpora; the ranks resume from the output of one part."""

    def words(output: str, *more: object) -> list[object]:
        return ["--corpus", "sample", *more, *tiny(tiny_tokenizer, tmp_path / output), *chosen]

    chosen = settings(name, "data.mask_mode=static", "data.duplicates=1")
    call(prepare.main, *words("1", "--workers", 1))
    call(prepare.main, *words("3", "--workers", 3))
    for part in (3, 1, 4, 2):
        call(prepare.main, *words("parts", "--workers", 1, "--part", f"{part}/4"))
    call(prepare.main, *words("ranks", "--workers", 1, "--part", "3/4"))
    command = (MPIEXEC, "-n", 3, *FORKED, "-m", "pipeline.prepare")
    ranks = finish(*command, *words("ranks"))
    assert ranks.returncode == 0 and ranks.stdout.startswith("3 ranks on 1 node(s)"), ranks.stderr
    expected = contents(tmp_path / "1")
    for other in ("3", "parts", "ranks"):
        assert contents(tmp_path / other) == expected


def test_inspect_shows_a_pair(made: dict[str, Path], call: Call) -> None:
    """Both segments, the label, and the masks that swap them."""
    for name, (wanted, words) in SHOWN.items():
        output = made[name]
        shard = read_manifest(output).of("train")[0]
        table = arrow_files.read_table(output / shard.file)
        stored = zip(table["second_segment"].to_pylist(), table["pair_label"].to_pylist())
        row, second = next(
            (number, second)
            for number, (second, found) in enumerate(stored)
            if second and found == wanted
        )
        lines = call(inspect.main, output, "--sequence", row, "--tokens", 0).splitlines()
        title = next(line for line in lines if line.startswith(f"sequence {row} of train"))
        assert title.endswith(words)
        for segment in "AB":
            assert any(line.startswith(f"  segment {segment}: ") for line in lines)
        assert any(line.split()[:2] == [str(second), "|"] for line in lines)
        said = [line for line in lines if line.startswith("  B is shown before A with masks:")]
        if name.endswith("order"):
            masks = [arrow_files.read_table(output / mask.file)["swapped"] for mask in shard.masks]
            coins = [str(number) for number, own in enumerate(masks) if own[row].as_py()]
            assert [line.split(": ")[1] for line in said] == [" ".join(coins) or "none"]
        else:
            assert said == []
        assert table["input_ids"][row].as_py()[second - 2 : second] == [2] * SEPARATORS["byte-bpe"]


def test_wrong_pairs_are_told_although_the_hash_is_right(
    made: dict[str, Path], tmp_path: Path, call: Call
) -> None:
    """Others are in test_well_formed.py, whose rows have one segment."""
    directory = Path(shutil.copytree(made["segment_pair order"], tmp_path / "out"))
    manifest, vocabulary = read_manifest(directory), read_vocabulary(directory / "tokenizer")
    shard = manifest.of("train")[0]
    rows = arrow_files.read_table(directory / shard.file)
    for column, wrong, said in (
        ("second_segment", 4, "does not start after a separator"),
        ("pair_label", 1, "do not match its label"),
    ):
        values = rows[column].to_numpy().copy()
        values[int(np.argmax(rows["second_segment"].to_numpy() > 8))] = wrong
        changed = with_column(rows, column, values)
        assert said in wrong_rows(changed, manifest, shard, vocabulary)
    with edited(directory) as content:
        content["shards"][0] |= rewrite(directory / shard.file, changed)
    assert said in call(inspect.main, directory, "--verify", "--workers", 1, code=2)
