"""Groups: which files belong to which member, and how much text is too little."""

from pathlib import Path

import pytest

from pipeline.base.errors import ConfigError, DataError
from pipeline.ingest.corpora.catalogue import GROUPS
from pipeline.ingest.corpora.groups import member_inputs, most_text, require_members, require_size
from pipeline.ingest.corpora.sources import corpus_sources
from tests.pipeline.ingest.files import LINE, put, put_all

SMALL = GROUPS["16gb"]


def test_members_are_named_and_keep_the_groups_order() -> None:
    found = member_inputs("16gb", SMALL, ["bookcorpus=b", "wikipedia=w1", "w2", "bookcorpus=c=d"])
    assert list(found.items()) == [("wikipedia", ["w1", "w2"]), ("bookcorpus", ["b", "c=d"])]
    wrong = {"x": "name", "cc-news=x": "drop", "wikipeda=x": "name", "wikipedia=": "add"}
    for given, remedy in wrong.items():
        with pytest.raises(ConfigError, match=f"--input {given}: .*{remedy}"):
            member_inputs("16gb", SMALL, [given])
    with pytest.raises(ConfigError, match="bookcorpus=PATH"):
        require_members("16gb", {"wikipedia": ["w"], "bookcorpus": []})


def test_groups_of_a_directory_and_of_the_users_own(tmp_path: Path) -> None:
    put_all(tmp_path / "one", "wikipedia/a.jsonl", "bookcorpus.jsonl")
    put(tmp_path / "one/notes.txt", "not a member")
    name, sources = corpus_sources("16gb", [str(tmp_path / "one")])
    assert name == "16gb"
    assert [(source.corpus, source.name) for source in sources] == [
        ("wikipedia", "a.jsonl"), ("bookcorpus", "bookcorpus.jsonl"),
    ]  # fmt: skip
    put_all(tmp_path / "two", *(f"{member}/0.jsonl" for member in SMALL.members))
    assert len(corpus_sources("16gb", [str(tmp_path / "two")])[1]) == 2, "files of one name"
    (tmp_path / "none").mkdir()
    with pytest.raises(ConfigError, match="16gb needs files of wikipedia, bookcorpus"):
        corpus_sources("16gb", [str(tmp_path / "none")])
    # a group of the user's own has the corpora that its inputs name, in the catalogue's order
    put_all(tmp_path, "n.jsonl", "b.jsonl")
    given = [f"cc-news={tmp_path / 'n.jsonl'}", f"bookcorpus={tmp_path / 'b.jsonl'}"]
    name, sources = corpus_sources("mixture", given)
    assert name == "mixture"
    assert [source.corpus for source in sources] == ["bookcorpus", "cc-news"]
    require_size(name, most_text(sources))
    with pytest.raises(ConfigError, match="not a valid directory name"):
        corpus_sources("my/mixture", given)
    with pytest.raises(DataError, match="does not exist"):
        corpus_sources("mixture", ["mine=x"])  # not a corpus's name: a path


def test_a_tenth_less_is_allowed_and_no_more(tmp_path: Path) -> None:
    require_size("16gb", {"wikipedia": 0.901 * 11.4e9, "bookcorpus": 0.901 * 4.6e9})
    with pytest.raises(DataError, match=r"bookcorpus has 4\.1 GB of"):
        require_size("16gb", {"wikipedia": 20e9, "bookcorpus": 0.899 * 4.6e9})
    require_size("wikipedia", {"wikipedia": 1.0})  # not a group: no size check
    sources = corpus_sources("stories", [str(put_all(tmp_path, "a.jsonl", "b.jsonl"))])[1]
    assert most_text(sources) == {"stories": 2 * len(LINE)}, "the size of uncompressed files"
