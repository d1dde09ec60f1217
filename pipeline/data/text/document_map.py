"""A function of the user's that each document passes before anything else sees its text: `--map`.

`--map tidy.py:tidy` calls `tidy` of that file in every worker, with a `Document`. It returns a
document with another text, or only the text; None, or `Drop` with a reason, drops the document.
An exception makes the record unusable, which is counted (`--max-bad-fraction`); a result of another
type, or the end of the program (`sys.exit`), is an error.

The function must give the same for the same document: a document is read several times, by the
workers that choose held-out documents, compare copies and pack. Nothing can check that. Shards are
known by the hash of the file, not of what it imports.
"""

from __future__ import annotations

import hashlib
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from pipeline.base.errors import ConfigError, DataError, OutputLost, described
from pipeline.ingest.documents.records import BadRecord, Dropped, Rewriting

MAP = "map"
"""Prefix of the reasons of documents that the function drops."""
FAILED = f"{MAP} raised"
"""Prefix of the reasons of records on which the function failed."""
_LONGEST_REASON = 100  # characters
_MODULE = "tenfold_map"


@dataclass(frozen=True, slots=True)
class Document:
    """The argument of a map function, which may return it with another text."""

    text: str
    """Text as it was read, before cleaning."""
    id: str
    """Its file and place, e.g. news.jsonl@1048576."""
    corpus: str
    origin: str
    """Its URL, path or id field, else the file's name."""
    language: str = ""
    """ISO 639-1 code that extraction found in pages and dumps; empty: unknown."""
    date: str = ""
    """Time at which a page was fetched or revised, 2016-04-22T10:19:33Z; empty: unknown."""
    fields: dict[str, Any] = field(default_factory=dict, compare=False)
    """The whole record of JSON or a table, as JSON has it; empty for other formats."""


@dataclass(frozen=True, slots=True)
class Drop:
    """Returned by a map function to drop the document."""

    reason: str
    """A few words, of which a function has few: they are counted."""


DocumentMap = Callable[[Document], object]


def find_map(given: str) -> Rewriting:
    """The function that FILE.py:FUNCTION names. Raises ConfigError if it cannot be called."""
    file, _, function = given.rpartition(":")
    if not file.endswith(".py") or not function.isidentifier():
        raise ConfigError(f"--map {given}: name a file and a function in it, e.g. tidy.py:tidy")
    path = str(Path(file).absolute())
    found = Rewriting(path, function, hashlib.sha256(_content(path)).hexdigest())
    load_map(found)  # fails here, before any worker starts
    return found


def _content(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"--map: cannot read {path}: {error.strerror}") from error


def load_map(rewriting: Rewriting) -> DocumentMap:
    """The function. Raises ConfigError if there is none, or the file has changed."""
    return _load_function(rewriting.path, rewriting.function, rewriting.sha256)


# once per worker, not once per document
@lru_cache(maxsize=1)
def _load_function(path: str, name: str, sha256: str) -> DocumentMap:
    content = _content(path)
    if hashlib.sha256(content).hexdigest() != sha256:
        raise ConfigError(f"--map: {path} changed while the command ran; run it again")
    spec = spec_from_file_location(_MODULE, path)
    assert spec
    module = module_from_spec(spec)
    sys.modules[_MODULE] = module  # dataclasses look up their module
    try:
        # What was hashed, rather than a compiled copy that Python keeps by the file's date.
        exec(compile(content, path, "exec"), module.__dict__)
    except (KeyboardInterrupt, OutputLost):
        raise
    except BaseException as error:  # whatever the user's own code raises, SystemExit too
        raise ConfigError(f"--map: {path} fails: {_explain(error, path)}; fix it") from error
    found = getattr(module, name, None)
    if not callable(found):
        what = "is not a function" if hasattr(module, name) else "does not exist"
        raise ConfigError(f"--map: {name} {what} in {path}; name a function of the file")
    return found  # type: ignore[no-any-return]


def apply_map(rewriting: Rewriting, document: Document) -> str | Dropped | BadRecord:
    """The text that the function gives for a document, or why there is none.

    Raises DataError if it returns anything else than a text, a document, None or `Drop`.
    """
    function = load_map(rewriting)
    try:
        found = function(document)
    except (MemoryError, KeyboardInterrupt, OutputLost):  # says nothing about the document
        raise
    except Exception as error:
        about = _explain(error, rewriting.path)
        size = len(document.text.encode(errors="replace"))
        return BadRecord(document.id, f"{FAILED} {type(error).__name__}", about, size)
    except BaseException as error:  # SystemExit would end the command, and sys.exit(0) as success
        raise DataError(
            f"--map: {rewriting.function} ended at {document.id} with "
            f"{_explain(error, rewriting.path)}; return None to drop a document"
        ) from error
    if isinstance(found, str):
        return found
    if found is None:
        return Dropped(document.id, MAP)
    if isinstance(found, Drop) and _is_reason(found.reason):
        return Dropped(document.id, f"{MAP}: {found.reason}")
    if isinstance(found, Document) and isinstance(found.text, str):
        if replace(found, text=document.text) == document:
            return found.text
        what = "a document with another id, corpus, origin, language or date"
    else:
        what = f"Drop({found.reason!r})" if isinstance(found, Drop) else type(found).__name__
    raise DataError(
        f"--map: {rewriting.function} returned {what} for {document.id}; return the document with "
        f"another text, a text, None, or Drop with a reason of at most {_LONGEST_REASON} characters"
    )


def _is_reason(reason: object) -> bool:
    return (
        isinstance(reason, str)
        and reason.isprintable()
        and 0 < len(reason.strip()) == len(reason) <= _LONGEST_REASON
    )


def _explain(error: BaseException, path: str) -> str:
    """The error, and the last line of the user's file that it came from."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__)
             if frame.filename == path]  # fmt: skip
    line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else None
    where = f" at {Path(path).name}:{line}" if line else ""
    return f"{described(error)}{where}"
