"""What a folder of transformers says about itself, and what is refused in words."""

import json
import re
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
import transformers
from safetensors.numpy import load_file, save_file

from pipeline import evaluate, finetune, plan
from pipeline.base.errors import ConfigError
from pipeline.data.tokenizers.folders import read_vocabulary
from pipeline.data.tokenizers.vocabulary import Vocabulary
from pipeline.released.folder import BOUNDARIES, MASKED, PAIRS, REPLACED, read_released
from tests.launching import process
from tests.pipeline.preparing import Call
from tests.pipeline.released.models import save_electra, save_model

ROBERTA = Path(__file__).parents[2] / "golden/exports/roberta"


@pytest.fixture(scope="module")
def vocabularies(
    word_vocabularies: dict[str, Vocabulary], tiny_tokenizer: Path
) -> dict[str, Vocabulary]:
    return word_vocabularies | {"": read_vocabulary(tiny_tokenizer)}


@pytest.fixture(scope="module")
def bert(vocabularies: dict[str, Vocabulary], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("released") / "bert"
    return save_model("BertForPreTraining", folder, vocabularies["wordpiece-uncased"])


@pytest.mark.parametrize(
    ("kind", "vocabulary", "heads"),
    [
        ("BertForMaskedLM", "wordpiece", {MASKED}),
        ("BertModel", "wordpiece", set()),
        ("AlbertForPreTraining", "unigram-uncased", {MASKED, PAIRS}),
        ("AlbertForMaskedLM", "unigram-uncased", {MASKED}),
        ("ElectraForPreTraining", "wordpiece-uncased", {REPLACED}),
        ("RobertaForMaskedLM", "", {MASKED}),
        ("RobertaModel", "", set()),
    ],
)
def test_heads_that_have_weights(
    kind: str, vocabulary: str, heads: set[str], vocabularies: dict[str, Vocabulary], tmp_path: Path
) -> None:
    own = vocabularies[vocabulary]
    model = read_released(save_model(kind, tmp_path / "model", own))
    assert model.heads == heads
    assert (model.encoder.layers, model.encoder.width, model.encoder.positions) == (2, 32, 32)
    assert (model.vocabulary.kind, model.vocabulary.lower_case) == (own.kind, own.lower_case)
    assert model.generator is None


def test_a_pair_head_and_one_of_boundaries(bert: Path, tmp_path: Path) -> None:
    assert read_released(bert).heads == {MASKED, PAIRS}
    assert read_released(bert).lacking("mlm_sbo") == [BOUNDARIES]
    spanbert = Path(shutil.copytree(bert, tmp_path / "spanbert"))
    weights = load_file(bert / "model.safetensors")
    some = weights["bert.pooler.dense.weight"]
    save_file({"span_boundary.first.weight": some}, spanbert / "span_boundary.safetensors")
    assert read_released(spanbert).lacking("mlm_sbo") == []


def test_a_generator_inside(vocabularies: dict[str, Vocabulary], tmp_path: Path) -> None:
    model = read_released(save_electra(tmp_path / "e", vocabularies["wordpiece-uncased"]))
    assert model.generator
    assert (model.generator.width, model.encoder.width) == (16, 32)
    config = model.folder / "generator" / "config.json"
    content = json.loads(config.read_text())
    for changes, message in (
        ({"hidden_act": "relu"}, "hidden_act=relu"),
        ({"tie_word_embeddings": False}, "generator has tie_word_embeddings=false"),
    ):
        config.write_text(json.dumps(content | changes))
        assert message in refusal(model.folder)
    config.write_text(json.dumps(content))
    file = config.with_name("model.safetensors")
    weights = load_file(file)
    words = weights["electra.embeddings.word_embeddings.weight"]
    save_file(weights | {"generator_lm_head.weight": words + 1}, file)
    assert refusal(model.folder).endswith("--new generator")


def refusal(folder: Path) -> str:
    with pytest.raises(ConfigError) as error:
        read_released(folder)
    assert "\n" not in str(error.value)
    return str(error.value)


def edit(folder: Path, target: Path, **settings: Any) -> Path:
    shutil.copytree(folder, target)
    content = json.loads((folder / "config.json").read_text()) | settings
    (target / "config.json").write_text(json.dumps(content))
    return target


def test_what_cannot_be_continued_is_refused_in_a_line(bert: Path, tmp_path: Path) -> None:
    settings = {
        "model_type": "gpt2", "position_embedding_type": "alibi",
        "auto_map": {"AutoModel": "modeling.Mine"}, "num_hidden_layers": "two",
    }  # fmt: skip
    for name, value in settings.items():
        assert name in refusal(edit(bert, tmp_path / name, **{name: value}))
    empty = tmp_path / "empty"
    empty.mkdir()
    assert f"{empty} has no config.json" in refusal(empty)
    (empty / "config.json").write_text("[")
    assert "config.json cannot be read" in refusal(empty)
    pickled = edit(bert, tmp_path / "pickled")
    (pickled / "model.safetensors").rename(pickled / "pytorch_model.bin")
    assert "a pickle, which is not read" in refusal(pickled)
    (pickled / "pytorch_model.bin").unlink()
    assert "has no model.safetensors" in refusal(pickled)
    (pickled / "model.safetensors").write_bytes(b"\xff" * 40)
    assert "model.safetensors is damaged" in refusal(pickled)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", ["BertForMaskedLM", "RobertaForMaskedLM"])
def test_a_table_of_its_own_for_predictions_is_refused(
    kind: str, dtype: torch.dtype, vocabularies: dict[str, Vocabulary], tmp_path: Path
) -> None:
    """The advice works: what it writes lacks the head, and is read."""
    bert = kind.startswith("Bert")
    own = vocabularies["wordpiece" if bert else ""]
    folder = save_model(kind, tmp_path / "untied", own, tie_word_embeddings=False, dtype=dtype)
    head, prefix = ("cls.predictions", "bert") if bert else ("lm_head", "roberta")
    said = refusal(folder)
    names = f"{head}.decoder.weight differs from {prefix}.embeddings.word_embeddings.weight"
    assert f"{names} (tie_word_embeddings=false in" in said
    edited = edit(folder, tmp_path / "edited", tie_word_embeddings=True)
    assert "(tie_word_embeddings=true in" in refusal(edited)
    call = re.search(r"AutoModel(\.from_pretrained\(.*\)\.save_pretrained\()'NEW'\)", said)
    assert call
    eval(f"model{call[1]}new)", {"model": transformers.AutoModel, "new": tmp_path / "new"})
    for file in folder.glob("tokenizer*"):
        shutil.copy(file, tmp_path / "new")
    assert read_released(tmp_path / "new").lacking("mlm") == [MASKED]


def test_one_table_that_is_stored_twice_is_read(bert: Path, tmp_path: Path) -> None:
    folder = edit(bert, tmp_path / "twice")
    weights = load_file(bert / "model.safetensors")
    for kind, name in (("weight", "bert.embeddings.word_embeddings.weight"),
                       ("bias", "cls.predictions.bias")):  # fmt: skip
        weights[f"cls.predictions.decoder.{kind}"] = weights[name].copy()
    save_file(weights, folder / "model.safetensors")
    assert MASKED in read_released(folder).heads
    weights["cls.predictions.decoder.bias"] += 1
    save_file(weights, folder / "model.safetensors")
    assert "cls.predictions.decoder.bias differs from cls.predictions.bias" in refusal(folder)
    said = refusal(edit(bert, tmp_path / "said", tie_word_embeddings=False))
    assert "tie_word_embeddings=false in config.json, but no weights" in said


@pytest.mark.parametrize(
    ("kind", "name"),
    [("BertForMaskedLM", "wordpiece"), ("RobertaForMaskedLM", ""),
     ("AlbertForPreTraining", "unigram")],
)  # fmt: skip
def test_ids_without_a_row_are_refused(
    kind: str, name: str, vocabularies: dict[str, Vocabulary], tmp_path: Path
) -> None:
    """As after tokens were added to a tokenizer, and the table was not resized."""
    own = vocabularies[name]
    folder = save_model(kind, tmp_path / "model", own, vocab_size=own.size - 1)
    said = refusal(folder)
    assert f"{own.size:,} ids, more than the vocab_size={own.size - 1:,} rows" in said
    assert f"resize_token_embeddings({own.size})" in said
    model = getattr(transformers, kind).from_pretrained(folder)
    model.resize_token_embeddings(own.size)
    model.save_pretrained(folder)
    assert read_released(folder).encoder.vocab_size == own.size


def test_a_tokenizer_that_only_its_own_code_knows_is_refused(bert: Path, tmp_path: Path) -> None:
    """Its vocab.txt alone would give other ids without a word: BertJapaneseTokenizer, say."""
    folder = edit(bert, tmp_path / "slow")
    tokens = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    (folder / "tokenizer.json").unlink()
    lines = "".join(f"{token}\n" for token, _ in sorted(tokens.items(), key=lambda item: item[1]))
    (folder / "vocab.txt").write_text(lines)
    config = {"do_lower_case": True, "tokenizer_class": "BertTokenizer"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    assert read_released(folder).vocabulary.size == len(tokens)
    config["tokenizer_class"] = "BertJapaneseTokenizer"
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    assert "BertJapaneseTokenizer" in refusal(folder)
    (folder / "vocab.txt").unlink()
    assert "has no tokenizer that can be used" in refusal(folder)


INNER = "roberta.encoder.layer.0.intermediate.dense.weight"


def as_int8(folder: Path) -> None:
    """As bitsandbytes: whole numbers, and a scale for each row."""
    change_weight(folder, lambda weight: (weight * 127).to(torch.int8), scales=".SCB")
    change_settings(folder, quantization_config={"quant_method": "bitsandbytes"})


def as_fp8(folder: Path) -> None:
    change_weight(folder, lambda weight: weight.to(torch.float8_e4m3fn), scales="_scale")


def as_whole_numbers(folder: Path) -> None:
    """The header says so, the bytes are those of floats."""
    path = folder / "model.safetensors"
    content = path.read_bytes()
    place = content.index(f'"{INNER}"'.encode())
    path.write_bytes(content[:place] + content[place:].replace(b'"F32"', b'"I32"', 1))


def as_doubles(folder: Path) -> None:
    change_weight(folder, lambda weight: weight.double())


def with_nan(folder: Path) -> None:
    change_weight(folder, lambda weight: weight.index_fill(1, torch.tensor(3), torch.nan))


def with_infinity(folder: Path) -> None:
    change_weight(folder, lambda weight: weight.half().index_fill(0, torch.tensor(0), -torch.inf))


def of_many_words(folder: Path) -> None:
    change_settings(folder, vocab_size=999_999_999)


def in_several_files(folder: Path) -> None:
    """As transformers splits large models."""
    weights = safetensors.torch.load_file(folder / "model.safetensors")
    write_parts(folder, weights, "model.safetensors", safetensors.torch.save_file)


def in_several_pickles(folder: Path) -> None:
    weights = safetensors.torch.load_file(folder / "model.safetensors")
    write_parts(folder, weights, "pytorch_model.bin", torch.save)


def write_parts(
    folder: Path,
    weights: dict[str, torch.Tensor],
    kind: str,
    save: Callable[[dict[str, torch.Tensor], Path], object],
) -> None:
    (folder / "model.safetensors").unlink()
    stem, _, ending = kind.partition(".")
    names = sorted(weights)
    files = {f"{stem}-0000{part + 1}-of-00002.{ending}": names[part::2] for part in range(2)}
    for file, own in files.items():
        save({name: weights[name] for name in own}, folder / file)
    index = {name: file for file, own in files.items() for name in own}
    (folder / f"{kind}.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))


def change_weight(
    folder: Path, change: Callable[[torch.Tensor], torch.Tensor], scales: str = ""
) -> None:
    path = folder / "model.safetensors"
    weights = safetensors.torch.load_file(path)
    weights[INNER] = change(weights[INNER])
    if scales:
        weights[INNER + scales] = torch.ones(len(weights[INNER]))
    safetensors.torch.save_file(weights, path)


def change_settings(folder: Path, **settings: Any) -> None:
    config = folder / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | settings))


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (as_int8, "quantization_config"),
        (as_fp8, f"{INNER} of type F8_E4M3"),
        (as_whole_numbers, f"{INNER} of type I32"),
        (as_doubles, f"{INNER} of type F64"),
        (of_many_words, "vocab_size=999999999"),
        (in_several_files, "model.safetensors.index.json"),
        (in_several_pickles, "pytorch_model.bin.index.json"),
        (with_nan, f"not finite: {INNER}"),
        (with_infinity, f"not finite: {INNER}"),
    ],
)
def test_what_is_no_model_is_refused_by_every_command(
    damage: Callable[[Path], None], named: str, tmp_path: Path, call: Call
) -> None:
    """Before anything of its size is allocated."""
    folder = Path(shutil.copytree(ROBERTA, tmp_path / "model"))
    damage(folder)
    (tmp_path / "cloze").write_text("He runs to the [MASK].\n")
    (tmp_path / "verbs-run.txt").write_text("he run .\nhe runs .\n")
    for name in ("train.tsv", "dev.tsv"):
        (tmp_path / name).write_text("sentence\tlabel\n" + "bad\t0\ngood\t1\n" * 9)
    task = ("--task", "sst2", "--data", tmp_path, "--output", tmp_path / "tuned")
    commands = [
        (evaluate.main, (folder, "--cloze", tmp_path / "cloze", "--json")),
        (evaluate.main, (folder, "--grammar", tmp_path)),
        (finetune.main, (folder, *task)),
    ]
    if "finite" not in named:  # planning reads headers alone
        commands.append((plan.main, (folder, "--tokens", "1e6", "--gpu", "a100")))
    for main, words in commands:
        *_, line = call(main, *words, code=2).splitlines()
        assert line.startswith("error: ") and named in line and str(folder) in line
    assert not (tmp_path / "tuned").exists()


@pytest.mark.parametrize("split", [in_several_files, in_several_pickles])
def test_weights_in_several_files_are_joined_by_the_command_of_the_message(
    split: Callable[[Path], None], tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(ROBERTA, tmp_path / "it's a model"))
    split(folder)
    said = refusal(folder)
    for module in ("json", "torch", "safetensors"):  # typed in the folder, which may be hostile
        (folder / f"{module}.py").write_text("raise SystemExit('code of the folder ran')")
    _, *words = shlex.split(said[said.index("python -I") :])
    result = process.run([sys.executable, *words], cwd=folder)
    assert (result.returncode, result.stderr) == (0, "")
    joined, whole = (load_file(path / "model.safetensors") for path in (folder, ROBERTA))
    assert joined.keys() == whole.keys()
    assert all((joined[name] == whole[name]).all() for name in whole)
    assert MASKED in read_released(folder).heads


def test_positions_that_are_whole_numbers_are_no_weights(tmp_path: Path, call: Call) -> None:
    """transformers stored them beside the weights before 4.31."""
    folder = Path(shutil.copytree(ROBERTA, tmp_path / "model"))
    path = folder / "model.safetensors"
    more = {"roberta.embeddings.position_ids": torch.arange(34)[None]}
    safetensors.torch.save_file(safetensors.torch.load_file(path) | more, path)
    (tmp_path / "cloze").write_text("He runs to the [MASK].\n")
    asked = ("--cloze", tmp_path / "cloze")
    found = [call(evaluate.main, given, *asked).splitlines()[1:] for given in (folder, ROBERTA)]
    assert found[0] == found[1]
    assert MASKED in read_released(folder).heads
