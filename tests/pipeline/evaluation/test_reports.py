import json
from typing import Any

import pytest

from pipeline.evaluation.reports import print_scores, scores_as_json

FOUND: dict[str, Any] = {
    "mlm_loss": 1.0, "mask_loss": 1.0, "accuracy": 0.5, "perplexity": 2.7, "predictions": 9,
}  # fmt: skip


def test_of_many_corpora_the_worst_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    found = dict(FOUND)
    for count, lines in ((32, 37), (33, 11), (1833, 11)):
        for number in range(count):
            found |= {f"mlm_loss/l{number}": number / 100, f"accuracy/l{number}": 0.25}
        print_scores("model", found)
        said = capsys.readouterr().out.splitlines()
        assert len(said) == lines
    assert said[5] == "  1,833 corpora, of which the worst (--json has all):"
    assert said[6] == "  l1832               18.3200 nats, 25.00% accuracy"
    assert len(json.loads(scores_as_json("model", "cpu", found))) > 2 * 1833
    found |= {"mlm_loss/language/en": 3.5, "accuracy/language/en": 0.125}
    print_scores("model", found)
    said = capsys.readouterr().out.splitlines()
    assert said[5].startswith("  1,833 corpora") and len(said) == 12
    assert said[11] == "  language en         3.5000 nats, 12.50% accuracy"


def test_precision_is_undefined_without_detections(capsys: pytest.CaptureFixture[str]) -> None:
    found = FOUND | {
        "loss": 26.0, "rtd_loss": 0.5, "rtd_accuracy": 0.75, "rtd_precision": float("nan"),
        "rtd_recall": 0.0, "rtd_auc": 0.5,
        "loss_parts": {"rtd": {"weight": 50.0, "per": "tokens"}},
    }  # fmt: skip
    print_scores("model", found)
    said = capsys.readouterr().out
    for line in (
        "model: 9 predicted tokens of held-out sequences, by the generator",
        "  loss                1.0000 nats\n",
        "  detection           0.5000 nats, 75.00% accuracy\n",
        "  all parts           26.0000 nats = loss + 50 x detection\n",
        "replaced tokens     none suspected, 0.00% recall, 0.5000 area under the curve",
    ):
        assert line in said
    content = json.loads(scores_as_json("model", "cpu", found))
    assert content == {"model": "model", "device": "cpu", **found, "rtd_precision": None}
