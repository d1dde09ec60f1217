"""Folders and checkpoints as models; test_export.py checks the commands that use them."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from transformers import AutoModel, AutoTokenizer, RobertaForMaskedLM, RobertaTokenizerFast

from model.objectives.masked_language import MaskedLanguageModel
from model.pieces import pieces_of
from pipeline.base.errors import CheckpointError, DataError
from pipeline.base.publish import whole_folder
from pipeline.config.settings import override
from pipeline.data.tokenizers.folders import save_vocabulary
from pipeline.data.tokenizers.vocabulary import Vocabulary
from pipeline.planning.build import build_model
from pipeline.planning.phase_plan import encoder_config
from pipeline.recipes import recipe
from pipeline.training.weights.model_folders import load_folder, load_run, write_folder
from tests.damaged_json import changed, damaged


def test_a_folder_holds_the_checkpoints_model(trained: Path, lesson: Path, tmp_path: Path) -> None:
    saved, messages = load_run(trained / "2x3-zero0")
    assert (saved.step, saved.directory, messages) == (20, trained / "2x3-zero0", [])
    assert not saved.model.training
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(DataError, match=r"cannot write .*/file/model: Not a directory; "),
        whole_folder(tmp_path / "file" / "model") as folder,
    ):
        write_folder(saved.model, lesson / "tokenizer", folder)
    folder = tmp_path / "model"
    write_folder(saved.model, lesson / "tokenizer", folder)
    assert {path.stat().st_mode for path in folder.iterdir()} == {
        (tmp_path / "file").stat().st_mode
    }
    again = load_folder(folder)
    for name, parameter in saved.model.named_parameters():
        assert torch.equal(parameter, dict(again.named_parameters())[name]), name
    weights = load_file(folder / "model.safetensors")
    assert "lm_head.decoder.weight" not in weights  # tied: one copy
    assert torch.equal(weights["lm_head.decoder.bias"], weights["lm_head.bias"])  # both names
    del weights["lm_head.bias"]
    save_file(weights, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"missing \['lm_head.bias'\]"):
        load_folder(folder)
    (folder / "model.safetensors").write_bytes(b"not one")
    with pytest.raises(CheckpointError, match=r"model\.safetensors is damaged"):
        load_folder(folder)


@pytest.mark.parametrize(
    "family", ["roberta", "bert", "albert", "electra", "spanbert", "modernbert"]
)
def test_words_that_are_split_already_get_the_ids_of_their_text(
    family: str, tiny_tokenizer: Path, word_vocabularies: dict[str, Vocabulary], tmp_path: Path
) -> None:
    """As in tasks that label words. The tokenizer's folder may name a class that cannot do it.

    AutoTokenizer takes a plain class for any ModernBERT since transformers 5.
    """
    kind: Any = RobertaTokenizerFast if family == "modernbert" else AutoTokenizer
    run = override(recipe(f"{family}_tiny"), ["data.vocab_size=2048"])
    source = tmp_path / "tokenizer"
    if run.data.tokenizer == "byte-bpe":
        shutil.copytree(tiny_tokenizer, source)
        config = json.loads((source / "tokenizer_config.json").read_text())
        config["tokenizer_class"] = "PreTrainedTokenizerFast"
        (source / "tokenizer_config.json").write_text(json.dumps(config))
    else:
        case = "-uncased" * run.data.lower_case
        save_vocabulary(word_vocabularies[f"{run.data.tokenizer}{case}"], source, 64)
    write_folder(build_model(run, seed=0), source, tmp_path / "model")
    tokenizer = kind.from_pretrained(tmp_path / "model", add_prefix_space=True)
    whole = AutoTokenizer.from_pretrained(tmp_path / "model")
    words = ["The", "cat", "sat", "on", "Washington", "'s", "mat", "."]
    found = tokenizer(words, is_split_into_words=True)
    assert found["input_ids"] == whole(" " + " ".join(words))["input_ids"]
    assert sorted({word for word in found.word_ids() if word is not None}) == [*range(len(words))]
    plain = Tokenizer.from_file(str(source / "tokenizer.json"))
    for text in ("The cat sat.", "a <mask> of  it\n é日", "<s>x</s>", ""):
        assert whole(text)["input_ids"] == plain.encode(text).ids
    masked = whole("The <mask> sat")["input_ids"]
    assert (whole.mask_token_id in masked) == (run.data.tokenizer == "byte-bpe")


@pytest.mark.parametrize(
    ("name", "objective", "law"),
    [
        ("roberta_tiny", "mlm", "normal"),
        ("bert_tiny", "mlm", "truncated_normal"),
        ("albert_tiny", "mlm", "truncated_normal"),
        ("spanbert_tiny", "mlm_sbo", "normal"),
    ],
)
def test_every_load_of_a_folder_has_the_same_pooler(
    name: str, objective: str, law: str, tiny_tokenizer: Path,
    word_vocabularies: dict[str, Vocabulary], tmp_path: Path,
) -> None:  # fmt: skip
    """Also where pretraining had none: an adapter trained on one load would not fit another."""
    settings = (f"objective.kind={objective}", f"encoder.initializer={law}", "data.vocab_size=2048")
    run = override(recipe(name), settings)
    source = tiny_tokenizer
    if run.data.tokenizer != "byte-bpe":
        source, case = tmp_path / "tokenizer", "-uncased" * run.data.lower_case
        save_vocabulary(word_vocabularies[f"{run.data.tokenizer}{case}"], source, 64)
    write_folder(build_model(run, seed=3), source, tmp_path / "model")
    ids, width = torch.arange(9)[None], run.encoder.width
    first, again = (AutoModel.from_pretrained(tmp_path / "model").eval() for _ in range(2))
    assert torch.equal(first(ids).pooler_output, again(ids).pooler_output)
    weights = [w for n, w in first.named_parameters() if "pooler" in n and w.shape[0] == width]
    drawn = torch.cat([weight.detach().flatten() for weight in weights if weight.dim() == 2])
    spread = run.encoder.initializer_range
    assert drawn.std() == pytest.approx(spread * (0.88 if law != "normal" else 1), rel=0.05)
    assert (drawn.abs().max() <= 2 * spread) == (law != "normal")
    again = load_folder(tmp_path / "model")
    assert isinstance(again, MaskedLanguageModel) and again.pair_head is None


def test_word_pieces_work_with_positions_after_their_pad(
    word_vocabularies: dict[str, Vocabulary], tmp_path: Path
) -> None:
    """Their pad id is 0: transformers must use the same positions, and its own special ids."""
    vocabulary = word_vocabularies["wordpiece-uncased"]
    save_vocabulary(vocabulary, tmp_path / "tokenizer", 64)
    settings = (
        "data.tokenizer=wordpiece", "data.lower_case=true", "data.vocab_size=2000",
        "encoder.position_offset=1",
    )  # fmt: skip
    run = override(recipe("roberta_tiny"), settings)
    model = MaskedLanguageModel(encoder_config(run), seed=0).eval()
    write_folder(model, tmp_path / "tokenizer", tmp_path / "model")
    theirs = RobertaForMaskedLM.from_pretrained(tmp_path / "model").eval()
    assert (theirs.config.bos_token_id, theirs.config.eos_token_id) == (2, 3)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    texts = ["A short one.", "An odd \u2603 word, which is [UNK], and some more of them."]
    found = tokenizer(texts, padding=True, return_tensors="pt", return_token_type_ids=False)
    assert vocabulary.unk in found.input_ids and vocabulary.pad in found.input_ids
    with torch.no_grad():
        shown = found.attention_mask > 0
        ours = model.logits(found.input_ids[shown], pieces_of(shown.sum(1).tolist()))
        their_logits = theirs(**found).logits
    assert torch.allclose(ours, their_logits[shown], atol=1e-5)
    wrong = override(run, ["encoder.position_offset=2"])
    other = MaskedLanguageModel(encoder_config(wrong), seed=0)
    with pytest.raises(CheckpointError, match="start after the pad id 1, but the tokenizer in"):
        write_folder(other, tmp_path / "tokenizer", tmp_path / "never")


def test_any_damage_of_a_folder_is_a_line_naming_it(tiny_tokenizer: Path, tmp_path: Path) -> None:
    run = override(recipe("roberta_tiny"), ["data.vocab_size=2048"])
    write_folder(build_model(run, seed=0), tiny_tokenizer, tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    whole = path.read_bytes()
    for what, content in damaged(whole):
        path.write_bytes(content)
        with pytest.raises(CheckpointError) as caught:
            load_folder(path.parent)
        assert str(path.parent) in str(caught.value) and "\n" not in str(caught.value), what
    for what, values in changed(json.loads(whole)):
        path.write_text(json.dumps(values))
        try:
            load_folder(path.parent)
        except CheckpointError as error:
            assert str(error).startswith(str(path.parent)) and "\n" not in str(error), what
    path.write_bytes(whole)
    weights = path.with_name("model.safetensors")
    for _, content in damaged(weights.read_bytes()):
        weights.write_bytes(content)
        with pytest.raises(CheckpointError, match=f"{weights} is damaged"):
            load_folder(path.parent)
