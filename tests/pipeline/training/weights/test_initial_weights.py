"""--init; test_train.py checks that ranks, stages and a resume change nothing."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

from model.hugging_face.conversion import Model
from model.hugging_face.growth import EmbeddingRows
from model.pieces import pieces_of
from pipeline.base.errors import CheckpointError, ConfigError, PipelineError
from pipeline.config.settings import override
from pipeline.data.tokenizers.folders import save_vocabulary
from pipeline.data.tokenizers.vocabulary import Vocabulary
from pipeline.evaluation.held_out import evaluate, validation_loader
from pipeline.loading.dataset import Dataset
from pipeline.planning.build import build_model
from pipeline.recipes import recipe
from pipeline.training.weights import initial_weights
from pipeline.training.weights.initial_weights import check_initial_weights, load_initial_weights
from pipeline.training.weights.model_folders import load_folder, write_folder

SMALL = ["encoder.layers=1", "encoder.width=32", "encoder.heads=2", "encoder.feed_forward=64"]


def small(name: str, seed: int, *settings: str) -> Model:
    return build_model(override(recipe(name), [*SMALL, *settings]), seed).eval()


@pytest.fixture(scope="module")
def folder(lesson: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """RoBERTa and the tokenizer of `lesson`, as transformers saves them."""
    path = tmp_path_factory.mktemp("folders") / "roberta"
    config = transformers.RobertaConfig(
        vocab_size=2048, hidden_size=32, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=64, max_position_embeddings=34, type_vocab_size=1, pad_token_id=1,
        layer_norm_eps=1e-5, initializer_range=0.2,
    )  # fmt: skip
    torch.manual_seed(0)
    transformers.RobertaForMaskedLM(config).save_pretrained(path)
    transformers.AutoTokenizer.from_pretrained(lesson / "tokenizer").save_pretrained(path)
    return path


def test_the_first_validation_loss_is_theirs(lesson: Path, folder: Path) -> None:
    model = small("roberta_tiny", 1)
    initial = load_initial_weights(model, folder, lesson / "tokenizer", ())
    assert initial.lines == (f"starts from the weights of {folder}",)
    assert initial.described["folder"] == "roberta" and len(initial.described["sha256"]) == 64
    loader = validation_loader([Dataset.open(lesson, "validation")], 64)
    found = evaluate(model, model.parts, loader, torch.device("cpu"))
    assert found
    theirs: Any = transformers.RobertaForMaskedLM.from_pretrained(folder).eval()
    total, count = 0.0, 0
    for batch in loader.micro_batches():
        with torch.no_grad():
            logits = torch.cat([theirs(batch.input_ids[None, row]).logits[0] for row in batch.rows])
        used = batch.predictions
        places, labels = batch.positions[:used], batch.labels[:used]
        total += float(F.cross_entropy(logits[places], labels, reduction="sum"))
        count += used
    assert found.metrics["loss"] == pytest.approx(total / count, rel=1e-5)


def test_the_longest_text_of_a_folder(lesson: Path, folder: Path, tmp_path: Path) -> None:
    """As its tokenizer says, unless it says nothing or a number that stands for nothing."""
    shutil.copytree(folder, tmp_path / "model")
    path = tmp_path / "model" / "tokenizer_config.json"
    config, model = json.loads(path.read_text()), small("roberta_tiny", 1)
    for stated, length in ((24, 24), (10**30, 32), (None, 32)):
        path.write_text(json.dumps(config | {"model_max_length": stated}))
        assert load_initial_weights(model, path.parent, lesson / "tokenizer", ()).length == length


def refusal(model: Model, folder: Path, tokenizer: Path, *new: str) -> str:
    with pytest.raises((ConfigError, CheckpointError)) as error:
        load_initial_weights(model, folder, tokenizer, new)
    return str(error.value)


def test_a_folder_that_does_not_fit_says_what_would(
    lesson: Path, folder: Path, tmp_path: Path
) -> None:
    tokenizer, ours = lesson / "tokenizer", small("roberta_tiny", 0)
    other = f"--init {folder} has another architecture: "
    half = Path(shutil.copytree(folder, tmp_path / "half"))
    (half / "model.safetensors").unlink()
    for model, given, new, said in (
        (small("roberta_tiny", 0, "encoder.heads=4", "encoder.dropout=0.3"), folder, (),
         f"{other}heads 2 (the run: 4); add --set encoder.heads=2"),
        (small("roberta_tiny", 0, "encoder.positions=48"), folder, (),
         f"{other}positions 32 (the run: 48); add --set encoder.positions=32, or --new positions"),
        (small("bert_tiny", 0), folder, (), "its family is roberta, the run's is bert"),
        (ours, folder, ("generator",), "this run has no generator; remove it"),
        (ours, folder, ("vocabulary",), "has the tokenizer of --data; remove it"),
        (ours, folder, ("positions",), f"--new positions: encoder.positions=32, and {folder} has "
         "32; remove it, or add --set encoder.positions=N"),
        (ours, tmp_path, (), f"{tmp_path} has no config.json"),
        (ours, half, (), f"{half} has no model.safetensors"),
    ):  # fmt: skip
        assert said in refusal(model, given, tokenizer, *new)
    (half / "model.safetensors").write_bytes(b"no")
    with pytest.raises(CheckpointError, match=r"model\.safetensors is damaged"):
        load_initial_weights(ours, half, tokenizer, ())


@pytest.fixture(scope="module")
def tokenizers(
    word_vocabularies: dict[str, Vocabulary], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    path = tmp_path_factory.mktemp("tokenizers")
    for name, vocabulary in word_vocabularies.items():
        save_vocabulary(vocabulary, path / name, 64)
    return path


def berts() -> tuple[Model, Model]:
    """Two small ones with other weights."""
    sizes = ("data.vocab_size=2000", "encoder.position_offset=0")
    return small("bert_tiny", 1, *sizes), small("bert_tiny", 2, *sizes)


def test_a_new_vocabulary_keeps_rows_of_tokens_that_agree(tokenizers: Path, tmp_path: Path) -> None:
    """Checked token by token: cased in the folder, uncased here. Inputs of tokens that both have,
    whatever their ids, give the same logits bit by bit."""
    source, model = berts()
    with torch.no_grad():
        source.head.bias.normal_()
    words = [part.encoder.embeddings.words.weight for part in (source, model)]
    fresh = words[1].detach().clone()
    write_folder(source, tokenizers / "wordpiece", tmp_path / "cased")
    ours = tokenizers / "wordpiece-uncased"
    said = refusal(model, tmp_path / "cased", ours)
    assert re.search(r"another tokenizer than that of --data \(1,\d+ of 2,000 tokens have", said)
    assert f"prepare with --tokenizer {tmp_path / 'cased'}, or give --new vocabulary" in said
    initial = load_initial_weights(model, tmp_path / "cased", ours, ("vocabulary",))
    theirs, mine = (
        Tokenizer.from_file(str(path / "tokenizer.json"))
        for path in (tokenizers / "wordpiece", ours)
    )
    kept = means = 0
    for index in range(2000):
        token = mine.id_to_token(index)
        there, expected = theirs.token_to_id(token), fresh[index]
        if there is not None:
            kept, expected = kept + 1, words[0][there]
        elif not token.startswith("##"):  # those have no encoding of their own
            pieces = theirs.encode(token, add_special_tokens=False).ids
            means, expected = means + 1, words[0][pieces].mean(0)
            assert theirs.token_to_id("[UNK]") not in pieces
        else:
            continue
        torch.testing.assert_close(words[1][index], expected, rtol=0, atol=1e-7)
    assert 100 < kept < 2000 and means > 100
    assert initial.lines[1].startswith(
        f"new vocabulary: {kept:,} of 2,000 tokens keep their rows, {2000 - kept:,} are the mean "
        "of their pieces, 0 are initialized by the recipe"
    )
    tables = theirs.get_vocab(), mine.get_vocab()
    both = sorted(tables[0].keys() & tables[1].keys())
    old, new = (torch.tensor([ids[token] for token in both]) for ids in tables)
    row = torch.randint(len(both), (4 * 16,), generator=torch.Generator().manual_seed(0))
    rows = pieces_of([16] * 4)
    with torch.no_grad():
        logits = source.logits(old[row], rows)[..., old]
        assert torch.equal(model.logits(new[row], rows)[..., new], logits)


def test_another_kind_of_vocabulary_shares_special_tokens(tokenizers: Path, tmp_path: Path) -> None:
    source, model = berts()
    write_folder(source, tokenizers / "wordpiece-uncased", tmp_path / "model")
    unigram = tokenizers / "unigram"
    assert "(unigram here, uncased wordpiece there)" in refusal(model, tmp_path / "model", unigram)
    initial = load_initial_weights(model, tmp_path / "model", unigram, ("vocabulary",))
    assert "5 of 2,000 tokens keep their rows" in initial.lines[1]
    words = [part.encoder.embeddings.words.weight for part in (source, model)]
    mask = [
        Tokenizer.from_file(str(tokenizers / name / "tokenizer.json")).token_to_id("[MASK]")
        for name in ("wordpiece-uncased", "unigram")
    ]
    assert torch.equal(words[1][mask[1]], words[0][mask[0]])


@pytest.mark.parametrize(
    ("name", "kind", "sizes"),
    [
        ("roberta_tiny", "", ()),
        ("albert_tiny", "unigram", ("data.vocab_size=2000", "encoder.embedding_width=16")),
        ("electra_tiny", "wordpiece",
         ("data.vocab_size=2000", "encoder.width=128", "encoder.heads=2",
          "objective.generator.layers=1")),
    ],
)  # fmt: skip
def test_a_folder_grows_in_positions_and_layers(
    name: str, kind: str, sizes: tuple[str, ...], tokenizers: Path, lesson: Path, tmp_path: Path
) -> None:
    """Longer rows change nothing for old inputs; deeper models start from copies."""
    tokenizer = tokenizers / kind if kind else lesson / "tokenizer"
    source = small(name, 1, *sizes)
    write_folder(source, tokenizer, tmp_path / "model")
    positions = source.config.positions
    longer = small(name, 2, *sizes, f"encoder.positions={3 * positions + 1}")
    initial = load_initial_weights(longer, tmp_path / "model", tokenizer, ("positions",))
    said = f"new positions: rows {positions + 1} to {3 * positions + 1} of the table repeat the fi"
    assert initial.lines[1].startswith(said) and initial.described["new"][0].startswith(said)
    ids = torch.randint(5, 2000, (2 * positions,), generator=torch.Generator().manual_seed(0))
    rows = pieces_of([positions] * 2)
    with torch.no_grad():
        assert torch.equal(longer.logits(ids, rows), source.logits(ids, rows))
    deeper = small(name, 2, *sizes, "encoder.layers=3")
    initial = load_initial_weights(deeper, tmp_path / "model", tokenizer, ())
    shared = deeper.config.sharing == "all"
    assert ("3 layers share what 1" if shared else "grown from 1 to 3") in initial.lines[1]
    (first, *_), found = source.encoder.layers, deeper.encoder.layers
    assert len(found) == (1 if shared else 3)
    for layer in found:
        assert all(map(torch.equal, layer.parameters(), first.parameters()))


def test_a_table_with_more_rows_than_tokens(
    lesson: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder with padded rows has the same ids: the rows of tokens are taken."""
    given: list[EmbeddingRows | None] = []
    take_over = initial_weights.take_over

    def watched(model: Any, content: Any, generator: Any, rows: EmbeddingRows | None) -> Any:
        given.append(rows)
        return take_over(model, content, generator, rows)

    monkeypatch.setattr(initial_weights, "take_over", watched)
    wide = small("roberta_tiny", 0, "data.vocab_size=2100")
    initial = load_initial_weights(wide, folder, lesson / "tokenizer", ())
    (rows,) = given
    assert rows and torch.equal(rows.ours, rows.theirs) and len(initial.lines) == 1


def test_electra_needs_its_generator_or_a_new_one(tokenizers: Path, tmp_path: Path) -> None:
    tokenizer = tokenizers / "wordpiece-uncased"
    settings = ("data.vocab_size=2000", "encoder.width=128", "encoder.heads=2", "encoder.layers=2")
    source, model = small("electra_tiny", 1, *settings), small("electra_tiny", 2, *settings)
    folder = tmp_path / "electra"
    write_folder(source, tokenizer, folder)
    assert len(load_initial_weights(model, folder, tokenizer, ()).lines) == 1
    assert torch.equal(
        model.state_dict()["detection.dense.weight"], source.state_dict()["detection.dense.weight"]
    )
    shutil.move(folder / "generator", tmp_path / "elsewhere")
    said = refusal(model, folder, tokenizer)
    assert said.startswith(f"--init {folder} has no generator: ")
    assert f"put it at {folder / 'generator'}, or give --new generator" in said
    for alone, said in ((folder, "discriminator alone"), (tmp_path / "elsewhere", "generator al")):
        with pytest.raises(CheckpointError, match=f"{alone} is ELECTRA's {said}"):
            load_folder(alone)
    model = small("electra_tiny", 2, *settings)
    initial = load_initial_weights(model, folder, tokenizer, ("generator",))
    assert "new, initialized by the recipe: the generator's encoder (" in initial.lines[1]
    assert initial.described["new"] == list(initial.lines[1:])


def test_spanbert_as_it_is_published(tokenizers: Path, tmp_path: Path) -> None:
    """Pickled, no head or pooler, vocab.txt, settings from 2019: refused with advice, then read."""
    tokenizer, folder = tokenizers / "wordpiece", tmp_path / "spanbert"
    theirs = transformers.BertModel(
        transformers.BertConfig(
            vocab_size=2000, hidden_size=32, num_hidden_layers=1, num_attention_heads=2,
            intermediate_size=64, max_position_embeddings=64,
        ),
        add_pooling_layer=False,
    )  # fmt: skip
    ids = Tokenizer.from_file(str(tokenizer / "tokenizer.json")).get_vocab()
    folder.mkdir()
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in sorted(ids, key=ids.get)))
    state = {f"bert.{name}": weight for name, weight in theirs.state_dict().items()}
    torch.save(state, folder / "pytorch_model.bin")
    settings = {
        "attention_probs_dropout_prob": 0.1, "directionality": "bidi", "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1, "hidden_size": 32, "initializer_range": 0.02,
        "intermediate_size": 64, "max_position_embeddings": 64, "num_attention_heads": 2,
        "num_hidden_layers": 1, "type_vocab_size": 2, "vocab_size": 2000,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(settings))
    model = small("spanbert_tiny", 1, "data.vocab_size=2000", "encoder.positions=64")
    with pytest.raises(CheckpointError, match="a pickle, which is not read") as error:
        load_initial_weights(model, folder, tokenizer, ())
    said = str(error.value)
    with pytest.raises(CheckpointError, match=re.escape(said)):
        load_folder(folder)
    for module in ("torch", "safetensors"):  # hostile, and the command is typed in the folder
        (folder / f"{module}.py").write_text("raise SystemExit('code of the folder ran')")
    command = shlex.split(said[said.index("python ") :])
    done = subprocess.run(
        [sys.executable, *command[1:]], cwd=folder, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "configuration has no model_type; add one of" in refusal(model, folder, tokenizer)
    (folder / "config.json").write_text(json.dumps(settings | {"model_type": "bert"}))
    lines = load_initial_weights(model, folder, tokenizer, ()).lines
    assert [line.split(" (")[0] for line in lines[1:]] == [
        "new, initialized by the recipe: the head of masked words",
        "new, initialized by the recipe: the head of span boundaries",
    ]
    shown = torch.randint(5, 2000, (2, 20))
    with torch.no_grad():
        expected = theirs.eval()(shown)[0].flatten(0, 1)
        found = model.encoder(shown.flatten(), pieces_of([20, 20]))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


def test_a_run_resumes_without_the_folder_but_not_with_another(
    lesson: Path, folder: Path, tmp_path: Path
) -> None:
    model = small("roberta_tiny", 1)
    described = load_initial_weights(model, folder, lesson / "tokenizer", ()).described
    check_initial_weights(described, folder)
    check_initial_weights(described, tmp_path / "gone")
    other = tmp_path / "other"
    write_folder(small("roberta_tiny", 9), lesson / "tokenizer", other)
    with pytest.raises(CheckpointError, match="other weights than the run"):
        check_initial_weights(described, other)
    with pytest.raises(CheckpointError, match="started from, the recipe's own"):
        check_initial_weights({}, other)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda weight: weight.index_fill(0, torch.tensor(3), torch.nan), "not finite: roberta."),
        (lambda weight: (weight * 127).to(torch.int8), "type I8"),
        (lambda weight: weight[:-1], "vocab_size=2048"),
    ],
)
def test_what_is_no_weight_is_refused(
    change: Callable[[torch.Tensor], torch.Tensor], said: str, lesson: Path, folder: Path,
    tmp_path: Path,
) -> None:  # fmt: skip
    broken = Path(shutil.copytree(folder, tmp_path / "model"))
    weights = load_file(broken / "model.safetensors")
    name = "roberta.embeddings.word_embeddings.weight"
    save_file(weights | {name: change(weights[name]).contiguous()}, broken / "model.safetensors")
    with pytest.raises(PipelineError, match=said) as error:
        load_initial_weights(small("roberta_tiny", 1), broken, lesson / "tokenizer", ())
    assert str(broken) in str(error.value)
