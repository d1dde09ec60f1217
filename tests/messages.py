"""Every sentence that the product can print, in one file that a person reads in review.

    python -m tests.messages        writes tests/messages.txt anew

The sentences are taken from the source, so that those are there, too, which no test provokes. Tests
ask for an error's kind and the values that it names; how it is worded is seen here, in the change.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SNAPSHOT = Path(__file__).with_suffix(".txt")
FEWEST_WORDS = 3
"""Of a sentence; what has fewer is mostly a name or a part of a command."""
_WORD = re.compile(r"(?<!\S)[a-z]{2,}[,;:.]?(?!\S)")


def sentences(source: str) -> Iterator[str]:
    """The sentences of a Python file, in its order, one line each; `{width}` is a value.

    Docstrings and comments are for readers of the code, and are none.
    """
    tree = ast.parse(source)
    bare = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for text, words in _strings(tree, bare):
        if len(_WORD.findall(words)) >= FEWEST_WORDS:
            yield " ".join(text.split())


def _strings(node: ast.AST, bare: set[int]) -> Iterator[tuple[str, str]]:
    """Each string at or below a node, and what of it is not a value."""
    if isinstance(node, ast.JoinedStr):
        # An f-string's own constants are parts of its sentence; strings in its values are not.
        fixed = [part.value if isinstance(part, ast.Constant) else " " for part in node.values]
        yield "".join(map(_shown, node.values)), "".join(map(str, fixed))
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                yield from _strings(part.value, bare)
    elif isinstance(node, ast.Constant):
        if isinstance(node.value, str) and id(node) not in bare:
            yield node.value, node.value
    else:
        for child in ast.iter_child_nodes(node):
            yield from _strings(child, bare)


def _shown(part: ast.expr) -> str:
    """A part of an f-string; a value has its name only, which every Python version parses alike."""
    if isinstance(part, ast.Constant):
        return str(part.value)
    assert isinstance(part, ast.FormattedValue)
    value = part.value
    if isinstance(value, ast.Call):
        value = value.func
    name = value.attr if isinstance(value, ast.Attribute) else getattr(value, "id", "...")
    return f"{{{name}}}"


def snapshot() -> str:
    """The text of tests/messages.txt: each file with its sentences below it."""
    parts = []
    for path in sorted(
        path for room in ("model", "pipeline") for path in ROOT.glob(f"{room}/**/*.py")
    ):
        found = list(sentences(path.read_text(encoding="utf-8")))
        if found:
            parts.append("\n    ".join((path.relative_to(ROOT).as_posix(), *found)))
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    SNAPSHOT.write_text(snapshot(), encoding="utf-8")
