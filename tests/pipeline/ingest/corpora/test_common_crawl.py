"""Months of CC-NEWS, from lists as Common Crawl has them."""

import gzip
from pathlib import Path

import pytest

from pipeline.base.errors import ConfigError, DataError
from pipeline.ingest.corpora.common_crawl import list_months, parse_months
from pipeline.remote.copies import PublishedFile
from tests.pipeline.remote.publishers import Publisher, saying

FOLDER = "crawl-data/CC-NEWS/2019/02"
LIST = f"{FOLDER}/warc.paths.gz"


def listed(server: Publisher, folder: Path, *before: str, **options: bool) -> list[PublishedFile]:
    """The files of February 2019, and of months before it."""
    return list_months([*before, "2019-02"], folder, **options)


def test_months_in_words() -> None:
    assert parse_months("2019-02") == ["2019-02"]
    assert parse_months("2016-11..2017-02") == ["2016-11", "2016-12", "2017-01", "2017-02"]
    assert parse_months("2018-01,2017-12..2018-01") == ["2017-12", "2018-01"]
    assert len(parse_months("2016-09..2019-02")) == 30
    for text in ("", "2019", "2019-13", "2019-02..", "2019-02..2019-01", "2019/02", "x,2019-02"):
        with pytest.raises(ConfigError, match=r"--dump .*2016-09\.\.2019-02"):
            parse_months(text)
    with pytest.raises(ConfigError, match="2016-08"):
        parse_months("2016-07..2016-09")


def test_lists_are_read_once(server: Publisher, tmp_path: Path) -> None:
    january = server.put_month("2019-01", {"00001": b"a" * 10})
    february = server.put_month("2019-02", {"00003": b"c" * 30, "00002": b"b" * 20})
    assert len(list_months(["2019-02"], tmp_path, recording=False)) == 2
    assert not [*tmp_path.iterdir()], "it keeps no list"
    server.moods[LIST] = [saying(503, "1")]
    files = listed(server, tmp_path, "2019-01")
    assert [file.path for file in files] == [*january, *sorted(february)]
    assert [file.size for file in files] == [10, 20, 30]
    assert files[0].url == f"{server.address}/{january[0]}"
    asked = len(server.asked)
    assert listed(server, tmp_path, "2019-01") == files and len(server.asked) == asked
    # lines from Windows, in several members
    server.put_month("2019-02", {"00001": b"a", "00002": b"b"})
    lines = gzip.decompress(server.files[LIST]).replace(b"\n", b"\r\n")
    server.files[LIST] = gzip.compress(lines[:40]) + gzip.compress(lines[40:]) + bytes(512)
    assert len(listed(server, tmp_path / "windows")) == 2


def test_what_is_no_list_of_the_month_is_refused(server: Publisher, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"warc.paths.gz cannot be fetched \(HTTP 404"):
        listed(server, tmp_path)
    for line in (
        "", "crawl-data/CC-NEWS/2019/01/a.warc.gz", f"{FOLDER}/../../../../a.warc.gz",
        f"{FOLDER}/sizes.json", "/etc/passwd",
    ):  # fmt: skip
        server.files[LIST] = gzip.compress(f"{line}\n".encode() if line else b"")
        message = "not a WARC file of 2019-02" if line else "lists no files"
        with pytest.raises(DataError, match=message):
            listed(server, tmp_path)
    good = gzip.compress(f"{FOLDER}/a.warc.gz\n".encode())
    bomb = gzip.compress(bytes(1 << 25))
    for content in (b"<html>", good + b"<html>", good + b"\0" + good[1:], good + good[:9], bomb):
        server.files[LIST] = content
        with pytest.raises(DataError, match="not a list of paths in gzip"):
            listed(server, tmp_path)
    assert not [*tmp_path.rglob("sizes.json")]
    path, sizes = f"{FOLDER}/a.warc.gz", ("-2", "true", "9" * 5000, str(10**18), "1.5", '"1"')
    (tmp_path / FOLDER).mkdir(parents=True)
    for kept in ('{"/etc/passwd": 1}', "[]", *(f'{{"{path}": {size}}}' for size in sizes)):
        (tmp_path / FOLDER / "sizes.json").write_text(kept)
        with pytest.raises(DataError, match=r"sizes\.json to read it again"):
            listed(server, tmp_path)


def test_files_that_do_not_exist_stop_the_command_or_are_left_out(
    server: Publisher, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gone, _ = server.put_month("2019-02", {"00001": b"a", "00002": b"b"})
    del server.files[gone]
    message = rf"1 of 2 listed files .*HTTP 404.* {gone}; .*--skip-missing"
    with pytest.raises(DataError, match=message):
        listed(server, tmp_path)
    assert not [*tmp_path.rglob("sizes.json")]
    for _ in range(2):  # from the server, and from the kept list
        [file] = listed(server, tmp_path, skip_missing=True)
        assert "00002" in file.path and f"are skipped: {gone}" in capsys.readouterr().out
    with pytest.raises(DataError, match=message):
        listed(server, tmp_path)
