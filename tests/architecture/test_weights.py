"""No room grows: code is taken away before some is added."""

from pathlib import Path

from tests.architecture.weights import Weight, read_table, room_of, weight_of, weights

SLACK = 0.02
"""Share of a room's code by which its number may be too high."""


def test_no_room_is_over_its_number() -> None:
    table = read_table()
    for room, now in weights().items():
        most = table.get(room, Weight(0, 0))
        assert now.lines <= most.lines and now.tokens <= most.tokens, (
            f"{room} has {now.lines} lines of code with {now.tokens} tokens, at most {most.lines} "
            f"with {most.tokens}; take some away, here or in another room"
        )


def test_numbers_fall_with_the_code() -> None:
    now = weights()
    late = [
        room for room, most in read_table().items()
        if room not in now or now[room].lines < (1 - SLACK) * most.lines
    ]  # fmt: skip
    assert not late, f"{', '.join(late)}: run python -m tests.architecture.weights"


def test_comments_docstrings_and_imports_weigh_nothing() -> None:
    source = (
        '"""Says.\n\nMore."""\n\nimport os\nfrom a import (\n    b,\n)\n\n# why\nx = f(b)  # so\n'
    )
    assert weight_of(source) == Weight(1, 6)
    assert weight_of('def f():\n    """Does."""\n    return "text"\n') == Weight(2, 7)


def test_rooms() -> None:
    rooms = {
        "pipeline/train.py": "pipeline/*.py", "pipeline/data/text/words.py": "pipeline/data",
        "model/encoder.py": "model", "model/tasks/heads.py": "model",
        "model/kernels/norm.py": "model/kernels",
    }  # fmt: skip
    assert {path: room_of(Path(path)) for path in rooms} == rooms
