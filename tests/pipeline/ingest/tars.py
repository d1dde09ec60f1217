"""Tar archives that tests write, and what is extracted from files."""

import io
import tarfile
from pathlib import Path

from pipeline.execution.workers import Executor, local_executor
from pipeline.ingest.documents.records import Source
from pipeline.ingest.extraction.extract import extract
from tests.pipeline.ingest.files import sniffed

Content = dict[str, bytes]

PAGES = {f"{number:07}-{number * 7:x}.txt": f"Page {number}.\n".encode() for number in range(300)}


def tar(content: Content, kind: int = tarfile.GNU_FORMAT) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=kind) as archive:
        for name, text in content.items():
            header = tarfile.TarInfo(name)
            header.size = len(text)
            archive.addfile(header, io.BytesIO(text))
    return buffer.getvalue()


def extracted(path: Path, output: Path, executor: Executor | None = None) -> Source:
    [made] = extract([sniffed(path)], output, executor or local_executor(1))
    return made
