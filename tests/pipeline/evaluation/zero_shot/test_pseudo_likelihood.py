import math

import numpy as np
import pytest
import torch

from model.objectives.masked_language import Inputs, Sums
from model.pieces import pieces_of
from pipeline.base.errors import DataError
from pipeline.cluster.ranks import Alone
from pipeline.config.formats import Pll
from pipeline.data.tokenizers.vocabulary import Vocabulary
from pipeline.evaluation.zero_shot import pseudo_likelihood
from pipeline.evaluation.zero_shot.pseudo_likelihood import encode_sentences, log_probabilities
from pipeline.planning.build import Model
from tests.pipeline.evaluation.zero_shot.small_model import small_model

CPU = torch.device("cpu")
SENTENCES = ["The quixotically coloured bird sang.", "It rained.", "Zanzibar is an archipelago ."]


@pytest.fixture(scope="module", params=["roberta", "electra"])
def model(request: pytest.FixtureRequest) -> Model:
    return small_model(request.param)


@pytest.mark.parametrize("pll", ["word", "token"])
def test_every_token_is_masked_with_the_rest_of_its_word(
    model: Model, tiny_vocabulary: Vocabulary, pll: Pll
) -> None:
    """The words are those between spaces: no sentence has punctuation inside one."""
    sequences = encode_sentences(SENTENCES, tiny_vocabulary, 32, pll)
    found = log_probabilities(model, sequences, tiny_vocabulary.mask, CPU)
    alone = pseudo_likelihood.ALONE
    parted = [((np.diff(part.words) == 0) & (part.words[1:] != alone)).any() for part in sequences]
    assert any(parted) == (pll == "word")
    for sequence, scores in zip(sequences, found, strict=True):
        ids = torch.from_numpy(sequence.ids)
        words = sequence.words.tolist()
        assert len(scores) == len(ids) - 2 and scores.dtype == np.float32
        for place, score in enumerate(scores.tolist(), 1):
            shown = ids.clone()
            shown[place] = tiny_vocabulary.mask
            for later in range(place + 1, len(ids) - 1):
                if pll == "word" and words[later] == words[place]:
                    shown[later] = tiny_vocabulary.mask
            with torch.no_grad():
                logits = model.logits(shown, pieces_of([len(shown)]))[place]
            assert score == pytest.approx(float(logits.log_softmax(-1)[ids[place]]), abs=1e-4)


def test_ranks_share_the_batches_and_make_as_many_forward_passes(
    model: Model, tiny_vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches that no number of ranks divides: a rank that stops early hangs ZeRO stage 3."""
    monkeypatch.setitem(pseudo_likelihood.BATCH_TOKENS, "cpu", 64)
    sequences = encode_sentences(SENTENCES, tiny_vocabulary, 32)
    alone = log_probabilities(model, sequences, tiny_vocabulary.mask, CPU)
    uneven = False
    for world_size in (2, 3, 5):
        passes: list[list[int]] = []
        parts = []
        for rank in range(world_size):
            sizes: list[int] = []

            def counted(inputs: Inputs, sizes: list[int] = sizes) -> Sums:
                sizes.append(len(inputs.labels_K))
                return model(inputs)

            ranks, mask = Alone(rank, world_size), tiny_vocabulary.mask
            parts.append(log_probabilities(counted, sequences, mask, CPU, ranks=ranks))
            passes.append(sizes)
        assert len({len(sizes) for sizes in passes}) == 1
        uneven |= sum(map(sum, passes)) > sum(map(len, alone))
        for number, whole in enumerate(alone):
            assert sum(part[number] for part in parts).tolist() == whole.tolist()
    assert uneven


def test_rows_of_shards_have_all_text_tokens_masked_one_at_a_time(model: Model) -> None:
    row = np.array([[0, 700, 800, 900, 2], [0, 0, 0, 0, 0]])
    sequence = pseudo_likelihood.maskable_sequence(row, {0, 1, 2, 3, 4})
    assert sequence.places.tolist() == [1, 2, 3] and set(sequence.words.tolist()) == {-1}
    (found,) = log_probabilities(model, [sequence], 4, CPU)
    fields = pseudo_likelihood.score_pseudo_perplexity(model, [sequence], 4, CPU)
    assert fields["pseudo_perplexity_tokens"] == 3
    assert fields["pseudo_perplexity"] == pytest.approx(math.exp(-found.mean()), rel=1e-5)


def test_sentences_that_cannot_be_scored(
    tiny_vocabulary: Vocabulary, word_vocabularies: dict[str, Vocabulary]
) -> None:
    with pytest.raises(DataError, match=r"'It rained.' has \d .* 4 positions"):
        encode_sentences(["It rained."], tiny_vocabulary, 4)
    with pytest.raises(DataError, match="'' has no"):
        encode_sentences([""], tiny_vocabulary, 32)
    for name in ("wordpiece", "wordpiece-uncased"):
        with pytest.raises(DataError, match=r"no token for .*\u16a0"):
            encode_sentences(["It \u16a0 rained."], word_vocabularies[name], 32)
