import pytest

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
        ("sample --input x", "drop --input"),
        ("sample --tokenizer /nonexistent", "no such directory"),
        ("sample --max-bad-fraction 1.5", "--max-bad-fraction 1.5"),
        ("sample --part 5/4", "1/4 to 4/4"),
        ("wikipedia --dump 2019-02", "files of cc-news, not of wikipedia"),
        ("sample --dump enwiki/20260101", "files of wikipedia, not of sample"),
        ("16gb --dump 2019-02", "files of cc-news, not of 16gb"),
        ("wikipedia --dump dewiki/20260101 enwiki/20260101", "give one wiki and a date"),
        ("stories@main --input x", "stories@main applies to the Hub's copy"),
        ("sample@main", "sample@main: sample is not on the Hub"),
        ("cc-news --dump 2019-02 --input x", "--dump and --input both give"),
    ],
)
def test_bad_arguments_are_one_line(arguments: str, message: str, run: Prepare) -> None:
    error = run("--corpus", *arguments.split(), code=2)
    assert error.startswith("error: ") and error.count("\n") == 1 and message in error
