"""Rules within the settings of the encoder; ranges are tested in test_run.py."""

from tests.pipeline.config.refusals import assert_refused, problems

ROTARY = "encoder.position_kind=rotary encoder.position_offset=0 encoder.segment_types=1"


def test_contradictions_name_remedies_that_are_legal() -> None:
    for settings in (
        "encoder.heads=7",
        "encoder.sharing=all encoder.groups=5",
        "encoder.groups=2",
        "encoder.position_kind=rotary",
        f"{ROTARY} encoder.initializer=normal_sinusoidal",
        f"{ROTARY} encoder.local_rotary_base=160000",
        f"{ROTARY} encoder.heads=256",
        f"{ROTARY} encoder.window=128",
        "encoder.window=128 encoder.global_every=3",
        "encoder.sharing=all encoder.gated=true",
    ):
        assert_refused("roberta_base", settings)
    # a value without a meaning gets the nearest
    for settings in ("embedding_width=769", f"window=5 encoder.global_every=3 {ROTARY}"):
        assert_refused("roberta_base", f"encoder.{settings}", keeps=False)


def test_a_base_without_rotation_names_rotary() -> None:
    """Which has rules of its own, so it takes a second round."""
    (problem,) = problems("roberta_base", "encoder.rotary_base=160000")
    assert problem.startswith("encoder.rotary_base=160000.0 has no effect with encoder.position_k")
    assert problem.endswith("=10000.0, or --set encoder.position_kind=rotary")
