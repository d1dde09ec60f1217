"""The manifest is read back as written, and damage is named."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from pipeline.base.errors import DataError
from pipeline.data.inspection.inspect_shards import print_summary
from pipeline.data.shards import arrow_files
from pipeline.data.shards.manifest import (
    MANIFEST,
    check_size,
    read_manifest,
)
from tests.damaged_json import changed, damaged


def test_the_manifest_comes_back(prepared: Path) -> None:
    manifest = read_manifest(prepared)
    assert json.loads(manifest.to_json()) == json.loads((prepared / MANIFEST).read_bytes())
    assert manifest.sequence_length == 32 and manifest.duplicates == 10
    assert manifest.totals["sequences"] == sum(shard.sequences for shard in manifest.shards)


def test_damage_is_named(prepared: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such directory"):
        read_manifest(tmp_path / "nothing")
    with pytest.raises(DataError, match="has not finished"):
        read_manifest(tmp_path)
    copy = tmp_path / "copy"
    shutil.copytree(prepared, copy)
    text = (copy / MANIFEST).read_text()
    (copy / MANIFEST).write_text(text[:500])
    with pytest.raises(DataError, match=r"manifest\.json is damaged"):
        read_manifest(copy)
    (copy / MANIFEST).write_text(text.replace('"schema_version": 2', '"schema_version": 9'))
    with pytest.raises(DataError, match="schema version 9"):
        read_manifest(copy)
    file = read_manifest(prepared).shards[0].file
    (copy / file).write_bytes((copy / file).read_bytes()[:1000])
    with pytest.raises(DataError, match=rf"{file} is damaged: 1,000 bytes"):
        check_size(copy, file, (prepared / file).stat().st_size)
    with pytest.raises(DataError, match=f"{file} is damaged"):
        arrow_files.read_table(copy / file)
    (copy / file).unlink()
    with pytest.raises(DataError, match=f"{file} is missing"):
        check_size(copy, file, 1)


@pytest.mark.parametrize("pieces", [[5, -1], [0, 4], [1, 2], [3, 2], []])
def test_pieces_are_all_rows_of_their_shard(
    pieces: list[int], prepared: Path, tmp_path: Path
) -> None:
    """Without an entry all rows are one piece."""
    content = json.loads((prepared / MANIFEST).read_bytes())
    shard = content["shards"][0]
    assert "pieces" not in shard
    assert read_manifest(prepared).shards[0].piece_rows == (shard["sequences"],)
    (tmp_path / MANIFEST).write_text(
        json.dumps(content | {"shards": [shard | {"pieces": [4, shard["sequences"] - 4]}]})
    )
    assert read_manifest(tmp_path).shards[0].piece_rows == (4, shard["sequences"] - 4)
    if pieces:
        shard |= {"sequences": 4, "tokens": 12, "pieces": pieces}
        (tmp_path / MANIFEST).write_text(json.dumps(content))
        with pytest.raises(DataError, match=r"shards\[0\] has pieces that are not its rows"):
            read_manifest(tmp_path)


@pytest.mark.parametrize("name", ["..", "", ".hidden/..", "../rows/train-00000.arrow"])
def test_shards_are_files_of_their_directory(name: str, prepared: Path, tmp_path: Path) -> None:
    content = json.loads((prepared / MANIFEST).read_bytes())
    content["shards"][0]["file"] = f"rows/{name}"
    (tmp_path / MANIFEST).write_text(json.dumps(content))
    with pytest.raises(DataError, match=r"shards\[0\] is 'rows/.*', not rows/NAME"):
        read_manifest(tmp_path)


def test_any_damage_is_a_line_that_names_the_file(prepared: Path, tmp_path: Path) -> None:
    """Or what readers take for granted is still there."""
    content = json.loads((prepared / MANIFEST).read_bytes())
    content["shards"] = content["shards"][:1]
    content["shards"][0]["masks"] = content["shards"][0]["masks"][:1]
    content["duplicates"] = 1
    content["corpora"] = {"news": content["corpora"]["news"]}
    path = tmp_path / MANIFEST
    path.write_text(json.dumps(content))
    print_summary(tmp_path, read_manifest(tmp_path))
    for what, damage in damaged(path.read_bytes()):
        path.write_bytes(damage)
        with pytest.raises(DataError) as caught:
            read_manifest(tmp_path)
        assert str(path) in str(caught.value), what
    for what, values in changed(content):
        path.write_text(json.dumps(values))
        try:
            manifest = read_manifest(tmp_path)
        except DataError as error:
            assert str(path) in str(error), what
            assert "\n" not in str(error), what
        else:
            len(manifest.shards), manifest.tokenizer["sha256"][:12], manifest.totals["tokens"] + 1


def test_paths_stay_in_the_directory(prepared: Path, tmp_path: Path) -> None:
    """A manifest from a stranger names no file outside, and staging writes none there."""
    text = (prepared / MANIFEST).read_text()
    copy = tmp_path / "copy"
    copy.mkdir()
    for old, new in (
        ("rows/train-00000.arrow", "../train-00000.arrow"),
        ("rows/train-00000.arrow", "rows/../../train-00000.arrow"),
        ("rows/train-00000.arrow", "/rows/train-00000.arrow"),
        ("rows/train-00000.arrow", "rows/.."),
        ("rows/train-00000.arrow", "rows/"),
        ("mask-3/train-00000.arrow", "mask-3/../../train-00000.arrow"),
        ("mask-3/train-00000.arrow", "mask-2/train-00000.arrow"),
        ('"tokenizer/tokenizer_config.json"', '"../tokenizer_config.json"'),
        ('"tokenizer/tokenizer.json"', '"tokenizer/../../tokenizer.json"'),
        ('"tokenizer/tokenizer.json"', '"/tokenizer.json"'),
    ):
        assert old in text
        (copy / MANIFEST).write_text(text.replace(old, new))
        with pytest.raises(DataError, match=r"manifest\.json is damaged \(.*no.* (.*/NAME|'mask-)"):
            read_manifest(copy)


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("masking.rate", float("nan"), "masking.rate is nan"),
        ("masking.rate", 1e6, "masking has shares"),
        ("masking.scheme", "token\0", "masking.scheme' has control characters: 'token"),
        ("engine.recipe", "\x1b]0;title\x07", "recipe' has control characters"),
        ("corpora.news.dropped.\x1b[2J", 3, "J' has control characters: 3"),
        ("sequence_length", 2**33, "sequence_length is 8589934592"),
        ("max_predictions", 10**30, "max_predictions is beyond 64 bits"),
        ("max_predictions", 2**31, "max_predictions is 2147483648"),
        ("corpora.news.held_out_copies", {"in_train": [1], "checked": 1}, "in_train is a list"),
        ("corpora.news.held_out_copies", {"in_train": 1, "checked": 0}, "in_train 1 of 0"),
        ("corpora.news.unknown", {"characters": 3, "tokens": "x"}, "unknown.tokens is text, not"),
        ("corpora.news.dropped", {"empty": {}}, "news.dropped.empty is an object, not a whole"),
        ("corpora.news.bad", {"JSON": [3]}, "news.bad.JSON is a list, not a whole number"),
        ("corpora.news.cut", {"markup": {"x": 3}}, "news.cut.markup is an object, not a whole"),
        ("corpora.news.language", ["en"], "corpora.news.language is \\['en'\\]"),
        ("corpora.news.bytes", None, "corpora.news.bytes is null, not a whole number"),
        ("engine.mismatches", [3], r"engine.mismatches\[0\] is a whole number, not text"),
        ("tokenizer.kind", "byte-bp", "tokenizer.kind is 'byte-bp'"),
        ("totals.tokens", 0, "totals.tokens is 0"),
        (
            "takedowns",
            [{"parent": "a", "documents": {"news": "x"}, "sequences": 1, "tokens": 1}],
            r"takedowns\[0\].documents.news is text, not a whole number",
        ),
        ("engine.recipe", "\ud800", "text that is not Unicode"),
        ("shards.0.sequences", 2**40, r"shards\[0\] has 1099511627776 sequences"),
    ],
)
def test_numbers_that_no_shards_have(
    path: str, value: object, said: str, prepared: Path, tmp_path: Path
) -> None:
    content = json.loads((prepared / MANIFEST).read_bytes())
    owner, names = content, path.split(".")
    for name in names[:-1]:
        owner = owner[int(name)] if isinstance(owner, list) else owner[name]
    owner[names[-1]] = value
    (tmp_path / MANIFEST).write_text(json.dumps(content))
    with pytest.raises(DataError, match=rf"manifest\.json is damaged \(.*{said}"):
        read_manifest(tmp_path)
