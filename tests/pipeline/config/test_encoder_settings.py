"""Rules within the settings of the encoder; ranges are tested in test_run.py."""

from tests.pipeline.config.refusals import assert_refused, problems

ROTARY = "encoder.position_kind=rotary encoder.position_offset=0 encoder.segment_types=1"


def test_contradictions_name_remedies_that_are_legal() -> None:
    for settings, message in (
        ("encoder.heads=7", "encoder.width=768 is not divisible by encoder.heads=7"),
        (
            "encoder.sharing=all encoder.groups=5",
            "encoder.layers=12 is not divisible by encoder.groups=5",
        ),
        ("encoder.groups=2", "encoder.groups=2 has no effect with encoder.sharing=none"),
        (
            "encoder.position_kind=rotary",
            "encoder.position_kind=rotary has tables neither of positions nor of segments",
        ),
        (
            f"{ROTARY} encoder.initializer=normal_sinusoidal",
            "encoder.initializer=normal_sinusoidal initializes position embeddings",
        ),
        (
            f"{ROTARY} encoder.local_rotary_base=160000",
            "encoder.local_rotary_base=160000.0 has no effect",
        ),
        (f"{ROTARY} encoder.heads=256", "encoder.width=768 and encoder.heads=256 make heads of 3"),
        (f"{ROTARY} encoder.window=128", "encoder.window=128 has no effect"),
        (
            "encoder.window=128 encoder.global_every=3",
            "encoder.window=128 needs encoder.position_kind=rotary, which is learned",
        ),
        (
            "encoder.sharing=all encoder.gated=true",
            "encoder.sharing=all and encoder.embedding_width=0 are ALBERT's",
        ),
    ):  # fmt: skip
        assert_refused("roberta_base", settings, message)


def test_a_value_without_a_meaning_gets_the_nearest() -> None:
    for settings, message in (
        ("encoder.embedding_width=769", "encoder.embedding_width=769 is above encoder.width=768"),
        (f"{ROTARY} encoder.window=5 encoder.global_every=3", "encoder.window=5 is odd"),
    ):
        assert_refused("roberta_base", settings, message, keeps=False)


def test_a_base_without_rotation_names_rotary() -> None:
    """Which has rules of its own, so it takes a second round."""
    (problem,) = problems("roberta_base", "encoder.rotary_base=160000")
    assert problem.startswith("encoder.rotary_base=160000.0 has no effect with encoder.position_k")
    assert problem.endswith("=10000.0, or --set encoder.position_kind=rotary")
