from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer

from model.pieces import pieces_of
from pipeline.base.errors import DataError
from pipeline.data.tokenizers.vocabulary import Vocabulary
from pipeline.evaluation.zero_shot.cloze import fill_masks, read_text_lines, report_cloze
from pipeline.planning.build import Model
from tests.pipeline.evaluation.zero_shot.small_model import small_model

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def model() -> Model:
    return small_model()


def test_the_five_best_tokens_of_each_mask(model: Model, tiny_vocabulary: Vocabulary) -> None:
    lines = ["The [MASK] sat on the [MASK].", "The <mask> sat."]
    first, second = fill_masks(model, tiny_vocabulary, lines, CPU)
    assert [len(guesses) for guesses in first["guesses"]] == [5, 5]
    text = "The<mask> sat."  # the mask takes the space before it
    tokenizer = Tokenizer.from_str(tiny_vocabulary.tokenizer_json)
    tokens = [tiny_vocabulary.bos, *tokenizer.encode(text, add_special_tokens=False).ids]
    ids = torch.tensor([*tokens, tiny_vocabulary.eos])
    with torch.no_grad():
        logits = model.logits(ids, pieces_of([len(ids)]))
    best = logits[tokens.index(tiny_vocabulary.mask)].softmax(-1).topk(5)
    [guesses] = second["guesses"]
    assert [each["probability"] for each in guesses] == pytest.approx(best.values.tolist())
    assert report_cloze([first, second]).count("\n") == 4


def test_lines_that_are_refused(model: Model, tiny_vocabulary: Vocabulary, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"'No gap.' has no \[MASK\]"):
        fill_masks(model, tiny_vocabulary, ["A [MASK].", "No gap."], CPU)
    with pytest.raises(DataError, match=r"\[MAS' has \d+ .* 32"):
        fill_masks(model, tiny_vocabulary, ["[MASK] " * 40], CPU)
    (tmp_path / "empty").write_text("\n\n")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    for name, said in (("empty", "empty"), ("none", "No such file"), ("binary", "UTF-8")):
        with pytest.raises(DataError, match=said):
            read_text_lines(tmp_path / name)
