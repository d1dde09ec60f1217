from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer

from model.pieces import pieces_of
from pipeline.base.errors import DataError
from pipeline.config.settings import override
from pipeline.data.tokenizers.vocabulary import Vocabulary
from pipeline.evaluation.zero_shot.cloze import fill_masks, read_text_lines, report_cloze
from pipeline.planning.build import Model, build_model
from pipeline.recipes import recipe

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def model() -> Model:
    settings = ["data.vocab_size=2048", "encoder.initializer_range=0.3"]
    return build_model(override(recipe("roberta_tiny"), settings), seed=0).eval()


def test_the_five_most_probable_tokens_of_each_mask(
    model: Model, tiny_vocabulary: Vocabulary
) -> None:
    lines = ["The [MASK] sat on the [MASK].", "The <mask> sat."]
    first, second = fill_masks(model, tiny_vocabulary, lines, CPU)
    assert [len(guesses) for guesses in first.guesses] == [5, 5] and len(second.guesses) == 1
    text = "The<mask> sat."  # the mask takes the space before it
    tokenizer = Tokenizer.from_str(tiny_vocabulary.tokenizer_json)
    tokens = [tiny_vocabulary.bos, *tokenizer.encode(text, add_special_tokens=False).ids]
    ids = torch.tensor([*tokens, tiny_vocabulary.eos])
    with torch.no_grad():
        logits = model.logits(ids, pieces_of([len(ids)]))
    best = logits[tokens.index(tiny_vocabulary.mask)].softmax(-1).topk(5)
    assert [guess.probability for guess in second.guesses[0]] == pytest.approx(best.values.tolist())
    assert report_cloze([first, second]).count("\n") == 4


def test_lines_that_cannot_be_filled(
    model: Model, tiny_vocabulary: Vocabulary, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=r"the line 'No gap.' has no \[MASK\]; write"):
        fill_masks(model, tiny_vocabulary, ["A [MASK].", "No gap."], CPU)
    with pytest.raises(DataError, match=r"\[MAS' has \d+ tokens, but the model has 32 positions"):
        fill_masks(model, tiny_vocabulary, ["[MASK] " * 40], CPU)
    (tmp_path / "empty").write_text("\n\n")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    for name, said in (
        ("empty", "is empty"), ("none", "cannot be read: No such file"), ("binary", "is not UTF-8")
    ):  # fmt: skip
        with pytest.raises(DataError, match=said):
            read_text_lines(tmp_path / name)
