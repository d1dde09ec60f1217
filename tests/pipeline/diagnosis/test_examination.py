"""What the doctor looks at besides the checks that have a file each."""

from pathlib import Path

from pipeline.data.tokenizers.vocabulary import Vocabulary
from pipeline.released.choice import head_advice, read_recipe
from tests.pipeline.released.models import save_model
from tests.pipeline.test_doctor import by_name, doctor


def test_lacking_heads_are_named(word_vocabularies: dict[str, Vocabulary], tmp_path: Path) -> None:
    """In the words of `pipeline.plan`; a recipe's name has no such check."""
    model = save_model("BertForMaskedLM", tmp_path / "model", word_vocabularies["wordpiece"])
    advice = head_advice(read_recipe(str(model)))
    for changes, status, said in (
        ([], "warn", advice),
        (["--set", "objective.kind=mlm"], "ok", "all that objective.kind=mlm trains; "),
    ):
        ((code, output, _),) = doctor(1, "--recipe", model, *changes, "--json")
        found = by_name(output)["heads"]
        assert (code, found["status"]) == (0, status)
        assert f"{found['value']}; {found['remedy']}" == said
    assert "which objective.kind=mlm_pair trains; " in str(advice)


def test_one_rank_has_nobody_to_exchange_with() -> None:
    ((code, output, _),) = doctor(1, "--full", "--json")
    assert code == 0 and by_name(output)["all-reduce"]["status"] == "skipped"
