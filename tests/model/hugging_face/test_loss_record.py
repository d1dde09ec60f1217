import math

import pytest

from model.hugging_face.loss_record import ENTRY, loss_entry, recorded_part
from model.objectives.masked_language import LossPart

WORDS = LossPart(name="mlm", weight=1.0, per="predictions")
JUDGED = LossPart(name="rtd", weight=50.0, per="tokens")


def test_what_is_recorded_is_read() -> None:
    part = LossPart(name="rtd", weight=0.5, per="predictions")
    assert recorded_part(loss_entry([WORDS, part]), JUDGED) == part
    assert recorded_part({}, JUDGED) == JUDGED == recorded_part({ENTRY: {"pair": {}}}, JUDGED)
    assert loss_entry([WORDS]) == {}


@pytest.mark.parametrize(
    "entry",
    [
        7, None, [], {"rtd": 7}, {"rtd": {}}, {"rtd": {"weight": 1.0}},
        *({"rtd": {"weight": weight, "per": "tokens"}} for weight in (0, -1, math.inf, math.nan,
                                                                     True, "1", None, 10**400)),
        *({"rtd": {"weight": 1, "per": per}} for per in ("rows", None, ["tokens"], 3)),
    ],
)  # fmt: skip
def test_an_entry_of_other_values_is_refused(entry: object) -> None:
    with pytest.raises(ValueError, match="each part needs a weight above 0 and per, one of pred"):
        recorded_part({ENTRY: entry}, JUDGED)
