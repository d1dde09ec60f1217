"""What is checked before finished parts become shards."""

import json
import re
from pathlib import Path

from pipeline.data.shards.manifest import MANIFEST, read_manifest
from pipeline.data.tokenizers.folders import save_vocabulary
from pipeline.data.tokenizers.vocabulary import Vocabulary
from tests.pipeline.preparing import Call, Prepare, tiny, write_jsonl

TEXTS = [f"The house number {i} was old. Nobody lived there." for i in range(40)]


def test_unknown_text_is_counted_reported_and_refused(
    word_vocabularies: dict[str, Vocabulary], tmp_path: Path, run: Prepare, show: Call
) -> None:
    """In train and held-out documents; an unspaced run of over 100 characters is one token. The
    mask is shown by the tokenizer's own name."""
    save_vocabulary(word_vocabularies["wordpiece"], tmp_path / "tokenizer", 32)
    texts = [f"The house number {i} was old. {'ລາວ' * 40} ☃" for i in range(40)]
    lao = write_jsonl(tmp_path / "lao.jsonl", texts)
    given = (
        "--corpus", "lao", "--input", lao, "--workers", 1, "--set", "data.tokenizer=wordpiece",
        "--set", "encoder.position_offset=1",
        *tiny(tmp_path / "tokenizer", tmp_path / "out"),
    )  # fmt: skip
    assert re.search(r"corpus lao: 8\d\.\d% .* 80 \[UNK\] .*--allow-unknown", run(*given, code=2))
    assert not (tmp_path / "out" / MANIFEST).exists()
    warning = r"warning: 80 unknown tokens stand for 4,840 characters, 8\d\.\d+% of the text"
    assert re.search(f"lao: {warning}", run(*given, "--allow-unknown"))
    shown = show(tmp_path / "out", "--verify")
    assert re.search(f"   {warning}", shown)
    assert "% [MASK], " in shown and "M [MASK]  R random id" in shown and "<mask>" not in shown
    corpus = read_manifest(tmp_path / "out").corpora["lao"]
    assert corpus["unknown"] == {"tokens": 80, "characters": 40 * 121}
    assert corpus["characters"] == sum(map(len, texts)) and corpus["validation_sequences"] > 0


def test_words_between_white_space_are_counted_by_corpus_and_split(
    tmp_path: Path, make: Prepare, show: Call
) -> None:
    """Of what is left after cleaning, whatever the spaces and scripts; older shards do not say."""
    spaces = ("\t", "\u00a0", "\u3000 ", "\n\n", "\u2028", "  \r\n")
    texts = [f"naïve{space}«word»,{space}中文 {i}{space}—{space}x-y" for i, space in
             enumerate(spaces * 7)] + [" \u200b \u00ad"]  # fmt: skip
    for name, its in (("one", texts), ("two", TEXTS)):
        (tmp_path / "own" / name).mkdir(parents=True)
        write_jsonl(tmp_path / "own" / name / "a.jsonl", its)
    said = make("--corpus", "own", "--input", tmp_path / "own", "--by-folder")
    assert f"prepared {42 + 40} documents, {42 * 6 + 40 * 9} words, " in said
    path = tmp_path / "out" / MANIFEST
    content = json.loads(path.read_bytes())
    for corpus, words, each in (("one", 42 * 6, 6), ("two", 40 * 9, 9)):
        about = content["corpora"][corpus]
        held_out = about.pop("validation_words")
        assert about.pop("words") == words and held_out == 4 * each  # a tenth of the documents
        assert f" documents        {words} words " in show(tmp_path / "out")
    path.write_text(json.dumps(content))
    assert " words" not in show(tmp_path / "out")
