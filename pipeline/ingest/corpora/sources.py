"""Named corpora, groups and paths -> their files, and how each file is read."""

from __future__ import annotations

import difflib
import re
import shlex
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import get_args

from pipeline.base.errors import ConfigError, DataError
from pipeline.base.skipped_names import SkippedNames
from pipeline.config.settings import nearest
from pipeline.ingest.corpora.catalogue import CORPORA, GROUPS, SAMPLE_CORPORA, Corpus
from pipeline.ingest.corpora.groups import entries_of, group_of, member_inputs, require_members
from pipeline.ingest.corpora.input_files import InputFile, find_files, in_threads, is_path
from pipeline.ingest.corpora.published_dumps import chosen_language
from pipeline.ingest.corpora.shapes import plain_text_notes
from pipeline.ingest.documents.records import FORMAT_NAMES, PlainText, Source
from pipeline.ingest.documents.sniff import sniff
from pipeline.ingest.extraction.packs import group_files

OWN = Corpus(description="the user's own", plain_text="blank_lines", licence="unknown")
MOST_NAMED = 8
"""Corpora that a description names."""
SAMPLE = "sample"
SAMPLE_FILES = Path(__file__).parent / "sample"
"""Texts that ship with the code; see CREDITS.md there."""


def corpus_sources(
    corpus: str,
    inputs: list[str],
    text_field: str = "",
    plain_text: str = "",
    published: Mapping[str, list[Source]] | None = None,
    by_folder: bool = False,
    is_mapped: bool = False,
) -> tuple[str, list[Source]]:
    """The corpus's name and its files, in an order that is the same on every machine.

    Small files are grouped, see `packs`; `Source.files` are those of a group.

    corpus: a name in CORPORA or GROUPS, `sample`, or a path; inputs: files, directories or globs,
    for a group in the form of `groups.member_inputs`; text_field and plain_text: override the
    corpus's own ("": no override); published: files of corpora from the lists of their publishers;
    by_folder: each entry of the one directory in `inputs` is a corpus of its own;
    is_mapped: as for `sniff`.
    """
    sources_of = partial(
        _sources, text_field=text_field, plain_text=plain_text, is_mapped=is_mapped
    )
    if by_folder:
        return corpus, _folder_sources(corpus, inputs, sources_of)
    published = published or {}
    if corpus == SAMPLE:
        if inputs:
            raise ConfigError("--corpus sample has its own files; drop --input")
        sources: list[Source] = []
        for name, member in SAMPLE_CORPORA.items():
            folder = str(SAMPLE_FILES / name)
            sources += sources_of(name, member, [folder])
        return corpus, sources
    if "" in inputs or not corpus:
        raise ConfigError("--corpus or --input is empty; give a name or path")
    group = group_of(corpus, inputs, published)  # before corpora: inputs of one may name members
    if group:
        files = member_inputs(corpus, group, inputs)
        if corpus in GROUPS:
            require_members(corpus, files, published)
        else:
            _require_name(corpus, corpus)
        sources = []
        for name, paths in files.items():
            if paths and name in published:
                raise ConfigError(f"{name} has files of --input and of its publisher; give one")
            sources += published.get(name, [])
            if paths:
                sources += sources_of(name, CORPORA[name], paths)
        return corpus, sources
    if corpus in published:
        return corpus, published[corpus]
    if corpus in CORPORA:
        if not inputs:
            raise ConfigError(
                f"--corpus {corpus} needs its files: --input PATH... "
                f"({CORPORA[corpus].description}; the page on corpora lists sources)"
            )
        return corpus, sources_of(corpus, CORPORA[corpus], inputs)
    names = [*CORPORA, *GROUPS, SAMPLE]
    if not inputs and not is_path(corpus):
        raise ConfigError(
            f"unknown corpus {corpus!r}, and no path of that name; did you mean "
            f"{nearest(corpus, names)}? ({', '.join(names)}, or a path)"
        )
    # A path names its corpus itself, without extensions.
    name = Path(corpus).absolute().name.split(".")[0] if not inputs else corpus
    _require_name(name, corpus)
    # A misspelled name would be read as the user's own corpus, without its licence and checks.
    for known in difflib.get_close_matches(name, names, 1, 0.8):
        print(f"corpus {name} is read as your own; if you meant {known}, use --corpus {known}")
    return name, sources_of(name, OWN, inputs or [corpus])


def _folder_sources(
    corpus: str, inputs: list[str], sources_of: Callable[..., list[Source]]
) -> list[Source]:
    """The files of a directory, of a corpus for each of its entries; `en` and `en.jsonl` are one.

    sources_of: `_sources`, given a name, a corpus and inputs.
    Names that are skipped are not corpora.
    Raises ConfigError unless there are several, with names that can be a corpus's.
    """
    if corpus in (*CORPORA, *GROUPS, SAMPLE) or len(inputs) != 1 or not Path(inputs[0]).is_dir():
        raise ConfigError(
            f"--by-folder takes a --corpus name of your own and one local directory as --input, "
            f"got --corpus {corpus} and {len(inputs)} of --input"
        )
    _require_name(corpus, corpus)
    entries: dict[str, list[str]] = {}
    skipped = SkippedNames()
    paths = entries_of(Path(inputs[0]), skipped)
    skipped.tell(inputs[0])
    for path in paths:
        entries.setdefault(path.name.split(".")[0], []).append(str(path))
    for name, own in entries.items():
        if not re.fullmatch(r"[\w-]+", name):  # it becomes the name of a folder
            raise ConfigError(
                f"--by-folder: {own[0]} does not name a corpus; use letters, digits, '_' and '-'"
            )
    found = [source for name, own in entries.items() for source in sources_of(name, OWN, own)]
    if (count := len({source.corpus for source in found})) < 2:
        raise ConfigError(
            f"--by-folder: {inputs[0]} has {count} folders and files; omit --by-folder for "
            "a single corpus"
        )
    return found


def is_named(corpus: str, inputs: list[str], published: Collection[str] = ()) -> bool:
    """True if a corpus is in CORPORA or a group of them, not the sample or the user's own text.

    Arguments as for `corpus_sources`. A file called stories.jsonl is the user's own.
    """
    return corpus in CORPORA or group_of(corpus, inputs, published) is not None


def describe_corpus(corpus: str, named: bool, sources: list[Source]) -> str:
    """A tokenizer's training text, in words; only named corpora appear by their bare names."""
    found = [*dict.fromkeys(source.corpus for source in sources)]
    names = ", ".join(found)
    if named:
        return names
    if len(found) > MOST_NAMED:
        names = f"{corpus} of {len(found):,} folders"
    return "the sample" if corpus == SAMPLE else f"your corpus {names}"


def own_name(path: Path) -> str:
    """A name for what a path holds: that of the path up to a dot, if it can be a directory's and is
    that of no corpus that we know."""
    name = re.sub(r"[^\w-]+", "-", path.absolute().name.split(".")[0]).strip("-") or "corpus"
    return f"my-{name}" if name in (*CORPORA, *GROUPS, SAMPLE) else name


def _require_name(name: str, path: str) -> None:
    """Raises ConfigError if `name` cannot be a directory's; path: the argument it came from."""
    if not re.fullmatch(r"[\w.-]+", name):
        files = f" --input {shlex.quote(path)}" if is_path(path) else ""
        raise ConfigError(
            f"--corpus {path} is not a valid directory name; use --corpus {own_name(Path(path))}"
            f"{files}"
        )


def keep_language(sources: list[Source], language: str) -> list[Source]:
    """The sources, of which WARC files keep pages in one language, see `chosen_language`."""
    if language and all(source.format != "warc" for source in sources):
        raise ConfigError(f"--language {language}: no input is a WARC or WET file; omit it")
    return [
        replace(source, page_language=chosen_language(language, source))
        if source.format == "warc"
        else source
        for source in sources
    ]


def _sources(
    name: str,
    corpus: Corpus,
    inputs: list[str],
    *,
    text_field: str,
    plain_text: str,
    is_mapped: bool,
) -> list[Source]:
    def sniffed(file: InputFile) -> Source:
        source = sniff(
            file.path,
            corpus=name,
            name=file.label,
            text_field=text_field,
            plain_text=next(
                (known for known in get_args(PlainText) if known == plain_text), corpus.plain_text
            ),
            forced_text=bool(plain_text),
            state=file.state,
            is_mapped=is_mapped,
        )
        return replace(source, licence=corpus.licence)

    files = find_files(inputs)
    files.reverse()  # each is freed once it is taken, of which there can be a million
    found = group_files(in_threads(sniffed, (files.pop() for _ in range(len(files)))))
    if not found:
        raise DataError(f"corpus {name}: no files in the input; give files, directories or globs")
    return found


def print_input(sources: list[Source], where: str) -> None:
    """Print the detected formats, and what may be wrong with plain text; where: before them."""
    print(f"{where}: {describe_input(sources)}", flush=True)
    for note in plain_text_notes(sources):
        print(note, flush=True)


def describe_input(sources: list[Source]) -> str:
    """The detected formats, in words, so that the user sees a wrong guess."""
    counted = Counter[str]()
    for source in sources:
        for format, _, number, _ in source.kinds:
            split = f" ({source.plain_text.replace('_', ' ')})" if format == "text" else ""
            counted[FORMAT_NAMES[format] + split] += number
    files = ", ".join(f"{count} {kind}" for kind, count in counted.items())
    return f"{files}; {sum(source.size for source in sources) / 1e6:,.1f} MB"


def describe_counts(counts: dict[str, int]) -> str:
    """Documents by reason, in words."""
    return ", ".join(f"{count:,} {reason}" for reason, count in counts.items())


def describe_cut(cut: dict[str, int]) -> str:
    """The parts that were cut from documents, in words; cut: bytes by reason."""
    return ", ".join(f"{size:,} bytes of {reason}" for reason, size in cut.items())
