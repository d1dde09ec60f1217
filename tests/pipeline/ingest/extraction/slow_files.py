"""Files that are slow to read, without extracting them to Parquet."""

from collections.abc import Iterator

from pipeline.ingest.documents.records import BadRecord, Extract, Source
from pipeline.ingest.extraction.units import FORMATS, SlowFormat
from pipeline.ingest.extraction.web_pages import without_repeats


def one_pass(source: Source) -> Iterator[Extract | BadRecord]:
    """The documents of a file, in order."""
    format = FORMATS[source.format]
    assert isinstance(format, SlowFormat)
    return format.begin(source)


def whole_web_file(source: Source) -> Iterator[Extract | BadRecord]:
    """The documents of a WARC or WET file, without the lines that its sites repeat."""
    pages = [*one_pass(source)]
    return without_repeats(source, lambda: iter(pages))
