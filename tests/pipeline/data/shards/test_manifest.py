"""The manifest is read back as written, and damage is named."""

import json
from pathlib import Path
from typing import Any

import pytest

from pipeline.base.errors import DataError
from pipeline.data.inspection.inspect_shards import print_summary
from pipeline.data.shards import arrow_files
from pipeline.data.shards.manifest import MANIFEST, Manifest, check_size, read_manifest
from tests.damaged_json import changed, damaged


@pytest.fixture
def content(prepared: Path) -> Any:
    return json.loads((prepared / MANIFEST).read_bytes())


def reread(directory: Path, content: object) -> Manifest:
    (directory / MANIFEST).write_text(json.dumps(content))
    return read_manifest(directory)


def test_the_manifest_comes_back(prepared: Path, content: Any) -> None:
    manifest = read_manifest(prepared)
    assert json.loads(manifest.to_json()) == content
    assert manifest.sequence_length == 32 and manifest.duplicates == 10
    assert manifest.totals["sequences"] == sum(shard.sequences for shard in manifest.shards)


def test_missing_and_truncated_files_are_named(copy: Path, content: Any, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such directory"):
        read_manifest(tmp_path / "nothing")
    with pytest.raises(DataError, match="has not finished"):
        read_manifest(tmp_path)
    with pytest.raises(DataError, match="schema version 9"):
        reread(copy, content | {"schema_version": 9})
    file = content["shards"][0]["file"]
    path, size = copy / file, (copy / file).stat().st_size
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(DataError, match=f"{file} is damaged: 1,000 bytes"):
        check_size(copy, file, size)
    with pytest.raises(DataError, match=f"{file} is damaged"):
        arrow_files.read_table(path)
    path.unlink()
    with pytest.raises(DataError, match=f"{file} is missing"):
        check_size(copy, file, 1)


def test_pieces_are_all_rows_of_their_shard(prepared: Path, content: Any, tmp_path: Path) -> None:
    """Without an entry all rows are one piece."""
    shard = content["shards"][0]
    assert "pieces" not in shard
    assert read_manifest(prepared).shards[0].piece_rows == (shard["sequences"],)
    pieces = (4, shard["sequences"] - 4)
    cut = reread(tmp_path, content | {"shards": [shard | {"pieces": pieces}]})
    assert cut.shards[0].piece_rows == pieces
    for wrong in ([5, -1], [0, 4], [1, 2], [3, 2]):
        shard |= {"sequences": 4, "tokens": 12, "pieces": wrong}
        with pytest.raises(DataError, match=r"shards\[0\] has pieces"):
            reread(tmp_path, content)


def test_any_damage_is_a_line_that_names_the_file(content: Any, tmp_path: Path) -> None:
    """Or what readers take for granted is still there."""
    content["shards"] = content["shards"][:1]
    content["shards"][0]["masks"] = content["shards"][0]["masks"][:1]
    content["duplicates"] = 1
    content["corpora"] = {"news": content["corpora"]["news"]}
    print_summary(tmp_path, reread(tmp_path, content))
    path = tmp_path / MANIFEST
    for what, damage in damaged(path.read_bytes()):
        path.write_bytes(damage)
        with pytest.raises(DataError) as caught:
            read_manifest(tmp_path)
        assert str(path) in str(caught.value), what
    for what, values in changed(content):
        try:
            manifest = reread(tmp_path, values)
        except DataError as error:
            assert str(path) in str(error) and "\n" not in str(error), what
        else:
            len(manifest.shards), manifest.tokenizer["sha256"][:12], manifest.totals["tokens"] + 1


def test_paths_stay_in_the_directory(prepared: Path, tmp_path: Path) -> None:
    """A manifest from a stranger names no file outside, and staging writes none there."""
    text = (prepared / MANIFEST).read_text()
    first, mask = "rows/train-00000.arrow", "mask-3/train-00000.arrow"
    for old, new in (
        *((first, f"rows/{name}") for name in ("..", "", ".hidden/..", f"../{first}")),
        (first, "../train-00000.arrow"),
        (first, "rows/../../train-00000.arrow"),
        (first, f"/{first}"),
        (mask, "mask-3/../../train-00000.arrow"),
        (mask, "mask-2/train-00000.arrow"),
        ('"tokenizer/tokenizer_config.json"', '"../tokenizer_config.json"'),
        ('"tokenizer/tokenizer.json"', '"tokenizer/../../tokenizer.json"'),
        ('"tokenizer/tokenizer.json"', '"/tokenizer.json"'),
    ):
        assert old in text
        (tmp_path / MANIFEST).write_text(text.replace(old, new))
        wanted = {first: "rows/NAME", mask: f"'{mask}'"}.get(old, "tokenizer/NAME")
        with pytest.raises(DataError, match=rf"manifest\.json is damaged \(.*no.* {wanted}"):
            read_manifest(tmp_path)


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
        ("corpora.news.unknown", {"characters": 3, "tokens": "x"}, "unknown.tokens is text, not"),
        ("corpora.news.dropped", {"empty": {}}, "news.dropped.empty is an object, not a whole"),
        ("corpora.news.bad", {"JSON": [3]}, "news.bad.JSON is a list, not a whole number"),
        ("corpora.news.cut", {"markup": {"x": 3}}, "news.cut.markup is an object, not a whole"),
        ("corpora.news.language", ["en"], "corpora.news.language is \\['en'\\]"),
        ("corpora.news.words", "many", "corpora.news.words is text, not a whole number"),
        ("corpora.news.bytes", None, "corpora.news.bytes is null, not a whole number"),
        ("engine.mismatches", [3], r"engine.mismatches\[0\] is a whole number, not text"),
        ("tokenizer.kind", "byte-bp", "tokenizer.kind is 'byte-bp'"),
        ("totals.tokens", 0, "totals.tokens is 0"),
        ("engine.recipe", "\ud800", "text that is not Unicode"),
        ("shards.0.sequences", 2**40, r"shards\[0\] has 1099511627776 sequences"),
    ],
)  # fmt: skip
def test_values_that_no_shards_have(
    path: str, value: object, said: str, content: Any, tmp_path: Path
) -> None:
    owner, names = content, path.split(".")
    for name in names[:-1]:
        owner = owner[int(name)] if isinstance(owner, list) else owner[name]
    owner[names[-1]] = value
    with pytest.raises(DataError, match=rf"manifest\.json is damaged \(.*{said}"):
        reread(tmp_path, content)
