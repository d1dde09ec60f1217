import pytest

from model.hugging_face.conversion import logical_parameters
from model.objectives.masked_language import MaskedLanguageModel
from pipeline.planning.phase_plan import encoder_config
from pipeline.recipes import recipe
from pipeline.training.optimizer.telemetry import KINDS, Telemetry, kind_of
from tests.pipeline.training.toy import Record

PARTS = [
    Record("query", "encoder.layers.0.attention.qkv.weight", 0, (2,), True, True),
    Record("key", "encoder.layers.0.attention.qkv.weight", 2, (2,), True, True),
    Record("value", "encoder.layers.0.attention.qkv.weight", 4, (2,), True, True),
    Record("norm", "encoder.layers.0.attention_norm.bias", 0, (2,), False, False),
    Record("bias", "encoder.layers.0.attention.qkv.bias", 0, (2,), False, False),
]
ADAPTED = [part.adapt for part in PARTS]


def test_every_weight_of_the_model_has_its_kind() -> None:
    model = MaskedLanguageModel(encoder_config(recipe("roberta_tiny")), seed=0)
    found: dict[str, list[str]] = {}
    for part in logical_parameters(model):
        found.setdefault(kind_of(part.parameter_name), []).append(part.name)
    assert found.keys() == set(KINDS)
    assert found["head"] == ["lm_head.dense.weight"]
    assert len(found["embedding"]) == 3 and all("embeddings" in n for n in found["embedding"])
    assert len(found["attention"]) == 2 * 4 and len(found["feed_forward"]) == 2 * 2
    assert all("LayerNorm" in name or "layer_norm" in name for name in found["norm"])
    assert all(name.endswith(".bias") for name in found["bias"])


def test_a_report_is_of_what_happened_since_the_last_one() -> None:
    telemetry = Telemetry(PARTS, ADAPTED)
    assert telemetry.report() == {}
    for clipped in (True, False, False, True):
        telemetry.update(clipped)
    telemetry.lamb(0.5, [2.0, 4.0, 9.0, 1.0, 1.0], [(4, 2), (8, 2), (9, 1), (2, 3), (0, 7)])
    assert telemetry.report() == {
        "clip_fraction": 0.5,
        "trust_ratio_min_attention": 2.0,
        "trust_ratio_median_attention": 4.0,
        "trust_ratio_max_attention": 9.0,
        "relative_step_attention": 0.5,  # adapted weights all move by the learning rate
        "relative_step_norm": pytest.approx(0.75),
    }
    telemetry.update(False)
    assert telemetry.report() == {"clip_fraction": 0.0}
    telemetry.update(False)
    telemetry.stable_adamw([0.5, 3.0, 1.0, 0.25, 2.0])
    assert telemetry.report() == {
        "clip_fraction": 0.0,
        "update_rms_median_attention": 1.0, "update_rms_max_attention": 3.0,
        "update_rms_median_norm": 0.25, "update_rms_max_norm": 0.25,
        "update_rms_median_bias": 2.0, "update_rms_max_bias": 2.0,
    }  # fmt: skip
    assert telemetry.report() == {}
