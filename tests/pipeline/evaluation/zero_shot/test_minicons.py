"""Scores of sentences equal those of minicons, which scores folders of transformers."""

from pathlib import Path

import pytest
import torch

from pipeline.data.tokenizers.folders import read_vocabulary
from pipeline.evaluation.zero_shot.grammar_pairs import read_paradigms
from pipeline.evaluation.zero_shot.pseudo_likelihood import encode_sentences, log_probabilities
from pipeline.training.weights.model_folders import load_folder
from tests.pipeline.conftest import PAIRS_SHIPPED
from tests.pipeline.downstream.small_work import EXPORTS, every_family
from tests.pipeline.evaluation.zero_shot.minicons_environment import Minicons, install

PAIRS = 500


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        return install(tmp_path_factory.mktemp("minicons") / "venv")
    except RuntimeError as error:
        pytest.skip(str(error))


def short_sentences(longest: int, folder: Path) -> list[str]:
    """Both sentences of pairs, from all paradigms in turn, that the model has positions for."""
    paradigms = read_paradigms(PAIRS_SHIPPED)
    sentences = [
        side.text
        for row in zip(*(paradigm.pairs for paradigm in paradigms), strict=False)
        for pair in row
        for side in pair
    ]
    vocabulary = read_vocabulary(folder)
    lengths = [len(part.ids) for part in encode_sentences(sentences, vocabulary, 10_000)]
    return [s for s, length in zip(sentences, lengths, strict=True) if length <= longest]


@pytest.mark.slow
@every_family
def test_scores_equal_those_of_minicons(family: str, python: Path, tmp_path: Path) -> None:
    """ELECTRA's is its generator: minicons wants a head that predicts words."""
    folder = EXPORTS / family
    model, vocabulary = load_folder(folder), read_vocabulary(folder)
    sentences = short_sentences(model.config.positions, folder)[: 2 * PAIRS]
    assert len(sentences) == 2 * PAIRS
    peer = folder / "generator" if family == "electra" else folder
    with Minicons(python, peer, sentences, tmp_path) as minicons:
        theirs, *_ = minicons.score()
    sequences = encode_sentences(sentences, vocabulary, model.config.positions, "word")
    found = log_probabilities(model, sequences, vocabulary.mask, torch.device("cpu"))
    ours = [float(part.sum()) for part in found]
    assert ours == pytest.approx(theirs, abs=1e-4, rel=1e-6)
