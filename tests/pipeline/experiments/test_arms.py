from pathlib import Path

import pytest

from pipeline.base.errors import ConfigError
from pipeline.experiments import arms
from pipeline.experiments.arms import SCALES, TABLES, Arm, arms_from_file, run_of, table

EVERY = [(name, scale) for name in TABLES for scale in SCALES]
ONE = "from pipeline.experiments.arms import Arm\n"
FILE = """ARMS = [
    Arm("short", "roberta_tiny", ("steps=10",)), Arm("long", "roberta_tiny", ("steps=20",)),
]"""


@pytest.mark.parametrize(("name", "scale"), EVERY)
def test_every_arm_is_a_run_that_reads_as_many_tokens(name: str, scale: str) -> None:
    found = table(name, scale)
    assert found.name == name and found.title and found.source
    tokens = set()
    for arm in found.arms:
        run = run_of(arm)
        assert set(arm.published) <= set(found.measures), arm.name
        assert arm.source, arm.name
        step = run.batch.step_tokens or run.batch.sequences * run.data.sequence_length
        tokens.add((run.steps, step, run.data.sequence_length))
    assert len(tokens) == 1


def test_arms_of_tables_and_of_arguments() -> None:
    with pytest.raises(ConfigError, match="did you mean roberta/masking"):
        table("roberta/maskin", "smoke")
    with pytest.raises(ConfigError, match=r"'large'.* smoke, mini, base"):
        table("roberta/masking", "large")
    found = arms.arms_from_arguments("roberta_tiny", [("a", []), ("b", ["steps=7"])])
    assert found.baseline == "a"
    assert found.arms == (Arm("a", "roberta_tiny", ()), Arm("b", "roberta_tiny", ("steps=7",)))


def test_a_file_of_arms_is_the_users_program(tmp_path: Path) -> None:
    path = tmp_path / "lengths.py"
    path.write_text(ONE + FILE)
    found = arms_from_file(path)
    assert (found.name, found.baseline, found.title) == (str(path), "short", "short, long")
    assert [run_of(arm).steps for arm in found.arms] == [10, 20]


def test_a_file_without_arms_is_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "arms.py"
    for text, said in (
        ("x = 1\n", "defines no ARMS"),
        ("ARMS = 3\n", "not a list"),
        ("ARMS = []\n", "has 0 arms"),
        ("ARMS = [\n", ", line 1: SyntaxError: '[' was never closed"),
        ("\n\nARMS = missing\n", ", line 3: NameError: name 'missing' is not defined"),
        ("import sys\nsys.exit(3)\n", ", line 2: SystemExit: 3"),
        ("class Mute(Exception):\n    __str__ = None\nraise Mute\n", ", line 3: Mute"),
        (f"{ONE}ARMS = [Arm(1, 'x', ()), Arm('b', 'x', ())]", "[0] has name=1,"),
        (f"{ONE}ARMS = [Arm('a', [], ()), Arm('b', 'x', ())]", "recipe=[],"),
        (f"{ONE}ARMS = [Arm('a', 'x', 'y=1')]", "changes='y=1',"),
        (f"{ONE}ARMS = [Arm('a', 'x', (1,))]", "changes=(1,),"),
        (f"{ONE}ARMS = [Arm('a', 'x', (), '', 3)]", "published=3,"),
        ("from pipeline.recipes import recipe\nrecipe('x')\n", "py, line 2: unknown recipe 'x'"),
    ):
        path.write_text(text)
        with pytest.raises(ConfigError) as raised:
            arms_from_file(path)
        assert said in str(raised.value) and "\n" not in str(raised.value)
    with pytest.raises(ConfigError, match="absent is not"):
        arms_from_file(tmp_path / "absent")
