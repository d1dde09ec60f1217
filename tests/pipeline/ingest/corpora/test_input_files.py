"""Files of directories and globs: each real file once, under names that differ."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from pipeline.base.errors import DataError
from pipeline.ingest.corpora.input_files import find_files
from tests.benchmarks.file_system_calls import FileSystemCalls
from tests.launching.process import ROOT
from tests.pipeline.ingest.files import put_all


def names(*inputs: Path | str) -> list[str]:
    return [file.label for file in find_files([str(given) for given in inputs])]


def test_names_are_paths_below_the_directory_or_the_file_s_own(tmp_path: Path) -> None:
    put_all(tmp_path, "in/b.jsonl", "in/sub/a.jsonl", "c.jsonl", "in/.hidden/x", "in/sub/.y")
    assert names(tmp_path / "in", tmp_path / "c.jsonl") == ["b.jsonl", "c.jsonl", "sub/a.jsonl"]
    assert names(tmp_path / "*" / "*.jsonl") == ["b.jsonl"]
    # equal ones become paths below what holds them
    put_all(tmp_path, "d/2023/part-0000.jsonl", "d/2024/part-0000.jsonl", "d/2024/part-0001.jsonl")
    expected = ["2023/part-0000.jsonl", "2024/part-0000.jsonl", "2024/part-0001.jsonl"]
    assert names(tmp_path / "d" / "*" / "part-*.jsonl") == expected
    assert names(*sorted((tmp_path / "d").glob("*/*"))) == expected
    assert names(tmp_path / "d" / "2023", tmp_path / "d" / "2024") == expected


def test_real_files_are_read_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put_all(tmp_path, "z.jsonl", "other.jsonl")
    (tmp_path / "a.jsonl").symlink_to("z.jsonl")
    os.link(tmp_path / "z.jsonl", tmp_path / "zz.jsonl")
    assert names(tmp_path) == ["other.jsonl", "z.jsonl"]
    assert "2 more link(s) to them are skipped" in capsys.readouterr().out
    z = tmp_path / "z.jsonl"
    assert names(z, z, tmp_path / "*.jsonl") == ["other.jsonl", "z.jsonl"]
    assert names(tmp_path / "a.jsonl") == ["a.jsonl"]
    # linked directories, too, and cycles end
    put_all(tmp_path / "more", "in/a.jsonl", "real/b.jsonl", "in/z/c.jsonl")
    (tmp_path / "more/in" / "part2").symlink_to(tmp_path / "more/real")
    (tmp_path / "more/in" / "aa").symlink_to("z")  # the real name stays, not the first
    (tmp_path / "more/real" / "back").symlink_to(tmp_path / "more/in")
    assert names(tmp_path / "more/in") == ["a.jsonl", "part2/b.jsonl", "z/c.jsonl"]


def test_folders_that_datasets_saved(tmp_path: Path) -> None:
    """The files that its state lists, not descriptions and not what `map` left beside them."""
    state = {"_data_files": [{"filename": "data-00000-of-00001.arrow"}, {"filename": "../x"}]}
    put_all(tmp_path, "x", "d/train/data-00000-of-00001.arrow", "d/train/cache-1f.arrow")
    put_all(tmp_path, "d/train/dataset_info.json", "d/dataset_dict.json")
    (tmp_path / "d/train/state.json").write_text(json.dumps(state))
    assert names(tmp_path / "d") == ["train/data-00000-of-00001.arrow"]
    state["_indices_data_files"] = [{"filename": "indices.arrow"}]
    (tmp_path / "d/train/state.json").write_text(json.dumps(state))
    with pytest.raises(DataError, match="flatten_indices"):
        names(tmp_path / "d")
    for content in ("[1]", "{", '{"_data_files": 3}', "[" * 100_000):
        (tmp_path / "d/train/state.json").write_text(content)
        assert "train/state.json" in names(tmp_path / "d")


STRANGE = {
    "a b.jsonl": "a b.jsonl",
    "no\u00a0break.jsonl": r"no\xa0break.jsonl",
    "\u0645\u06cc\u200c\u062e.jsonl": "\u0645\u06cc\\u200c\u062e.jsonl",
    "\U0001f469\u200d\U0001f52c.jsonl": "\U0001f469\\u200d\U0001f52c.jsonl",
    "two\nlines\t\r.jsonl": r"two\nlines\t\r.jsonl",
    "line\u2028sep\u0085.jsonl": r"line\u2028sep\x85.jsonl",
    "back\\slash.jsonl": "back\\slash.jsonl",
    "back\\slash\n.jsonl": r"back\\slash\n.jsonl",
    "e\u0301.jsonl": "e\u0301.jsonl",
    "\u00e9.jsonl": "\u00e9.jsonl",
}
"""File names, which are all UTF-8, and how they are shown. The last two are one name to a reader,
and two files."""


def test_names_are_shown_on_one_line_or_refused(tmp_path: Path) -> None:
    put_all(tmp_path, *STRANGE, "dir\n\u200d/x.jsonl")
    assert names(tmp_path) == sorted([*STRANGE.values(), r"dir\n\u200d/x.jsonl"])
    for name, shown in STRANGE.items():
        assert names(tmp_path / name) == [shown]
    put_all(tmp_path / "one", "b\udcff.jsonl")
    with pytest.raises(DataError, match=r"'b\\udcff.jsonl' has a name that is not UTF-8"):
        names(tmp_path / "one")
    put_all(tmp_path / "two", "a\nb", "a\\nb")
    with pytest.raises(DataError, match=r"would both be called a\\nb"):
        names(tmp_path / "two")


LIST = """
import sys
from pathlib import Path
from pipeline.ingest.corpora.sources import corpus_sources
from pipeline.ingest.extraction.extract import not_extracted
for given in sys.argv[1:]:
    not_extracted(corpus_sources("mine", [given])[1], Path("documents"))
"""
"""Finds the files of corpora, their formats, and the names of the packs that they become."""


def test_a_file_costs_four_calls(tmp_path: Path) -> None:
    """One to find it, and one each to open, read and close it (which are not counted), be it found
    in a folder or by a glob."""
    files = 40

    def calls(folder: Path, count: int) -> Counter[str]:
        put_all(folder, *(f"{number % 2}/{number}.jsonl" for number in range(count)))
        counter = FileSystemCalls.below(folder, tmp_path / f"{folder.name}-counter")
        code = (sys.executable, "-c", LIST, folder, folder / "*/*")
        subprocess.run(code, check=True, env=counter.environment(), cwd=ROOT)
        return counter.read()

    more = calls(tmp_path / "two", 2 * files) - calls(tmp_path / "one", files)
    assert more.pop("bytes") > 0
    assert more == dict.fromkeys(("stat", "open", "read"), 2 * files)
