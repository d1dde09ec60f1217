"""The general sample: prepared once per run, with its own tokenizer and settings."""

import contextlib
from pathlib import Path
from typing import Any

import pytest
import torch

from pipeline.cluster.ranks import Alone
from pipeline.config.settings import override
from pipeline.data.shards.manifest import MANIFEST
from pipeline.data.tokenizers.folders import save_vocabulary
from pipeline.data.tokenizers.trainers import train_vocabulary
from pipeline.data.tokenizers.vocabulary import Vocabulary
from pipeline.evaluation.held_out import evaluate, validation_loader
from pipeline.planning.build import build_model
from pipeline.recipes import recipe
from pipeline.training.validation.general_sample import ROWS, open_general


class AloneCluster(Alone):
    agreed = contextlib.nullcontext
    any = bool


CLUSTER: Any = AloneCluster()
WHOLE = {
    "bert_tiny": ("wordpiece-uncased", "pair"), "albert_tiny": ("unigram-uncased", "pair"),
    "spanbert_tiny": ("wordpiece", "sbo"), "electra_tiny": ("wordpiece-uncased", "rtd"),
}  # fmt: skip


@pytest.fixture(autouse=True)
def nothing_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """No root to write into, and no network."""
    monkeypatch.setenv("TENFOLD_ROOT", "/nonexistent")


@pytest.mark.parametrize(
    "name", ["electra_tiny", *(pytest.param(n, marks=pytest.mark.slow) for n in [*WHOLE][:3])]
)
def test_every_objective_has_all_its_parts(
    name: str, tmp_path: Path, word_vocabularies: dict[str, Vocabulary]
) -> None:
    kind, part = WHOLE[name]
    vocabulary = word_vocabularies[kind]
    run = override(recipe(name), [f"data.vocab_size={vocabulary.size}", "validation.mask_rate=0.3"])
    save_vocabulary(vocabulary, tmp_path / "tokenizer", run.data.sequence_length, "")
    general = open_general(run, tmp_path, tmp_path / "tokenizer", CLUSTER, step=None)
    assert general and general.stored == 1 and set(general.by_corpus()) == {
        "articles", "books", "news", "stories", "web",
    }  # fmt: skip
    assert general.manifest.masking["rate"] == 0.3  # drawn: 0.15 is stored
    model = build_model(run, seed=1).eval()
    loader = validation_loader([general], 32, most=ROWS)
    scores = evaluate(model, model.parts, loader, torch.device("cpu"))
    assert scores and loader.order.end == 5 * ROWS
    assert {"loss", "mask_loss", "mlm_loss", f"{part}_loss"} <= scores.metrics.keys()


def test_it_is_prepared_once_and_again_by_a_new_start(
    tmp_path: Path, tiny_tokenizer: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A start without a checkpoint may have other settings; a resume reads what it was scored on,
    and a run that was not scored at step 0 is not scored at the end."""
    run = recipe("roberta_tiny")
    assert open_general(run, tmp_path, tiny_tokenizer, CLUSTER, step=5) is None
    first = open_general(run, tmp_path, tiny_tokenizer, CLUSTER, step=0)
    assert first
    made = (tmp_path / "general" / MANIFEST).stat().st_ino
    assert open_general(run, tmp_path, tiny_tokenizer, CLUSTER, step=5)
    assert open_general(run, tmp_path, tiny_tokenizer, CLUSTER, step=0)
    assert (tmp_path / "general" / MANIFEST).stat().st_ino == made
    shorter = override(run, ["data.sequence_length=24"])
    again = open_general(shorter, tmp_path, tiny_tokenizer, CLUSTER, step=None)
    assert again and again.manifest.sequence_length == 24
    out = capsys.readouterr()
    assert out.out == "" and "warning" not in out.err


def test_a_tokenizer_without_its_letters_is_reported_and_the_run_goes_without(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = ["η γλώσσα και το κείμενο " * 50]
    greek = train_vocabulary("wordpiece", lambda: iter(text), 300, lower_case=False)
    save_vocabulary(greek, tmp_path / "tokenizer", 32, "")
    settings = ["data.tokenizer=wordpiece", "data.vocab_size=300"]
    run = override(recipe("roberta_tiny"), settings)
    assert open_general(run, tmp_path, tmp_path / "tokenizer", CLUSTER, step=None) is None
    [line] = [x for x in capsys.readouterr().err.splitlines() if x.startswith("warning: ")]
    assert line.startswith("warning: the general sample is not scored: ")
    assert not (tmp_path / "general").exists()
