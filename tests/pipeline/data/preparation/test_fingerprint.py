"""What the fingerprint of shards covers; tests/pipeline/test_prepare.py compares shards."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Annotated, Any

from pipeline.config.data_settings import DataSettings
from pipeline.config.schema import Legacy
from pipeline.config.settings import fingerprint, from_dict, to_dict
from pipeline.data.preparation.fingerprint import shard_identity
from pipeline.recipes import recipe

DATA = recipe("roberta_base").data
VOCABULARY = {"sha256": "ab" * 32, "text_tokens": [], "has_spaceless_letters": False}


@dataclass(frozen=True, kw_only=True, slots=True)
class LaterData(DataSettings):
    """A section as a later version may define it."""

    blanks: Annotated[int, Legacy(0)]


def identity(data: DataSettings = DATA, finer: int = 1, **vocabulary: object) -> dict[str, Any]:
    described: Any = SimpleNamespace(**(VOCABULARY | vocabulary))
    return shard_identity(data, [], described, "fast", "none", finer=finer)


def test_later_rules_change_the_fingerprint_of_what_they_apply_to_only() -> None:
    """A setting beyond its legacy value, added tokens, letters of scripts without spaces, and text
    of so many splits that the last ones are cut otherwise."""
    same = from_dict(LaterData, to_dict(DATA))
    other = identity(from_dict(LaterData, to_dict(DATA) | {"blanks": 3}))
    spaceless = identity(has_spaceless_letters=True)
    changed = (other, spaceless, identity(text_tokens=[{"content": "[GENE]"}]), identity(finer=4))
    assert fingerprint(identity(same)) == fingerprint(identity())
    assert len({fingerprint(each) for each in (identity(), *changed)}) == 5
    assert other["data"]["blanks"] == 3 and spaceless["words"] == "2"
