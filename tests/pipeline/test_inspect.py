"""inspect looks at a path and shows what it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline import inspect
from tests.pipeline.preparing import Call


def test_a_path_is_shown_as_what_it_is(prepared: Path, tmp_path: Path, call: Call) -> None:
    """Shards, a tokenizer, documents and a run."""
    (tmp_path / "text.txt").write_text("The river is long.\n")
    run = Path(__file__).parents[1] / "golden" / "runs" / "bert"
    for path, said in {
        prepared: "  recipe ",
        prepared / "tokenizer": " ids; on the sample corpus:\n",
        tmp_path / "text.txt": "next: python -m pipeline.prepare --corpus ",
        run: f"{run}: a run",
    }.items():
        assert said in call(inspect.main, path)


@pytest.mark.parametrize("option", [("--html", "p.html"), ("--corpus", "x"), ("--decisions",)])
def test_options_for_documents_are_refused(
    option: tuple[str, ...], prepared: Path, call: Call
) -> None:
    error = call(inspect.main, prepared, *option, code=2)
    assert error == (
        f"error: --html, --corpus and --decisions are for documents; {prepared} has none\n"
    )
