"""Code lines and tokens of each room, and the most that it may have.

    python -m tests.architecture.weights        lowers the numbers of weights.txt to today's

A code line is none of: blank, comment, docstring, import. Tokens are those of code lines, so that
denser lines gain nothing. Numbers only fall: a room that needs more takes it from another, by hand.
"""

import ast
import io
import tokenize
from collections import Counter
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
TABLE = Path(__file__).with_suffix(".txt")
TOPS = ("model", "pipeline")
MARKS = ("fmt: skip", "noqa", "type: ignore")
_NO_CODE = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
    tokenize.ENCODING, tokenize.ENDMARKER,
}  # fmt: skip


class Weight(NamedTuple):
    """Of a room's sources."""

    lines: int
    tokens: int


def weights() -> dict[str, Weight]:
    """Room -> weight; marks that switch a check off are counted in `lines`."""
    lines: Counter[str] = Counter()
    tokens: Counter[str] = Counter()
    for top in TOPS:
        for path in sorted((ROOT / top).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            weight, room = weight_of(text), room_of(path.relative_to(ROOT))
            lines[room] += weight.lines
            tokens[room] += weight.tokens
            lines.update({mark: text.count(mark) for mark in MARKS})
    return {room: Weight(count, tokens[room]) for room, count in sorted(lines.items())}


def weight_of(source: str) -> Weight:
    """Code lines of a Python file, and the tokens on them."""
    lines = source.splitlines()
    other = {
        number for number, line in enumerate(lines, 1)
        if not line.strip() or line.lstrip().startswith("#")
    }  # fmt: skip
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            other |= _lines(node)
        body = node.body if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) else []
        other = other.union(*(_lines(part) for part in body if _is_text(part)))
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    count = sum(token.type not in _NO_CODE and token.start[0] not in other for token in tokens)
    return Weight(len(lines) - len(other), count)


def _is_text(part: ast.stmt) -> bool:
    return (
        isinstance(part, ast.Expr)
        and isinstance(part.value, ast.Constant)
        and isinstance(part.value.value, str)
    )


def _lines(node: ast.stmt) -> set[int]:
    return {*range(node.lineno, (node.end_lineno or node.lineno) + 1)}


def room_of(path: Path) -> str:
    """The room of a source, which is relative to the root; commands are one."""
    top, *folders = path.parent.parts
    if top == "model":
        return "model/kernels" if folders[:1] == ["kernels"] else "model"
    return "/".join((top, *folders[:1])) if folders else "pipeline/*.py"


def read_table() -> dict[str, Weight]:
    """Room -> the most that it may have."""
    rows = (line.rsplit(maxsplit=2) for line in TABLE.read_text(encoding="utf-8").splitlines()[1:])
    return {room: Weight(int(lines), int(tokens)) for room, lines, tokens in rows}


def lower() -> None:
    """Lower the table's numbers to today's; none is raised."""
    now = weights()
    rows = {
        room: Weight(*map(min, most, now[room])) for room, most in read_table().items()
        if room in now
    }  # fmt: skip
    head = f"{'room':22} {'lines':>7} {'tokens':>8}"
    table = [f"{room:22} {most.lines:7} {most.tokens:8}" for room, most in rows.items()]
    TABLE.write_text("\n".join((head, *table)) + "\n", encoding="utf-8")


if __name__ == "__main__":
    lower()
