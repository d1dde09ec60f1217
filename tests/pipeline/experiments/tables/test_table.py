import re

import pytest

from pipeline.base.errors import ConfigError
from pipeline.experiments.tables.table import Arm, Table, run_of

ONE, TWO = Arm("one", "roberta_tiny", ()), Arm("two", "roberta_tiny", ("steps=10",))


def table(*arms: Arm, baseline: str = "one") -> Table:
    return Table("mine", "", "", baseline, arms, (), "")


def test_all_contradictions_of_an_arm_are_in_one_line_that_names_it() -> None:
    for recipe, changes, said in (
        ("roberta_tiny", ("encoder.heads=3", "data.mask_mode=static"),
         ("encoder.heads=2", "data.duplicates=1")),
        ("roberta_tiny", ("encoder.head=4",), ("did you mean encoder.heads?",)),
        ("roberta_tini", (), ("did you mean roberta_tiny?",)),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=f"^arm odd of {recipe}: ") as raised:
            run_of(Arm("odd", recipe, changes))
        message = str(raised.value)
        assert all(part in message for part in said) and "\n" not in message


def test_a_table_has_two_arms_each_a_recipe_with_a_name_and_changes() -> None:
    assert table(ONE, TWO).arms == (ONE, TWO)
    for arms, said in (
        ((ONE,), "mine has 1 arms"),
        ((ONE, ONE), "several arms called one"),
        ((ONE, Arm("../x", "roberta_tiny", ())), "called '../x'"),
    ):
        with pytest.raises(ConfigError, match=re.escape(said)):
            table(*arms)
    with pytest.raises(ConfigError, match=r"three, .* one, two"):
        table(ONE, TWO, baseline="three")
    assert run_of(ONE).steps == 2_400
    assert run_of(TWO).steps == 10
    assert (ONE.source, ONE.published) == ("", {})
