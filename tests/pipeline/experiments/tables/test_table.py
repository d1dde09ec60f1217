from __future__ import annotations

import pytest

from pipeline.base.errors import ConfigError
from pipeline.experiments.tables.table import Arm, Table, run_of

ONE, TWO = Arm("one", "roberta_tiny", ()), Arm("two", "roberta_tiny", ("steps=10",))


def table(*arms: Arm, baseline: str = "one") -> Table:
    return Table("mine", "", "", baseline, arms, (), "")


def test_an_arm_is_its_recipe_with_its_changes() -> None:
    assert run_of(ONE).steps == 2_400
    assert run_of(TWO).steps == 10
    assert (ONE.source, ONE.published) == ("", {})


def test_all_contradictions_of_an_arm_are_in_one_line() -> None:
    arm = Arm("odd", "roberta_tiny", ("encoder.heads=3", "data.mask_mode=static"))
    with pytest.raises(ConfigError) as raised:
        run_of(arm)
    message = str(raised.value)
    assert message.startswith("arm odd of roberta_tiny: ")
    assert "encoder.heads=2" in message and "data.duplicates=1" in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("arm", "said"),
    [
        (Arm("odd", "roberta_tiny", ("encoder.head=4",)), "did you mean encoder.heads?"),
        (Arm("odd", "roberta_tini", ()), "did you mean roberta_tiny?"),
    ],
)
def test_a_wrong_name_is_an_error_of_its_arm(arm: Arm, said: str) -> None:
    with pytest.raises(ConfigError, match=r"^arm odd of roberta_tin[iy]: ") as raised:
        run_of(arm)
    assert said in str(raised.value)


def test_a_table_has_two_arms_with_names_of_their_own() -> None:
    assert table(ONE, TWO).arms == (ONE, TWO)
    for arms, said in (
        ((ONE,), "mine has 1 arms, and a comparison needs two"),
        ((ONE, ONE), "several arms called one"),
        ((ONE, Arm("../x", "roberta_tiny", ())), "called '../x', which cannot name a directory"),
    ):
        with pytest.raises(ConfigError) as raised:
            table(*arms)
        assert said in str(raised.value)
    with pytest.raises(ConfigError, match=r"no arm called three, .* choose one of one, two"):
        table(ONE, TWO, baseline="three")
