"""Corpora from the lists of their publishers, from the first request to the shards."""

import bz2
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline.data.preparation.transfers import Transfer
from pipeline.data.shards.manifest import read_manifest
from pipeline.ingest.documents.records import Source
from pipeline.remote.copies import PublishedFile
from tests.pipeline.ingest.dump import dump
from tests.pipeline.ingest.dump import page as wiki_page
from tests.pipeline.ingest.files import put
from tests.pipeline.ingest.web_archive import articles, members, page, response
from tests.pipeline.preparing import Prepare, contents
from tests.pipeline.remote.publishers import Publisher, cut, saying, standing_in

GERMAN = (
    "Der Rat der Stadt hat am Dienstag beschlossen, die alte Brücke über den Winter zu schließen.",
    "Zwei Ingenieure hatten ihm im Juni gesagt, dass der Bogen kein Hochwasser mehr aushält.",
    "Niemand, der am linken Ufer wohnt, wurde gefragt, und nach Auskunft des Amtes wird es keiner.",
    "Die Fähre, die im Frühjahr verkauft werden sollte, fährt stattdessen wieder jede Stunde.",
)
DUMP = "enwiki/20260101"
News = Callable[..., str]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Publisher]:
    """Two months with a file each, two parts of a dump, and TENFOLD_ROOT at `tmp_path`."""
    monkeypatch.setenv("TENFOLD_ROOT", str(tmp_path))
    german = response(page("Die Brücke", GERMAN), "https://zeitung.de/1", number=9)
    with standing_in(monkeypatch) as found:
        found.put_month("2019-01", {"00001": members([*articles(12), german])})
        found.put_month("2019-02", {"00002": members(articles(13, "www.other.org"))})
        parts = {
            f"{n}.xml-p{n}p{n}.bz2": bz2.compress(
                dump([wiki_page(n, f"River {n}", f"The River {n} is long. " * 20)])
            )
            for n in (1, 2)
        }
        found.put_dump(DUMP, parts)
        yield found


@pytest.fixture
def news(server: Publisher, make: Prepare) -> News:
    """Prepares both months of the news, or what else is asked for."""

    def news(*more: object, months: str = "2019-01..2019-02", **chosen: Any) -> str:
        given = ("--corpus", "cc-news", "--dump", months)
        return make(*given, *more, **chosen)

    return news


def downloaded(root: Path) -> list[str]:
    """Names of the copies, whole or not, below the downloads."""
    files = [path for path in (root / "downloads").rglob("*.*") if path.is_file()]
    return sorted(path.name for path in files if path.suffix not in (".lock", ".json"))


def compare_with_own(
    server: Publisher, make: Prepare, root: Path, ending: str, *words: str
) -> None:
    """The shards in `out` are those of the same files as a user's own."""
    for path, content in server.files.items():
        if path.endswith(ending):
            put(root / "raw" / Path(path).name, content)
    make("--input", root / "raw", "--corpus", *words, output="own")
    ours, theirs = contents(root / "out"), contents(root / "own")
    assert {name for name in ours if ours[name] != theirs[name]} == {"manifest.json"}


def test_a_mirrors_password_is_not_shown() -> None:
    url = "https://me:s3cret@host/a"
    file = PublishedFile(url=url, path="a", size=1, downloads=Path("/"))
    source = Source("cc-news", "/a", "a", 1, "warc", "gz", "", "file", "", published=file)
    told = Transfer("cc-news", [source], here=[], missing=[source]).describe()
    assert "from host; " in told and "s3cret" not in told


def test_months_of_news_become_shards(
    server: Publisher, news: News, make: Prepare, tmp_path: Path
) -> None:
    """With a cut and a busy server on the way; no copy stays, and nothing is fetched twice. They
    are the shards of the same files as a user's own."""
    first, second = (path for path in server.files if path.endswith(".warc.gz"))
    server.moods[first] = [saying(503), cut(2000), saying(503, "1")]
    text = news()
    size = sum(len(server.files[path]) for path in (first, second)) / 1e9
    assert f"cc-news: 2 files of {size:,.2f} GB, from {server.address[7:]}; 2 files of" in text
    assert " to fetch, at most 8 at a time\n" in text
    assert "1 language de" in text, "English is kept"
    manifest = read_manifest(tmp_path / "out")
    assert manifest.totals["documents"] == 25 and not downloaded(tmp_path)
    assert manifest.corpora["cc-news"]["dropped"] == {"language de": 1}
    asked = len(server.asked)
    assert "2 are extracted; nothing to fetch" in news()
    news(output="again")
    assert contents(tmp_path / "again") == contents(tmp_path / "out")
    assert len(server.asked) == asked
    compare_with_own(server, make, tmp_path, ".warc.gz", "cc-news", "--language", "en")


def test_a_run_that_stopped_continues(server: Publisher, news: News, tmp_path: Path) -> None:
    paths = [path for path in server.files if path.endswith(".warc.gz")]
    last = min(paths, key=lambda path: len(server.files[path]))
    server.moods[last] = [saying(404)]  # it was listed
    error = news(code=2)
    assert "cannot be fetched (HTTP 404" in error
    assert not (tmp_path / "out" / "manifest.json").exists()
    before = len(server.gets())
    assert "1 are extracted, 1 file of" in news()
    assert len(server.gets(last)) == 2 and len(server.gets()) == before + 1, "only the last"


def test_fetching_alone_then_without_a_network(
    server: Publisher, news: News, make: Prepare, tmp_path: Path
) -> None:
    for part in ("1/2", "2/2"):
        assert "2 files of" in news("--fetch", "--part", part)
        assert len(downloaded(tmp_path)) == int(part[0])
    assert not (tmp_path / "out").exists() and not (tmp_path / "documents").exists()
    months = ("--corpus", "cc-news", "--dump", "2019-01..2019-02")
    server.files.clear()
    text = make(*months)
    assert "2 are in" in text and "nothing to fetch" in text
    assert len(downloaded(tmp_path)) == 2, "what --fetch fetched stays"
    assert "nothing to fetch" in news("--fetch")


def test_a_dry_run_estimates_from_beginnings_and_keeps_nothing(news: News, tmp_path: Path) -> None:
    text = news("--dry-run")
    assert "2 files of" in text and " to fetch, at most " in text
    assert "cc-news: about 25 documents" in text
    disk = r"^disk: about .* \(copies of published files .*, documents .*, documents that wait"
    assert re.search(disk, text, re.M)
    assert not (tmp_path / "downloads").exists() and not (tmp_path / "documents").exists()


def test_other_languages(news: News, tmp_path: Path) -> None:
    assert "language de" not in news("--language", "any", "--dedup", "none")
    assert read_manifest(tmp_path / "out").totals["documents"] == 26
    error = news("--filter", "language=de", code=2)
    assert "--dump of months keeps language=en only; add --language de" in error


def test_a_dump_is_found_checked_and_the_same_as_its_files(
    server: Publisher, tmp_path: Path, make: Prepare
) -> None:
    first = next(path for path in server.files if path.endswith(".bz2"))
    dump = ("--corpus", "wikipedia", "--dump", DUMP)
    right, server.files[first] = server.files[first], bytes(len(server.files[first]))
    assert "its SHA-1 is not" in make(*dump, code=2)
    server.files[first] = right
    make(*dump)
    assert not downloaded(tmp_path)
    compare_with_own(server, make, tmp_path, ".bz2", "wikipedia")


def test_a_mixture_of_both_and_of_own_files(
    server: Publisher, tmp_path: Path, make: Prepare
) -> None:
    book = tmp_path / "book.txt"
    book.write_text("It was a cold day. " * 400)
    both = ["--corpus", "mix", "--dump", "2019-02", DUMP]
    error = make(*both, "--input", f"cc-news={book}", code=2)
    assert "cc-news has files of --input" in error and error.count("\n") == 1
    make(*both, "--input", f"bookcorpus={book}")
    assert [*read_manifest(tmp_path / "out").corpora] == ["wikipedia", "bookcorpus", "cc-news"]
    make(*both, output="two")
    assert [*read_manifest(tmp_path / "two").corpora] == ["wikipedia", "cc-news"]
