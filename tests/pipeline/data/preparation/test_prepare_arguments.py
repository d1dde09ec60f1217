from pathlib import Path

import pytest

from pipeline.data.preparation.prepare_arguments import prepare_arguments
from tests.pipeline.preparing import Prepare


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("sample --recipe roberta_bse", "did you mean roberta_base"),
        ("sample --set data.sequence_lenght=64", "data.sequence_length"),
        ("sample --set data.segments.label=order", "full_sentences"),
        ("wikipedai", "did you mean wikipedia"),
        ("sample --allow-short", "16gb, 160gb"),
        ("160gb --recipe bert_base", "data.format=segment_pair"),
        ("nothing --explain", "did you mean"),
        ("sample --input x", "drop --input"),
        ("sample --tokenizer /nonexistent", "no such directory"),
        ("sample --workers 0", "--workers must be positive, got 0"),
        ("sample --max-bad-fraction 1.5", "--max-bad-fraction 1.5"),
        ("sample --against x", "--against compares documents as --dedup near"),
        ("sample --dedup exact --against x", "does, not as exact; add"),
        ("sample --keep-signatures", "--keep-signatures compares documents as"),
        *((f"sample --part={part}", f"--part {part}: ") for part in ("0/4", "5/4", "1", "1/0")),
        *((f"sample --part={part}", f"--part {part}: ") for part in ("a/b", "-1/4", "")),
        ("sample --part 5/4", "1/4 to 4/4"),
    ],
)
def test_bad_arguments_are_one_line(arguments: str, message: str, run: Prepare) -> None:
    error = run("--corpus", *arguments.split(), code=2)
    assert error.startswith("error: ") and error.count("\n") == 1 and message in error


def test_settings_are_chosen_by_recipe_or_by_run() -> None:
    for word, value, chosen in (
        ("--run", "a/run.json", (None, Path("a/run.json"))),
        ("--recipe", "bert_tiny", ("bert_tiny", None)),
    ):
        arguments = prepare_arguments(["--corpus", "sample", word, value])
        assert (arguments.recipe, arguments.run) == chosen
