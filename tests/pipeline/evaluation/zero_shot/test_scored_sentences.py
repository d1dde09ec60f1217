from pathlib import Path

import torch

from pipeline.data.tokenizers.vocabulary import Vocabulary
from pipeline.evaluation.zero_shot.grammar_pairs import pairs_hash, read_paradigms
from pipeline.evaluation.zero_shot.scored_sentences import score_sentences
from tests.pipeline.evaluation.zero_shot.small_model import small_model


def test_each_kind_has_its_fields_and_table(tiny_vocabulary: Vocabulary, tmp_path: Path) -> None:
    pairs, text = tmp_path / "verbs-run.txt", tmp_path / "text"
    pairs.write_text("he run .\nhe runs .\nwe runs .\nwe run .\n")
    text.write_text("He runs to the [MASK].\n")
    given = (small_model(), tiny_vocabulary, [], torch.device("cpu"))
    assert score_sentences(*given, text=None, grammar=None, cloze=None) == ({}, [])
    found, tables = score_sentences(*given, text=text, grammar=pairs, cloze=text)
    assert found["pseudo_perplexity"] > 1 and found["pseudo_perplexity_sequences"] == 1
    assert found["grammar"]["hash"] == pairs_hash(read_paradigms(pairs))
    assert found["grammar"]["overall"]["frequency_accuracy"] is None
    assert len(found["cloze"][0]["guesses"][0]) == 5
    assert "all paradigms" in tables[0] and tables[1].startswith("He runs to the [MASK].\n")
