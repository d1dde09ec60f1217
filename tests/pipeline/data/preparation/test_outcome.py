"""What the user is told of prepared shards."""

from __future__ import annotations

import json
from pathlib import Path

from pipeline.data.shards.manifest import read_manifest
from tests.pipeline.preparing import Prepare, tiny


def test_single_bad_records_are_skipped_and_counted(
    tiny_tokenizer: Path, tmp_path: Path, run: Prepare
) -> None:
    path = tmp_path / "in.jsonl"
    lines = [json.dumps({"text": f"Text {i}. More of it."}) for i in range(300)]
    lines[100] = '{"text": 5}'
    lines[200] = '{"text": "   "}'
    path.write_text("\n".join(lines))
    out = run("--corpus", path, *tiny(tiny_tokenizer, tmp_path / "out"))
    assert "dropped 1 empty, 1 " in out
    counted = read_manifest(tmp_path / "out").corpora["in"]
    assert counted["documents"] == 298 and sum(counted["bad"].values()) == 1
