"""Chooses the tokenizer of `pipeline.prepare`: the one given, an existing one, or a new one.

A mixture needs one tokenizer for all of its corpora, so named corpora and groups share the folder
`$TENFOLD_ROOT/tokenizers/<kind>-<size>`: the first `prepare` of one that succeeds publishes it.
Every other tokenizer belongs to its input files, in `<kind>-<size>.<corpus>.<fingerprint>`: those
trained on the sample or on a user's own corpus, and those with less than 98 % of the ids that the
recipe asks for. Other corpora use it only if `--tokenizer` names it.

A new tokenizer stays below `tokenizers/.unfinished` until the shards are published. Parts of an
array and restarts with the same files find it there, and a failed `prepare` publishes nothing.
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pipeline.base.command_line import data_root
from pipeline.base.errors import ConfigError
from pipeline.base.files import make_directory, one_at_a_time
from pipeline.base.publish import TakenError, publish_folder
from pipeline.config.data_settings import DataSettings
from pipeline.config.settings import fingerprint_with
from pipeline.data.preparation.corpus_files import FoundCorpus
from pipeline.data.preparation.fingerprint import Identities, identify_files
from pipeline.data.preparation.tokenizer_training import (
    REPORT_BYTES,
    SAMPLE_BYTES,
    train_tokenizer,
)
from pipeline.data.selection.sample import sample_texts
from pipeline.data.selection.select import Selection
from pipeline.data.text.documents import DocumentCounts
from pipeline.data.tokenizers.folders import num_rows, read_vocabulary, trained_on
from pipeline.data.tokenizers.quality import language_doubts
from pipeline.data.tokenizers.vocabulary import Vocabulary
from pipeline.execution.workers import Executor
from pipeline.ingest.corpora.catalogue import CORPORA
from pipeline.ingest.documents.read import file_identity
from pipeline.ingest.documents.records import Source
from pipeline.ingest.extraction.packs import ungrouped

ENOUGH_IDS = 0.98
"""A tokenizer with less than this share of `data.vocab_size` is not shared: too little text."""
_FILE = "tokenizer.json"  # written last: its folder is complete
_NAME_CHARACTERS = 60  # of a corpus in a folder's name, whose length is limited


@dataclass(frozen=True, slots=True)
class Places:
    """Folders for the tokenizer of some input files, all below `$TENFOLD_ROOT/tokenizers`."""

    corpus: str
    """A description of the files."""
    named: bool
    """True if all files belong to named corpora, which share a tokenizer."""
    shared: Path
    """The tokenizer of all named corpora and groups, for this kind, size and case."""
    own: Path
    """The tokenizer of only these input files."""
    unfinished: Path
    """The tokenizer of these input files until it is published."""

    @classmethod
    def of(
        cls, found: FoundCorpus, data: DataSettings, known: Identities, selected: str = ""
    ) -> Places:
        """The folders for these input files and this recipe; known: gets the files' identities;
        selected: the mark of the selection that it is trained on, which no other text shares; empty
        for all text."""
        home = data_root() / "tokenizers"
        case = "-uncased" if data.lower_case else ""
        kind = f"{data.tokenizer}-{data.vocab_size}{case}"
        identify_files([source for source in found.files if not source.group], known)
        identities = (known.get(file) or file_identity(file) for file in ungrouped(found.files))
        settings: list[object] = [data.tokenizer, data.vocab_size, data.lower_case, SAMPLE_BYTES]
        settings += [selected] if selected else []
        mark = fingerprint_with("files", identities, {"tokenizer": settings})
        return cls(
            corpus=found.description,
            named=found.named and not selected,
            shared=home / kind,
            own=home / f"{kind}.{found.name[:_NAME_CHARACTERS]}.{mark}",
            unfinished=home / ".unfinished" / f"{kind}.{mark}",
        )

    def existing(self, data: DataSettings) -> tuple[Path, Vocabulary] | None:
        """The first of these folders that exists and fits the files, and its vocabulary."""
        for folder in (self.own, self.unfinished):
            if _is_whole(folder):
                return folder, read_vocabulary(folder)
        vocabulary = _read_shared(self.shared, data) if self.named else None
        return None if vocabulary is None else (self.shared, vocabulary)

    def others(self) -> list[Path]:
        """Published tokenizers of other files with this kind, size and case.

        Those of a corpus of the same name come first; newer ones come before older ones.
        """
        stem = self.own.name.rpartition(".")[0]
        found = [self.shared, *self.shared.parent.glob(f"{self.shared.name}.*")]
        others = [folder for folder in found if _is_whole(folder) and folder != self.own]
        return sorted(
            others,
            key=lambda folder: (folder.name.startswith(f"{stem}."), folder.stat().st_mtime_ns),
            reverse=True,
        )

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the tokenizer of these input files; other processes wait."""
        make_directory(self.unfinished.parent)
        with one_at_a_time(self.unfinished.with_name(f".{self.unfinished.name}.lock")):
            yield


@dataclass(frozen=True, slots=True)
class ChosenTokenizer:
    """A vocabulary, what it was trained on, and the folders to publish it in."""

    vocabulary: Vocabulary
    trained_on: str
    """A description with the amount of text; "" if its folder has none."""
    places: Places | None
    """Folders to publish it in; None if it is published already."""

    def publish(self, data: DataSettings) -> None:
        """Move an unfinished tokenizer to its final folder; the first becomes the shared one."""
        if self.places is None:
            return
        # the second lock, as two corpora may publish the shared tokenizer at once
        with self.places.locked(), one_at_a_time(self.places.shared.with_name(".publish.lock")):
            while _is_whole(self.places.unfinished):  # else a prepare of the same files did it
                target = self._target(self.places, data)
                if target is None:
                    shutil.rmtree(self.places.unfinished, ignore_errors=True)
                    return
                try:
                    publish_folder(self.places.unfinished, target)
                    print(f"tokenizer: published as {target}")
                except FileNotFoundError:  # moved by another process: no locks here
                    return
                except TakenError:  # another one was first: choose the target again
                    if target == self.places.own and not _is_whole(target):
                        raise

    def _target(self, places: Places, data: DataSettings) -> Path | None:
        """The folder to publish in; None if it is there, or the shared tokenizer is the same."""
        if _is_whole(places.own):
            return None
        if not (places.named and _has_enough_ids(self.vocabulary, data)):
            return places.own
        if not os.path.lexists(places.shared):
            return places.shared
        if not _is_whole(places.shared):
            print(
                f"tokenizer: {places.shared} has no {_FILE}, so named corpora cannot share a "
                "tokenizer there; remove the folder"
            )
            return places.own
        if read_vocabulary(places.shared).sha256 == self.vocabulary.sha256:
            return None
        print(
            f"tokenizer: {_describe(places.shared)} was published first, so these shards have "
            f"their own, {places.own}. Shards of the two cannot be mixed; for a mixture, prepare "
            f"again with --tokenizer {shlex.quote(str(places.shared))}"
        )
        return places.own


def find_tokenizer(
    given: Path | None,
    found: FoundCorpus,
    sources: list[Source],
    data: DataSettings,
    known: Identities,
    executor: Executor,
    selection: Selection | None = None,
) -> ChosenTokenizer:
    """The tokenizer to prepare with: the one given, an existing one, or one trained now.

    Prints its folder and how much text it was trained on. sources: to train on; known: gets the
    identities of the corpus's files, unless a tokenizer is given; selection: to train only on what
    it keeps, with decisions made; None: on all text. Raises ConfigError if the tokenizer does not
    fit the recipe.
    """
    if given is not None:
        vocabulary = _read_given(given, data)
        warn_of_language(vocabulary, sources)
        return ChosenTokenizer(vocabulary, trained_on(given), None)
    places = Places.of(found, data, known, selection.mark if selection else "")
    decided = selection.decided_tasks() if selection else None
    fresh = False
    with places.locked():
        existing = places.existing(data)
        if existing is None or existing[0] == places.unfinished:
            _mention_others(places)
        if existing is None:
            print("tokenizer: none for this corpus yet; training it on this corpus", flush=True)
            try:
                train_tokenizer(
                    sources,
                    data,
                    places.unfinished,
                    places.corpus,
                    executor=executor,
                    decided=decided,
                )
            except TakenError as error:  # where locks have no effect
                print(f"tokenizer: {error}", flush=True)
            else:
                fresh = True
            # Another corpus may have published the shared tokenizer meanwhile.
            if places.named and _read_shared(places.shared, data) is not None:
                shutil.rmtree(places.unfinished, ignore_errors=True)
            existing = places.existing(data)
            assert existing is not None
        folder, vocabulary = existing
        _check(folder, vocabulary, data, fresh=fresh and folder == places.unfinished)
        unfinished = places if folder == places.unfinished else None
        return ChosenTokenizer(vocabulary, trained_on(folder), unfinished)


def read_existing(given: Path | None, found: FoundCorpus, data: DataSettings) -> Vocabulary | None:
    """The vocabulary that `find_tokenizer` would use without training; None if it would train."""
    if given is not None:
        return _read_given(given, data)
    existing = Places.of(found, data, {}).existing(data)
    if existing is None:
        return None
    _check(*existing, data)
    return existing[1]


def warn_of_language(vocabulary: Vocabulary, sources: list[Source]) -> None:
    """Print a warning if the text seems to be in another language than a given tokenizer's."""
    for line in language_doubts(vocabulary, sample_texts(sources, REPORT_BYTES, DocumentCounts())):
        print(f"tokenizer: {line}", flush=True)


def _read_given(folder: Path, data: DataSettings) -> Vocabulary:
    vocabulary = read_vocabulary(folder)
    _check(folder, vocabulary, data, given=True)
    return vocabulary


def _check(
    folder: Path,
    vocabulary: Vocabulary,
    data: DataSettings,
    *,
    given: bool = False,
    fresh: bool = False,
) -> None:
    """Check that a folder's vocabulary fits the recipe, and describe it.

    fresh: training has just described it.
    """
    _require_fit(folder, vocabulary, data)
    if not fresh:
        print(f"tokenizer: {_describe(folder)}", flush=True)
    # The table of a model may have more rows than its tokenizer has ids, and keeps them.
    if vocabulary.size < data.vocab_size and data.vocab_size != num_rows(folder):
        few = f"{vocabulary.size:,} of data.vocab_size={data.vocab_size:,} ids"
        print(f"tokenizer: only {few}{_advice(vocabulary, data, given)}")


def _advice(vocabulary: Vocabulary, data: DataSettings, given: bool) -> str:
    """Advice about a vocabulary that is smaller than the recipe's; given: by --tokenizer."""
    if given:
        return f"; add --set data.vocab_size={vocabulary.size} for embeddings of that size"
    alone = "" if _has_enough_ids(vocabulary, data) else ", so other corpora do not share it"
    return (
        f"{alone}; for a model to keep, train a tokenizer on more text (pipeline.train_tokenizer) "
        "and pass it with --tokenizer"
    )


def _mention_others(places: Places) -> None:
    """Print which published tokenizer of this kind is not used, and how to use it."""
    others = places.others()
    if others:
        more = f" (nor {len(others) - 1} more in {others[0].parent})" if others[1:] else ""
        print(
            f"tokenizer: not using {_describe(others[0])}{more}: it was trained on other files; "
            f"to use it, add --tokenizer {shlex.quote(str(others[0]))}"
        )


def _require_fit(folder: Path, vocabulary: Vocabulary, data: DataSettings) -> None:
    """Raises ConfigError unless the vocabulary has the recipe's kind, case and size."""
    found = (vocabulary.kind, vocabulary.lower_case)
    if found != (data.tokenizer, data.lower_case):
        raise ConfigError(
            f"tokenizer {folder} is {found[0]}, {_case(found[1])}, the recipe asks for "
            f"{data.tokenizer}, {_case(data.lower_case)}; add --set data.tokenizer={found[0]} "
            f"--set data.lower_case={str(found[1]).lower()}"
        )
    if vocabulary.size > data.vocab_size:
        raise ConfigError(
            f"tokenizer {folder} has {vocabulary.size:,} ids, more than the recipe's "
            f"data.vocab_size={data.vocab_size:,}; add --set data.vocab_size={vocabulary.size}"
        )


def _read_shared(folder: Path, data: DataSettings) -> Vocabulary | None:
    """The folder's vocabulary if it was trained on named corpora and has enough ids."""
    corpora = trained_on(folder).partition(":")[0].split(", ")
    if not all(name in CORPORA for name in corpora) or not _is_whole(folder):
        return None
    vocabulary = read_vocabulary(folder)
    return vocabulary if _has_enough_ids(vocabulary, data) else None


def _has_enough_ids(vocabulary: Vocabulary, data: DataSettings) -> bool:
    return vocabulary.size >= ENOUGH_IDS * data.vocab_size


def _is_whole(folder: Path) -> bool:
    return (folder / _FILE).exists()


def _describe(folder: Path) -> str:
    about = trained_on(folder)
    return f"{folder} (trained on {about or 'unknown text'})"


def _case(lower_case: bool) -> str:
    return "lower-cased" if lower_case else "cased"
