"""The tables of names: lower-case, and without names that would hide titles."""

from pipeline.ingest.wikitext.names import LANGUAGES, NAMESPACES, REDIRECTS, SWITCHES


def test_languages_and_names_are_in_lower_case() -> None:
    codes = {"en", "simple", "zh-min-nan", "be-tarask", "roa-rup", "map-bms", "ceb", "nb", "zh-yue"}
    assert codes <= LANGUAGES and 330 < len(LANGUAGES) < 400
    assert not {"csi", "uk.", "w", "wikt", "commons", "CSI", "http", "s"} & LANGUAGES
    for words in (LANGUAGES, REDIRECTS, SWITCHES):
        assert all(word == word.lower() and word == word.strip() for word in words)
    for names in NAMESPACES.values():
        for name in ", ".join(names).split(", "):
            assert name and name == name.lower() == name.strip() and "_" not in name
    # words of code are no switches
    assert not {"file", "line", "init", "name", "main", "func", "end", "data", "date"} & SWITCHES
