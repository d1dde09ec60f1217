"""What the fingerprint of shards covers; tests/pipeline/test_prepare.py compares shards."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Annotated

from pipeline.config.data_settings import DataSettings
from pipeline.config.schema import Legacy
from pipeline.config.settings import fingerprint, from_dict, to_dict
from pipeline.data.preparation.fingerprint import shard_identity
from pipeline.recipes import recipe

VOCABULARY = SimpleNamespace(sha256="ab" * 32, text_tokens=[], has_spaceless_letters=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class LaterData(DataSettings):
    """A section as a later version may define it."""

    blanks: Annotated[int, Legacy(0)]


def mark(data: DataSettings) -> str:
    return fingerprint(shard_identity(data, [], VOCABULARY, "fast", "none"))  # type: ignore[arg-type]


def test_a_later_setting_changes_the_fingerprint_only_beyond_its_legacy_value() -> None:
    data = recipe("roberta_base").data
    same = from_dict(LaterData, to_dict(data))
    other = from_dict(LaterData, to_dict(data) | {"blanks": 3})
    assert mark(same) == mark(data)
    assert mark(other) != mark(data)
    identity = shard_identity(other, [], VOCABULARY, "fast", "none")  # type: ignore[arg-type]
    assert identity["data"]["blanks"] == 3


def test_only_vocabularies_with_added_tokens_count_the_rule_for_them() -> None:
    data = recipe("roberta_base").data
    added = SimpleNamespace(**(vars(VOCABULARY) | {"text_tokens": [{"content": "[GENE]"}]}))
    identity = shard_identity(data, [], added, "fast", "none")  # type: ignore[arg-type]
    assert fingerprint(identity) != mark(data)


def test_only_vocabularies_with_letters_of_scripts_without_spaces_count_the_rule_of_words() -> None:
    data = recipe("roberta_base").data
    spaceless = SimpleNamespace(**(vars(VOCABULARY) | {"has_spaceless_letters": True}))
    identity = shard_identity(data, [], spaceless, "fast", "none")  # type: ignore[arg-type]
    assert identity["words"] == "2" and fingerprint(identity) != mark(data)


def test_only_text_of_many_splits_counts_how_its_last_ones_are_cut() -> None:
    data = recipe("roberta_base").data
    identity = shard_identity(data, [], VOCABULARY, "fast", "none", finer=4)  # type: ignore[arg-type]
    assert fingerprint(identity) != mark(data)
    identity = shard_identity(data, [], VOCABULARY, "fast", "none", finer=1)  # type: ignore[arg-type]
    assert fingerprint(identity) == mark(data)
