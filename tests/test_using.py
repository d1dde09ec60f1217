"""The programs of USING.md with folders of every family; test_readme runs them with the first
page's model. Those of packages that `make venv` does not install skip without them."""

import shutil
from pathlib import Path

import pytest

from tests.pages import OTHERS, read_pages

EXPORTS = Path(__file__).parent / "golden" / "exports"
FOLDERS = {
    "roberta": "", "bert": "", "albert": "", "electra": "generator", "spanbert": "",
    "modernbert": "",
}  # fmt: skip
"""Of the export's folder, the one that predicts masked words."""
SPACED = ("roberta", "modernbert")
"""Families whose tokenizers mark a word by the space before it."""
MODEL = "runs/tiny-export"
CHECK = f"""
from transformers import AutoTokenizer
found = tokenizer(["Anna", "met", "Bo", "."], is_split_into_words=True)["input_ids"]
assert found == AutoTokenizer.from_pretrained({MODEL!r})(" Anna met Bo .")["input_ids"], found
"""
"""Lines to add to the program for words that are split already."""


def program(page_word: str) -> str:
    """The first program of the page with this word."""
    blocks = read_pages()["pipeline/USING.md"].blocks("python")
    return next(block for block in blocks if page_word in block)


@pytest.mark.parametrize("family", FOLDERS)
@pytest.mark.parametrize("package", ["transformers", *OTHERS])
def test_a_program_works_with_every_family(
    package: str, family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    pytest.importorskip(package)
    shutil.copytree(EXPORTS / family / FOLDERS[family], tmp_path / MODEL)
    monkeypatch.chdir(tmp_path)
    code = program("fill-mask" if package == "transformers" else package)
    exec(compile(code, "USING.md", "exec"), {})
    said = capsys.readouterr().out
    assert said.strip()
    if package == "sentence_transformers":
        assert "texts are cut at 32 tokens" in said


@pytest.mark.parametrize("family", SPACED)
def test_words_that_are_split_already_get_the_ids_of_their_text(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(EXPORTS / family, tmp_path / MODEL)
    monkeypatch.chdir(tmp_path)
    exec(compile(program("is_split_into_words") + CHECK, "USING.md", "exec"), {})
