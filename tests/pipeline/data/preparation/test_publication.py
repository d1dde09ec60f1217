"""What is checked before finished parts become shards."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pipeline import inspect
from pipeline.data.preparation import publication
from pipeline.data.shards.manifest import MANIFEST, read_manifest
from pipeline.data.tokenizers.folders import save_vocabulary
from pipeline.data.tokenizers.vocabulary import Vocabulary
from tests.pipeline.preparing import Call, Prepare, tiny, write_jsonl

TEXTS = [f"The house number {i} was old. Nobody lived there." for i in range(40)]


@pytest.mark.parametrize("engine", ["fast", "tokenizers"])
def test_unknown_text_is_counted_reported_and_refused(
    engine: str,
    word_vocabularies: dict[str, Vocabulary],
    tmp_path: Path,
    run: Prepare,
    call: Call,
) -> None:
    """In train and held-out documents; an unspaced run of over 100 characters is one token."""
    save_vocabulary(word_vocabularies["wordpiece"], tmp_path / "tokenizer", 32)
    texts = [f"The house number {i} was old. {'ລາວ' * 40} ☃" for i in range(40)]
    lao = write_jsonl(tmp_path / "lao.jsonl", texts)
    given = (
        "--corpus", "lao", "--input", lao, "--workers", 1, "--engine", engine,
        "--set", "data.tokenizer=wordpiece", "--set", "encoder.position_offset=1",
        *tiny(tmp_path / "tokenizer", tmp_path / "out"),
    )  # fmt: skip
    message = r"corpus lao: 8\d\.\d% .* 80 \[UNK\] tokens, more than 10%; .*--allow-unknown"
    assert re.search(message, run(*given, code=2))
    assert not (tmp_path / "out" / MANIFEST).exists()
    warning = r"warning: 80 unknown tokens stand for 4,840 characters, 8\d\.\d+% of the text"
    assert re.search(f"lao: {warning}", run(*given, "--allow-unknown"))
    assert re.search(f"   {warning}", call(inspect.main, tmp_path / "out", "--verify"))
    corpus = read_manifest(tmp_path / "out").corpora["lao"]
    assert corpus["unknown"] == {"tokens": 80, "characters": 40 * 121}
    assert corpus["characters"] == sum(map(len, texts)) and corpus["validation_sequences"] > 0


def test_languages_are_recorded_and_change_no_row(
    tiny_tokenizer: Path,
    tmp_path: Path,
    run: Prepare,
    call: Call,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also in complete shards, whose other entries and files stay."""
    folder = tmp_path / "text"
    for name in ("en-web", "en-wiki", "sw"):
        (folder / name).mkdir(parents=True)
        write_jsonl(folder / name / "a.jsonl", TEXTS)
    given = ("--corpus", "own", "--input", folder, "--by-folder", "--workers", 1)
    first, second = tmp_path / "first", tmp_path / "second"
    run(*given, *tiny(tiny_tokenizer, first))
    plain = read_manifest(first)
    assert not any("language" in about for about in plain.corpora.values())
    said = run(*given, *tiny(tiny_tokenizer, second), "--languages", "by-folder")
    assert "languages: 3 corpora in 2: en 2, sw 1" in said
    recorded = read_manifest(second)
    known = {name: about.pop("language") for name, about in recorded.corpora.items()}
    assert known == {"en-web": "en", "en-wiki": "en", "sw": "sw"}
    assert recorded == plain  # fingerprint, shards and hashes, too
    again = (*given, *tiny(tiny_tokenizer, first), "--languages")
    assert "recorded the languages of its corpora" in run(*again, "by-folder", "sw=swa")
    now = read_manifest(first)
    assert [about["language"] for about in now.corpora.values()] == ["en", "en", "swa"]
    assert "recorded the" not in run(*given, *tiny(tiny_tokenizer, first))  # and they stay
    assert read_manifest(first) == now
    assert "language: swa" in call(inspect.main, first, "--verify")

    def refuse(path: Path, content: bytes) -> None:
        raise publication.DataError(f"{path} cannot be written")

    monkeypatch.setattr(publication, "write_whole", refuse)
    assert "warning: the languages of its corpora are not recorded" in run(*again, "yo")
    for words, message in (
        (["xx1"], "--languages: 'xx1' is not a language"),
        (["de=de"], "--languages de=de: the input has no corpus de; did you mean"),
        (["en", "sw"], "--languages en sw: only one may be for all corpora"),
    ):
        error = run(*given, *tiny(tiny_tokenizer, tmp_path / "no"), "--languages", *words, code=2)
        assert message in error and error.count("\n") == 1
    assert not (tmp_path / "no").exists()
