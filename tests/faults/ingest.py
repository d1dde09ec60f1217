"""Mistakes in `pipeline/ingest/`."""

FAULTS = {
    "pipeline/ingest/compression/bzip2.py": [
        (
            "marks inside a byte are not found",
            "mark >> shift & (1 << 40) - 1",
            "mark << shift & (1 << 40) - 1",
        ),
    ],
    "pipeline/ingest/compression/frames.py": [
        (
            "frames at the edge of a block are missed",
            "start += len(data) - len(magic) + 1",
            "start += len(data)",
        ),
    ],
    "pipeline/ingest/compression/codecs.py": [
        (
            "skippable frames end a file",
            "while _is_skippable(rest) and len(rest) >= 8:",
            "while False:",
        ),
    ],
    "pipeline/ingest/documents/byte_blocks.py": [
        (
            "a read stops early",
            "while wanted > 0 and (block := file.read(min(size, wanted))):",
            "while wanted > size and (block := file.read(min(size, wanted))):",
        ),
    ],
    "pipeline/ingest/documents/plain_text.py": [
        (
            "lines have wrong numbers",
            "yield from _decoded(content, at, number - 1, where)",
            "yield from _decoded(content, at, number, where)",
        ),
    ],
    "pipeline/ingest/documents/csv_tables.py": [
        ("a table with one column", "if len(names) < 2 or {*names}", "if {*names}"),
    ],
    "pipeline/ingest/documents/json_lines.py": [
        ("byte counts lack the line's end", "position += len(line) + 1", "position += len(line)"),
    ],
    "pipeline/ingest/documents/read.py": [
        (
            "the last piece of a file is lost",
            "min(start + piece_bytes, source.size) for start",
            "min(start + piece_bytes, source.size - 1) for start",
        ),
    ],
    "pipeline/ingest/encodings/decoding.py": [
        (
            "the likeliest encoding loses",
            "return min(found, key=lambda name",
            "return max(found, key=lambda name",
        ),
    ],
    "pipeline/ingest/extraction/packs.py": [
        (
            "files of other corpora share a pack",
            "small and source.corpus == run[-1].corpus",
            "small",
        ),
    ],
    "pipeline/ingest/extraction/document_tables.py": [
        (
            "the last row of a table is lost",
            "table.slice(start, last + 1 - start)",
            "table.slice(start, last - start)",
        ),
    ],
    "pipeline/ingest/extraction/warc.py": [
        ("a record at a unit's end is read twice", "if place >= start:", "if place > start:"),
    ],
    "pipeline/ingest/corpora/common_crawl.py": [
        ("the last month is left out", "_number(bounds[1]) + 1)}", "_number(bounds[1]))}"),
    ],
    "pipeline/ingest/corpora/groups.py": [
        (
            "a short corpus passes",
            "if found[member] < (1 - SHORT_SHARE) * size",
            "if found[member] < SHORT_SHARE * SHORT_SHARE * size",
        ),
    ],
    "pipeline/ingest/corpora/input_files.py": [
        (
            "hidden files are read",
            'if not entry.name.startswith("."):',
            "if True:",
            "tests/pipeline/ingest/corpora/test_sources.py",
        ),
    ],
    "pipeline/ingest/wikitext/prose.py": [
        (
            "headings below a skipped one are kept",
            "if skipped and node.level > skipped:",
            "if skipped and node.level > skipped + 1:",
        ),
        (
            "five quotes are bold alone",
            "kept = [1 if size == 4 else max(0, size - 5)",
            "kept = [1 if size == 4 else max(0, size - 6)",
        ),
    ],
    "pipeline/ingest/wikitext/templates.py": [
        ("the last value is lost", "if index < len(values):", "if index < len(values) - 1:"),
    ],
    "pipeline/ingest/wikitext/variants.py": [
        (
            "rules in rules are not read",
            'mark == "-{" and depth < _MOST_NESTED',
            'mark == "-{" and depth < 1',
        ),
    ],
    "pipeline/ingest/extraction/zip_archives.py": [
        ("bombs are read", "if packed > size or unpacked > max", "if packed > size or 0 > max"),
    ],
    "pipeline/ingest/encodings/utf.py": [
        (
            "other encodings are read as damaged UTF-8",
            ">= _CHARACTERS * damaged",
            ">= _CHARACTERS * damaged // 9",
        ),
        (
            "Greek in the wrong order is Korean",
            "return max(found, key=lambda name",
            "return min(found, key=lambda name",
        ),
    ],
}
