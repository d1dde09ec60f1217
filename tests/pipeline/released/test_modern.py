"""Folders with the shapes of ModernBERT, Ettin and mmBERT: read, evaluated and continued."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import transformers
from tokenizers import Tokenizer
from torch.nn.utils.rnn import pad_sequence

from model.hugging_face.conversion import Model
from model.pieces import pieces_of
from model.tasks.task_model import TaskDesign
from pipeline import evaluate, export
from pipeline.base.errors import ConfigError
from pipeline.config.settings import override
from pipeline.data.tokenizers.folders import read_vocabulary, save_vocabulary
from pipeline.data.tokenizers.vocabulary import Vocabulary
from pipeline.downstream.starting_weights import load_start
from pipeline.evaluation.held_out import validation_loader
from pipeline.loading.dataset import Dataset
from pipeline.planning.build import build_model
from pipeline.recipes import recipe
from pipeline.released.folder import MASKED, read_released
from pipeline.training.weights.initial_weights import load_initial_weights
from tests.pipeline.conftest import WORKER, launch
from tests.pipeline.preparing import Call
from tests.pipeline.released.models import save_model

SHAPES: dict[str, dict[str, Any]] = {
    "modernbert": {"num_hidden_layers": 4, "intermediate_size": 48},
    "ettin": {
        "num_hidden_layers": 3, "intermediate_size": 48, "global_attn_every_n_layers": 3,
        "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": 160_000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 160_000.0},
        },
    },
    "mmbert": {
        "num_hidden_layers": 4, "intermediate_size": 48, "pad_token_id": 0, "vocab_size": 2100,
        "global_rope_theta": 160_000.0, "local_rope_theta": 160_000.0,
    },
}  # fmt: skip
"""Published ratios of the inner size and wavelengths; rows of 32 tokens are longer than a window
of 8."""
DESIGN = {
    "norm": "pre", "gated": "true", "biases": "false", "position_kind": "rotary",
    "rotary_base": 160_000, "window": 8, "global_every": 2, "position_offset": 0,
    "layers": 4, "width": 32, "heads": 2, "feed_forward": 48,
}  # fmt: skip


@pytest.fixture(scope="module")
def folders(tiny_tokenizer: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path, vocabulary = tmp_path_factory.mktemp("released"), read_vocabulary(tiny_tokenizer)
    for name, settings in SHAPES.items():
        given = {"initializer_range": 0.2} | settings
        save_model("ModernBertForMaskedLM", path / name, vocabulary, **given)
    return path


def run_of(**settings: object) -> Model:
    """A run's model of the first shape, with other settings."""
    chosen = [f"encoder.{name}={value}" for name, value in (DESIGN | settings).items()]
    return build_model(override(recipe("roberta_tiny"), chosen), seed=5).eval()


def test_what_they_say_of_themselves(folders: Path) -> None:
    for name, *bases, every in (
        ("modernbert", 160_000, 10_000, 2),
        ("ettin", 160_000, 160_000, 3),
        ("mmbert", 160_000, 160_000, 2),
    ):
        found = read_released(folders / name)
        encoder = found.encoder
        assert [encoder.rotary_base, encoder.local_rotary_base] == bases
        assert (encoder.global_every, encoder.window, encoder.feed_forward) == (every, 8, 48)
        assert encoder.layer_norm_eps == 1e-5  # norm_eps; layer_norm_eps in the folder is dead
        assert found.heads == {MASKED} and found.lacking("mlm_pair")


@pytest.mark.parametrize("name", SHAPES)
def test_evaluate_gives_transformers_loss(
    name: str, folders: Path, lesson: Path, call: Call
) -> None:
    found = json.loads(call(evaluate.main, folders / name, "--data", lesson, "--json"))["mlm_loss"]
    theirs: Any = transformers.ModernBertForMaskedLM.from_pretrained(folders / name).eval()
    total, count = 0.0, 0
    with torch.no_grad():
        for batch in validation_loader([Dataset.open(lesson, "validation")], 64).micro_batches():
            rows = pad_sequence([batch.input_ids[row] for row in batch.rows], batch_first=True)
            shown = torch.arange(rows.shape[1]) < batch.cu_seqlens.diff()[:, None]
            hidden = theirs.model(rows, attention_mask=shown.long()).last_hidden_state[shown]
            used = batch.predictions
            logits = theirs.decoder(theirs.head(hidden[batch.positions[:used]]))
            total += float(F.cross_entropy(logits, batch.labels[:used], reduction="sum"))
            count += used
    assert found == pytest.approx(total / count, rel=1e-5)


def test_a_run_starts_from_one(folders: Path, lesson: Path) -> None:
    """Rows may be longer than the folder's: there is no table."""
    model = run_of(positions=64)
    found = load_initial_weights(model, folders / "modernbert", lesson / "tokenizer", ())
    assert str(folders / "modernbert") in found.lines[0]
    assert "64 tokens, the folder's of 32" in found.lines[1]
    theirs: Any = transformers.ModernBertForMaskedLM.from_pretrained(folders / "modernbert").eval()
    ids = torch.randint(5, 2048, (1, 32), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        logits = model.logits(ids[0], pieces_of([32]))
        torch.testing.assert_close(logits, theirs(ids).logits[0], rtol=0, atol=1e-5)


def test_exports_and_fine_tuning_read_rows_as_the_folder_does(
    lesson: Path, tiny_tokenizer: Path, tmp_path: Path, call: Call
) -> None:
    """Also of a run that was forked, with other wavelengths, from the one that took the weights."""
    vocabulary, folder = read_vocabulary(tiny_tokenizer), tmp_path / "mean"
    first = tmp_path / "first"
    shape = SHAPES["modernbert"] | {"classifier_pooling": "mean"}
    save_model("ModernBertForMaskedLM", folder, vocabulary, **shape)
    settings = {
        "precision": "fp32", "data.masks.rate": 0.15, "batch.sequences": 32, "steps": 1,
        "schedule.warmup_steps": 1,
    }  # fmt: skip
    jobs = [
        [folder, "--output", first],
        [first / "run.json", "--from", first, "--output", tmp_path / "fork"],
    ]
    for job, changes in zip(jobs, ({}, {"steps": 2, "encoder.rotary_base": 1e6}), strict=True):
        job += ["--data", lesson]
        for name, value in (settings | changes).items():
            job += ["--set", f"{name}={value}"]
    (tmp_path / "jobs.json").write_text(json.dumps([[*map(str, job)] for job in jobs]))
    done = launch(sys.executable, WORKER, tmp_path / "jobs.json")
    assert done.returncode == 0, done.stderr
    for name in ("first", "fork"):
        run, output = tmp_path / name, tmp_path / f"{name}-export"
        call(export.main, run, "--output", output)
        exported = transformers.ModernBertForMaskedLM.from_pretrained(output)
        assert exported.config.classifier_pooling == "mean"
        tuned = load_start(run).random_model(TaskDesign("classification", ("a", "b")), 0)
        assert tuned.pooling == "mean"
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"classifier_pooling": "max"}))
    with pytest.raises(ConfigError, match="classifier_pooling='max' cannot be loaded"):
        load_initial_weights(run_of(), folder, lesson / "tokenizer", ())


def test_another_design_is_refused(folders: Path, lesson: Path) -> None:
    """Of five layers every second has windows; copies in turn would put them elsewhere. There are
    no new positions, as there is no table to extend."""
    folder, tokenizer = folders / "modernbert", lesson / "tokenizer"
    five = save_model(
        "ModernBertForMaskedLM", folders / "five", read_vocabulary(tokenizer),
        num_hidden_layers=5, intermediate_size=48,
    )  # fmt: skip
    for given, name, theirs, ours, more in (
        (folder, "window", 8, 16, "$"),
        (folder, "rotary_base", 160000.0, 10000.0, "$"),
        (folder, "global_every", 2, 4, "$"),
        (five, "layers", 5, 10, " .*5 layers .* encoder.global_every=2"),
    ):
        said = rf": {name} {theirs} \(the run: {ours}\); add --set encoder.{name}={theirs}{more}"
        with pytest.raises(ConfigError, match=said):
            load_initial_weights(run_of(**{name: ours}), given, tokenizer, ())
    with pytest.raises(ConfigError, match="--new positions: rotary"):
        load_initial_weights(run_of(positions=64), folder, tokenizer, ("positions",))


def test_a_wider_run_starts_from_tiles(folders: Path, lesson: Path) -> None:
    sizes = {"layers": 6, "width": 64, "heads": 4, "feed_forward": 80}
    folder, tokenizer = folders / "modernbert", lesson / "tokenizer"
    with pytest.raises(ConfigError, match="feed_forward=48, or --new width"):
        load_initial_weights(run_of(**sizes), folder, tokenizer, ())
    found = load_initial_weights(run_of(**sizes), folder, tokenizer, ("width",))
    (said,) = found.described["new"]
    assert "4 layers of width 32 and 48 to 6 of 64 and 80" in said
    with pytest.raises(ConfigError, match=r"--new width: encoder\.width=32 and encoder"):
        load_initial_weights(run_of(), folder, tokenizer, ("width",))


def test_a_new_vocabulary(
    folders: Path, word_vocabularies: dict[str, Vocabulary], tmp_path: Path
) -> None:
    """Of another kind: the special tokens keep their rows, the others are means of pieces."""
    save_vocabulary(word_vocabularies["wordpiece"], tmp_path / "words", 32)
    folder, model = folders / "mmbert", run_of(local_rotary_base=160_000)
    found = load_initial_weights(model, folder, tmp_path / "words", ("vocabulary",))
    assert "5 of 2,000 tokens keep their rows" in found.lines[1]
    theirs: Any = transformers.ModernBertForMaskedLM.from_pretrained(folder)
    table = theirs.get_input_embeddings().weight
    words = model.encoder.embeddings.words.weight
    ours = Tokenizer.from_file(str(tmp_path / "words/tokenizer.json"))
    split = Tokenizer.from_file(str(folder / "tokenizer.json"))
    mask = ours.token_to_id("[MASK]"), split.token_to_id("<mask>")
    assert torch.equal(words[mask[0]], table[mask[1]])
    whole = ours.token_to_id("the")
    pieces = split.encode(" the", add_special_tokens=False).ids
    torch.testing.assert_close(words[whole], table[pieces].mean(0), rtol=0, atol=1e-6)
