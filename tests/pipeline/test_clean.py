"""What shards were made of is kept; the rest goes with --yes, and is made again when needed."""

from pathlib import Path

import pytest

from pipeline import clean, prepare
from tests.golden.recording import TOKENIZERS, VOCAB_SIZE
from tests.pipeline.data.leftovers.stored import age, extracted_dump
from tests.pipeline.ingest.dump import dump, page
from tests.pipeline.preparing import Call, contents, tiny


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TENFOLD_ROOT", str(tmp_path / "root"))
    return tmp_path / "root"


def test_prepare_then_clean_then_prepare(root: Path, call: Call) -> None:
    pages = [page(n, f"Duck {n}", f"A '''duck''' of {n}. It swims.") for n in range(1, 31)]
    mine = extracted_dump(root, "mine.xml", dump(pages))
    other = extracted_dump(root, "other.xml")
    output = root / "shards" / "mine"
    command = (
        prepare.main, "--corpus", "wikipedia", "--input", root.parent / "mine.xml", "--workers", 1,
        *tiny(TOKENIZERS / "byte-bpe", output), "--set", f"data.vocab_size={VOCAB_SIZE}",
    )  # fmt: skip
    call(*command)
    age(root)
    made = contents(root)
    listed = call(clean.main)
    assert "read what 1 complete shards in" in listed
    assert f"{mine}: extracted; again from {root.parent / 'mine.xml'} (0.0 MB); made of" in listed
    assert listed.index("no shards need:") < listed.index(str(other))
    assert "0.0 MB can go: rerun with --yes" in listed and contents(root) == made
    done = call(clean.main, "--yes")
    assert done.index("removed:") < done.index(str(other))
    assert mine.exists() and not other.exists()
    assert "nothing can be removed" in call(clean.main)
    assert "complete already" in call(*command)
    (output / "manifest.json").unlink()
    assert "maybe by a command that still runs" in call(clean.main, "--yes"), "it was used again"
    age(root)
    call(clean.main, "--yes")
    assert not mine.exists()
    assert extracted_dump(root, "mine.xml", dump(pages)) == mine


def test_bad_input_is_one_line(root: Path, call: Call) -> None:
    error = call(clean.main, code=2)
    assert error.startswith(f"error: {root} is not a directory; set TENFOLD_ROOT")
    assert error.count("\n") == 1
    root.mkdir()
    error = call(clean.main, "--data", root / "none", code=2)
    assert error == f"error: --data {root / 'none'} is not a directory of complete shards\n"
