"""Months of CC-NEWS, from lists as Common Crawl has them."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.base.errors import ConfigError, DataError
from pipeline.ingest.corpora.common_crawl import list_months, parse_months
from pipeline.remote import retries
from pipeline.remote.kept_lists import Keeping
from tests.pipeline.remote.publishers import Publisher, publisher, saying

LIST = "crawl-data/CC-NEWS/2019/02/warc.paths.gz"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Publisher]:
    monkeypatch.setattr(retries, "sleep", lambda seconds: None)
    with publisher() as found:
        yield found


def test_months_in_words() -> None:
    assert parse_months("2019-02") == ["2019-02"]
    assert parse_months("2016-11..2017-02") == ["2016-11", "2016-12", "2017-01", "2017-02"]
    assert parse_months("2018-01,2017-12..2018-01") == ["2017-12", "2018-01"]
    assert len(parse_months("2016-09..2019-02")) == 30


@pytest.mark.parametrize(
    "text", ["", "2019", "2019-13", "2019-02..", "2019-02..2019-01", "2019/02", "x,2019-02"]
)
def test_what_is_no_month_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"--months .*2016-09\.\.2019-02"):
        parse_months(text)


def test_nothing_is_older_than_the_crawl() -> None:
    with pytest.raises(ConfigError, match="the first month of CC-NEWS is 2016-08"):
        parse_months("2016-07..2016-09")


def test_lists_are_read_once(server: Publisher, tmp_path: Path) -> None:
    january = server.put_month("2019-01", {"00001": b"a" * 10})
    february = server.put_month("2019-02", {"00003": b"c" * 30, "00002": b"b" * 20})
    server.moods[LIST] = [saying(503, "1")]
    months = ["2019-01", "2019-02"]
    files = list_months(months, server.address, Keeping(downloads=tmp_path, is_kept=False))
    assert [file.path for file in files] == [*january, *sorted(february)]
    assert [file.size for file in files] == [10, 20, 30]
    assert files[0].url == f"{server.address}/{january[0]}"
    assert files[0].version == server.tag(january[0])
    asked = len(server.asked)
    assert list_months(months, server.address, Keeping(downloads=tmp_path, is_kept=False)) == files
    assert len(server.asked) == asked


def test_a_dry_run_keeps_no_list(server: Publisher, tmp_path: Path) -> None:
    server.put_month("2019-02", {"00001": b"a"})
    files = list_months(
        ["2019-02"], server.address, Keeping(downloads=tmp_path, is_kept=False, recording=False)
    )
    assert len(files) == 1 and not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (b"", "lists no files"),
        (b"crawl-data/CC-NEWS/2019/01/a.warc.gz\n", "not a WARC file of 2019-02"),
        (b"crawl-data/CC-NEWS/2019/02/../../../../a.warc.gz\n", "not a WARC file of 2019-02"),
        (b"crawl-data/CC-NEWS/2019/02/.list.json\n", "not a WARC file of 2019-02"),
        (b"/etc/passwd\n", "not a WARC file of 2019-02"),
    ],
)
def test_what_is_no_list_of_the_month_is_refused(
    server: Publisher, tmp_path: Path, lines: bytes, message: str
) -> None:
    server.files[LIST] = gzip.compress(lines)
    with pytest.raises(DataError, match=message):
        list_months(["2019-02"], server.address, Keeping(downloads=tmp_path, is_kept=False))
    assert not [*tmp_path.rglob(".list.json")]


def test_a_list_of_lines_from_windows_in_several_members(server: Publisher, tmp_path: Path) -> None:
    server.put_month("2019-02", {"00001": b"a", "00002": b"b"})
    lines = gzip.decompress(server.files[LIST]).replace(b"\n", b"\r\n")
    server.files[LIST] = gzip.compress(lines[:40]) + gzip.compress(lines[40:]) + bytes(512)
    found = list_months(["2019-02"], server.address, Keeping(downloads=tmp_path, is_kept=False))
    assert len(found) == 2


def test_lists_that_are_not_there_or_damaged(server: Publisher, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"warc.paths.gz does not exist \(HTTP 404\)"):
        list_months(["2019-02"], server.address, Keeping(downloads=tmp_path, is_kept=False))
    good = gzip.compress(b"crawl-data/CC-NEWS/2019/02/a.warc.gz\n")
    bomb = gzip.compress(bytes(1 << 27))
    for content in (b"<html>", good + b"<html>", good + b"\0" + good[1:], good + good[:9], bomb):
        server.files[LIST] = content
        with pytest.raises(DataError, match="not a list of paths in gzip"):
            list_months(["2019-02"], server.address, Keeping(downloads=tmp_path, is_kept=False))
    kept = tmp_path / "crawl-data/CC-NEWS/2019/02/.list.json"
    for content in ("[", "{}", '[{"path": "/etc/passwd", "size": 1, "version": ""}]', "[1]"):
        kept.write_text(content)
        with pytest.raises(DataError, match="is damaged; remove it"):
            list_months(["2019-02"], server.address, Keeping(downloads=tmp_path, is_kept=False))


def test_files_that_do_not_exist_stop_the_command_or_are_left_out(
    server: Publisher, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.put_month("2019-02", {"00001": b"a", "00002": b"b"})
    gone = next(path for path in server.files if "00001" in path)
    del server.files[gone]
    message = rf"1 of 2 listed files do not exist \(HTTP 404\), such as {gone}; .*--skip-missing"
    with pytest.raises(DataError, match=message):
        list_months(["2019-02"], server.address, Keeping(downloads=tmp_path, is_kept=False))
    assert not [*tmp_path.rglob(".list.json")]
    for _ in range(2):  # from the server, and from the kept list
        [file] = list_months(
            ["2019-02"],
            server.address,
            Keeping(downloads=tmp_path, is_kept=False),
            skip_missing=True,
        )
        assert "00002" in file.path and f"are skipped: {gone}" in capsys.readouterr().out
    with pytest.raises(DataError, match=message):
        list_months(["2019-02"], server.address, Keeping(downloads=tmp_path, is_kept=False))
