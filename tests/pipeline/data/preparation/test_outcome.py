import hashlib
import itertools
import json
from pathlib import Path

from pipeline.data.shards.manifest import REWRITING, read_manifest
from tests.pipeline.preparing import Prepare, write_jsonl


def test_single_bad_records_are_skipped_and_counted(tmp_path: Path, make: Prepare) -> None:
    path = tmp_path / "in.jsonl"
    lines = [json.dumps({"text": f"Text {i}. More of it."}) for i in range(300)]
    lines[100] = '{"text": 5}'
    lines[200] = '{"text": "   "}'
    path.write_text("\n".join(lines))
    assert "dropped 1 empty, 1 " in make("--corpus", path)
    counted = read_manifest(tmp_path / "out").corpora["in"]
    assert counted["documents"] == 298 and sum(counted["bad"].values()) == 1


def test_what_a_function_and_line_rules_took(tmp_path: Path, make: Prepare) -> None:
    """It is told with examples, and is in the manifest."""
    text = "It is here. It is there. It is far. It is near. It is number {}.\nNo end mark here"
    texts = [text.format(number) for number in range(60)] + ["It is short."] * 2
    path, script = write_jsonl(tmp_path / "in.jsonl", texts), tmp_path / "tidy.py"
    given = ("--corpus", path, "--map", f"{script}:tidy", "--filter", "c4")
    script.write_text("def tidy(document): return 5\n")
    error = make(*given, code=2)
    assert "--map: tidy returned int for in.jsonl@0" in error and error.count("\n") == 1
    script.write_text("def tidy(document): return None if '7' in document.text else document\n")
    out = make(*given)
    sizes = itertools.accumulate(len(line) + 1 for line in path.read_text().splitlines())
    ids = [f"in.jsonl@{at}" for at in (0, *sizes)]
    for line in (
        "dropped 6 map, 2 c4: under 5 sentences",
        f"map, such as {ids[7]}, {ids[17]}, {ids[27]}",
        f"c4: under 5 sentences, such as {ids[60]}, {ids[61]}",
        "cut from documents 918 bytes of c4: lines without an end mark",
    ):
        assert f"in: {line}\n" in out
    manifest = read_manifest(tmp_path / "out")
    hashed = hashlib.sha256(script.read_bytes()).hexdigest()
    assert manifest.engine[REWRITING] == {"in": {"map": f"tidy {hashed}", "lines": 1}}
    counted = manifest.corpora["in"]
    assert counted["words"] == 54 * len(text.splitlines()[0].split())
    size = sum(map(len, texts))
    assert counted["documents"] == 54 and counted["bytes"] + counted["left_out_bytes"] == size
    make(*given)
    script.write_text(script.read_text() + "\n")
    assert "was made from another recipe, input or tokenizer" in make(*given, code=2)
