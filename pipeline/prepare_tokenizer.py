"""Which tokenizer `pipeline.prepare` uses: the one given, one that is there, or a new one.

A mixture needs one tokenizer for all of its corpora, so named corpora and groups share the folder
`$TENFOLD_ROOT/tokenizers/<kind>-<size>`: the first `prepare` of them that succeeds publishes it.
Every other tokenizer belongs to its own input files, in `<kind>-<size>-<corpus>-<fingerprint>`: one
trained on the sample or on a corpus of the user's own, and one that came out with less than 98 % of
the ids that the recipe asks for. Another corpus takes it only if `--tokenizer` names it.

A new tokenizer stays below `tokenizers/.unfinished` until the shards are published: parts of an
array and restarts of the same files find it there, and a `prepare` that fails leaves nothing that
others could take.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pipeline.command import data_root
from pipeline.data.files import make_directory, sync_directory
from pipeline.data.identity import file_identity
from pipeline.data.records import Source
from pipeline.data.source_table import CORPORA
from pipeline.data.tokenizer_folders import read_vocabulary, trained_on
from pipeline.data.vocabulary import Vocabulary
from pipeline.data.work import one_at_a_time
from pipeline.errors import ConfigError
from pipeline.run import Data
from pipeline.settings import fingerprint
from pipeline.train_tokenizer import SAMPLE_BYTES, train_tokenizer

ENOUGH_IDS = 0.98
"""Share of `data.vocab_size` below which a tokenizer had too little text to be shared."""
_FILE = "tokenizer.json"  # the last file of a folder to be written


@dataclass(frozen=True, slots=True)
class Places:
    """Where the tokenizer of some input files may be, all below `$TENFOLD_ROOT/tokenizers`."""

    shared: Path
    """That of all named corpora and groups, for this kind, size and case."""
    own: Path
    """That of these input files alone."""
    unfinished: Path
    """That of these input files until it is published."""
    named: bool
    """Whether all input is of named corpora, which share."""

    @classmethod
    def of(cls, corpus: str, sources: list[Source], data: Data) -> Places:
        """The places for these input files and this recipe."""
        home = data_root() / "tokenizers"
        case = "-uncased" if data.lower_case else ""
        name = f"{data.tokenizer}-{data.vocab_size}{case}"
        mark = fingerprint(
            {
                "files": [file_identity(source) for source in sources],
                "tokenizer": [data.tokenizer, data.vocab_size, data.lower_case, SAMPLE_BYTES],
            }
        )
        own = f"{name}-{corpus}-{mark}"
        named = all(source.corpus in CORPORA for source in sources)
        return cls(home / name, home / own, home / ".unfinished" / own, named)

    def existing(self, data: Data) -> Path | None:
        """The first of the folders that there is and that these input files take."""
        for folder in (self.own, self.unfinished):
            if _is_whole(folder):
                return folder
        if self.named and _is_whole(self.shared) and _may_be_shared(self.shared, data):
            return self.shared
        return None

    def others(self) -> list[Path]:
        """Published folders of the same kind, size and case, the shared one first."""
        home, name = self.shared.parent, self.shared.name
        found = [self.shared, *sorted(home.glob(f"{name}-*"))]
        wrong_case = f"{name}-uncased"
        return [
            folder for folder in found
            if _is_whole(folder) and not folder.name.startswith(wrong_case) and folder != self.own
        ]  # fmt: skip

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the tokenizer of these input files: others that want it wait."""
        make_directory(self.unfinished.parent)
        with one_at_a_time(self.unfinished.with_name(f".{self.unfinished.name}.lock")):
            yield


@dataclass(frozen=True, slots=True)
class ChosenTokenizer:
    """A vocabulary, what it was trained on, and where it goes once the shards are published."""

    vocabulary: Vocabulary
    trained_on: str
    """In words, with the amount of text; "" when its folder does not say."""
    places: Places | None
    """None: it lies where it stays."""

    def publish(self, data: Data) -> None:
        """Give an unfinished tokenizer its final folder; the first one becomes the shared one."""
        if self.places is None:
            return
        with self.places.locked(), one_at_a_time(self.places.shared.with_name(".publish.lock")):
            if not _is_whole(self.places.unfinished):
                return  # by another prepare of the same files
            self._publish(self.places, data)

    def _publish(self, places: Places, data: Data) -> None:
        target = places.own
        if places.named and _has_enough_ids(self.vocabulary, data):
            if not _is_whole(places.shared):
                target = places.shared
            elif read_vocabulary(places.shared).sha256 == self.vocabulary.sha256:
                shutil.rmtree(places.unfinished)
                return
            else:
                print(
                    f"tokenizer: {_describe(places.shared)} was published first, so these shards "
                    f"keep their own, {target}. Shards of the two cannot be mixed: for a mixture, "
                    f"prepare again with --tokenizer {places.shared}"
                )
        with suppress(OSError):  # what an earlier version leaves of a training that failed
            (target / ".lock").unlink()
        places.unfinished.rename(target)
        sync_directory(target.parent)
        print(f"tokenizer: published as {target}")


def find_tokenizer(
    given: Path | None, corpus: str, sources: list[Source], data: Data
) -> ChosenTokenizer:
    """The tokenizer to prepare with: the one given, one that exists, or one trained now.

    Says where it came from and on how much text it was trained. Raises ConfigError if it does not
    fit the recipe.
    """
    if given is not None:
        return ChosenTokenizer(_read(given, data), trained_on(given), None)
    places = Places.of(corpus, sources, data)
    with places.locked():
        folder = places.existing(data)
        if folder is None or folder == places.unfinished:
            _mention_others(places)
        if folder is None:
            print("tokenizer: none for this corpus yet; training it on this corpus", flush=True)
            train_tokenizer(sources, data, places.unfinished)
        vocabulary = _read(folder or places.unfinished, data, fresh=folder is None)
        if folder in (places.own, places.shared):
            return ChosenTokenizer(vocabulary, trained_on(folder), None)
        return ChosenTokenizer(vocabulary, trained_on(places.unfinished), places)


def read_existing(
    given: Path | None, corpus: str, sources: list[Source], data: Data
) -> Vocabulary | None:
    """The vocabulary that `find_tokenizer` would use without training; None if it would train."""
    folder = given or Places.of(corpus, sources, data).existing(data)
    return None if folder is None else _read(folder, data)


def _read(folder: Path, data: Data, *, fresh: bool = False) -> Vocabulary:
    """The vocabulary of a folder; ConfigError if it does not fit. Describes it unless `fresh`."""
    vocabulary = read_vocabulary(folder)
    _require_fit(folder, vocabulary, data)
    if not fresh:  # training has just described it
        print(f"tokenizer: {_describe(folder)}", flush=True)
    if vocabulary.size < data.vocab_size:
        alone = "" if _has_enough_ids(vocabulary, data) else ", so other corpora do not take it"
        print(
            f"tokenizer: only {vocabulary.size:,} of data.vocab_size={data.vocab_size:,} ids"
            f"{alone}; for a model to keep, train one on more text (pipeline.train_tokenizer) and "
            "pass it with --tokenizer"
        )
    return vocabulary


def _mention_others(places: Places) -> None:
    """Say which published tokenizer of this kind is not used, and how to use it."""
    others = places.others()
    if others:
        more = f" ({len(others) - 1} more in {others[0].parent})" if others[1:] else ""
        print(
            f"tokenizer: not using {_describe(others[0])}, which belongs to other corpora; to use "
            f"it, add --tokenizer {others[0]}{more}"
        )


def _require_fit(folder: Path, vocabulary: Vocabulary, data: Data) -> None:
    """ConfigError unless the vocabulary is of the kind, case and size that the recipe has."""
    found = (vocabulary.kind, vocabulary.lower_case)
    if found != (data.tokenizer, data.lower_case):
        raise ConfigError(
            f"tokenizer {folder} is {found[0]}, {_case(found[1])}, the recipe asks for "
            f"{data.tokenizer}, {_case(data.lower_case)}; add --set data.tokenizer={found[0]} "
            f"--set data.lower_case={str(found[1]).lower()}"
        )
    if vocabulary.size > data.vocab_size:
        raise ConfigError(
            f"tokenizer {folder} has {vocabulary.size:,} ids, the recipe data.vocab_size="
            f"{data.vocab_size:,}; add --set data.vocab_size={vocabulary.size}"
        )


def _may_be_shared(folder: Path, data: Data) -> bool:
    """Whether it was trained on named corpora, with about as many ids as were asked for."""
    corpora = trained_on(folder).partition(":")[0].split(", ")
    named = all(name in CORPORA for name in corpora)
    return named and _has_enough_ids(read_vocabulary(folder), data)


def _has_enough_ids(vocabulary: Vocabulary, data: Data) -> bool:
    return vocabulary.size >= ENOUGH_IDS * data.vocab_size


def _is_whole(folder: Path) -> bool:
    return (folder / _FILE).exists()


def _describe(folder: Path) -> str:
    about = trained_on(folder)
    return f"{folder} (trained on {about})" if about else f"{folder} (it does not say on what text)"


def _case(lower_case: bool) -> str:
    return "lower-cased" if lower_case else "cased"
