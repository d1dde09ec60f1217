"""Rules within the settings of the encoder; ranges are tested in test_run.py."""

from __future__ import annotations

import pytest

from pipeline.base.errors import ConfigError
from pipeline.config.settings import override
from pipeline.recipes import recipe

RUN = recipe("roberta_base")
ROTARY = "encoder.position_kind=rotary encoder.position_offset=0 encoder.segment_types=1"


@pytest.mark.parametrize(
    "settings, message",
    [
        (
            "encoder.heads=7",
            "encoder.width=768 is not divisible by encoder.heads=7; add --set encoder.heads=6, or "
            "--set encoder.width=770",
        ),
        (
            "encoder.embedding_width=769",
            "encoder.embedding_width=769 is above encoder.width=768; add --set "
            "encoder.embedding_width=0 for embeddings of that width",
        ),
        (
            "encoder.sharing=all encoder.groups=5",
            "encoder.layers=12 is not divisible by encoder.groups=5; add --set encoder.groups=4, "
            "or --set encoder.layers=15",
        ),
        (
            "encoder.groups=2",
            "encoder.groups=2 has no effect with encoder.sharing=none; add --set "
            "encoder.groups=1, or --set encoder.sharing=all",
        ),
        (
            "encoder.position_kind=rotary",
            "encoder.position_kind=rotary has tables neither of positions nor of segments, so "
            "encoder.position_offset=2 and encoder.segment_types=1 have no effect; add --set "
            "encoder.position_offset=0 --set encoder.segment_types=1, or --set "
            "encoder.position_kind=learned",
        ),
        (
            f"{ROTARY} encoder.initializer=normal_sinusoidal",
            "encoder.initializer=normal_sinusoidal initializes position embeddings, and "
            "encoder.position_kind=rotary has none; add --set encoder.initializer=normal, or "
            "--set encoder.position_kind=learned",
        ),
        (
            "encoder.rotary_base=160000",
            "encoder.rotary_base=160000.0 has no effect with encoder.position_kind=learned and "
            "encoder.window=0; add --set encoder.rotary_base=10000.0, or --set "
            "encoder.position_kind=rotary",
        ),
        (
            f"{ROTARY} encoder.local_rotary_base=160000",
            "encoder.local_rotary_base=160000.0 has no effect with encoder.position_kind=rotary "
            "and encoder.window=0; add --set encoder.local_rotary_base=10000.0, or --set "
            "encoder.window=128 --set encoder.global_every=3",
        ),
        (
            f"{ROTARY} encoder.heads=256",
            "encoder.width=768 and encoder.heads=256 make heads of 3, but "
            "encoder.position_kind=rotary rotates pairs of units; add --set encoder.width=1024, "
            "or --set encoder.position_kind=learned",
        ),
        (
            f"{ROTARY} encoder.window=5 encoder.global_every=3",
            "encoder.window=5 is odd, and a token sees as many tokens before it as after it; add "
            "--set encoder.window=6",
        ),
        (
            f"{ROTARY} encoder.window=128",
            "encoder.window=128 has no effect with encoder.window=128 and encoder.global_every=1; "
            "add --set encoder.window=128 --set encoder.global_every=3 for ModernBERT's, or --set "
            "encoder.window=0 --set encoder.global_every=1",
        ),
        (
            "encoder.window=128 encoder.global_every=3",
            "encoder.window=128 needs encoder.position_kind=rotary, which is learned; add --set "
            "encoder.position_kind=rotary --set encoder.position_offset=0 --set "
            "encoder.segment_types=1, or --set encoder.window=0 --set encoder.global_every=1",
        ),
        (
            "encoder.sharing=all encoder.gated=true",
            "encoder.sharing=all and encoder.embedding_width=0 are ALBERT's, which has no "
            "encoder.gated=true; add --set encoder.sharing=none --set encoder.groups=1 --set "
            "encoder.embedding_width=0, or --set encoder.gated=false",
        ),
    ],
)
def test_contradictions_name_the_remedy(settings: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        override(RUN, settings.split())
    assert str(error.value) == message
