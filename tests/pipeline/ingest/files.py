"""Files that tests write, and the records that are read of them."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pipeline.ingest.documents.read import cut, read
from pipeline.ingest.documents.records import BadRecord, Dropped, Extract, Record, Source
from pipeline.ingest.documents.sniff import sniff

LINE = '{"text": "One. Two."}\n'


def put(path: Path, content: bytes | str = LINE) -> Path:
    """Write a file, and the folders that it is in."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def put_all(folder: Path, *names: str) -> Path:
    """Write files of one record each."""
    for name in names:
        put(folder / name)
    return folder


def sniffed(path: Path, content: bytes | str | None = None, **options: Any) -> Source:
    """The source of a file of a corpus x, which is written first if there is a content for it."""
    if content is not None:
        put(path, content)
    return sniff(path, "x", path.name, **options)


def read_all(*sources: Source, piece_bytes: int = 1 << 20) -> list[Record | Dropped | BadRecord]:
    """What is read of files that are cut into pieces."""
    return [
        item for source in sources for piece in cut(source, piece_bytes) for item in read(piece)
    ]


def texts_of(items: Iterable[object]) -> list[str]:
    """The texts of those that have one."""
    return [item.text for item in items if isinstance(item, (Record, Extract))]


def bad_of(items: Iterable[object]) -> list[BadRecord]:
    return [item for item in items if isinstance(item, BadRecord)]


def good_of(items: Iterable[object]) -> list[object]:
    return [item for item in items if not isinstance(item, BadRecord)]
