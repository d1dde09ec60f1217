import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import transformers

from pipeline.base.errors import DataError
from pipeline.downstream.starting_weights import load_start, start_of
from pipeline.reporting.export_folder import check_scores, publish_export
from pipeline.training.weights import model_folders
from tests.pipeline.reporting.test_score_files import FINE_TUNED

GOLDEN = Path(__file__).parents[2] / "golden"


@pytest.mark.parametrize("family", ["bert", "electra", "spanbert"])
def test_scores_of_another_model_are_refused(
    family: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those of a fine-tuning that started from the run's step, from its export, or from what
    transformers made of it are taken."""
    saved, _ = model_folders.load_run(GOLDEN / "runs" / family)
    tokenizer, scores = tmp_path / "shards" / "tokenizer", tmp_path / "scores.json"
    shutil.copytree(GOLDEN / "exports" / family, tokenizer)
    model_folders.write_folder(saved.model, tokenizer, tmp_path / "model")
    shutil.copytree(tmp_path / "model", tmp_path / "again")
    transformers.AutoModel.from_pretrained(tmp_path / "model").save_pretrained(tmp_path / "again")
    capsys.readouterr()  # weights of heads that AutoModel drops
    again = load_start(tmp_path / "again")
    starts = start_of(saved, tokenizer), load_start(tmp_path / "model")
    assert again.identity not in {start.identity for start in starts}

    def check(encoder_hash: str) -> None:
        model = {"origin": "a", "encoder_hash": encoder_hash}
        scores.write_text(json.dumps(FINE_TUNED | {"model": model}))
        check_scores([scores], saved, tmp_path / "model")

    for start in (*starts, again):
        check(start.encoder_hash)
    with pytest.raises(DataError, match=r"scores.json are of other weights than step 10 of"):
        check("0" * 16)
    facts: Any = SimpleNamespace(score_files=[scores], length=32)
    dataset: Any = SimpleNamespace(directory=tokenizer.parent)
    with pytest.raises(DataError, match=r"scores.json are of other weights than step 10 of"):
        publish_export(saved, dataset, tmp_path / "new", facts)
    assert not [*tmp_path.glob("*new*")]
