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

VOCABULARY = SimpleNamespace(sha256="ab" * 32, text_tokens=[])


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


def test_shards_made_before_added_tokens_were_text_have_another_fingerprint() -> None:
    data = recipe("roberta_base").data
    added = SimpleNamespace(sha256=VOCABULARY.sha256, text_tokens=[{"content": "[GENE]"}])
    identity = shard_identity(data, [], added, "fast", "none")  # type: ignore[arg-type]
    assert fingerprint(identity) != mark(data)
