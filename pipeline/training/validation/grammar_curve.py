"""Minimal pairs -> validation_grammar in the metrics: grammar while a run learns it.

The same scores as `evaluate --grammar` gives for the same pairs, see
`pipeline.evaluation.zero_shot`, except that a run in bf16 scores in bf16.
"""

from __future__ import annotations

from pathlib import Path

from pipeline.base.errors import ConfigError, DataError
from pipeline.config.run import Run
from pipeline.data.tokenizers.folders import read_vocabulary
from pipeline.evaluation.zero_shot.grammar import GrammarScores, GrammarTest
from pipeline.evaluation.zero_shot.grammar_pairs import read_paradigms

GRAMMAR = "validation_grammar"


def open_grammar(run: Run, tokenizer: Path) -> GrammarTest | None:
    """The pairs that a run is scored on, None if it names none.

    tokenizer: folder of the shards' tokenizer. Raises ConfigError if the pairs cannot be scored.
    """
    settings = run.validation
    if not settings.grammar:
        return None
    try:
        paradigms = read_paradigms(Path(settings.grammar))
        chosen = [paradigm.sample(settings.grammar_pairs) for paradigm in paradigms]
        return GrammarTest.of(chosen, read_vocabulary(tokenizer), run.encoder.positions)
    except DataError as error:
        raise ConfigError(f"validation.grammar={settings.grammar}: {error}") from error


def grammar_fields(scores: GrammarScores) -> dict[str, float]:
    """The accuracies as fields of a line of metrics."""
    fields = {GRAMMAR: scores.overall.accuracy}
    # A single phenomenon is the overall score.
    if len(scores.phenomena) > 1:
        fields |= {f"{GRAMMAR}/{name}": part.accuracy for name, part in scores.phenomena.items()}
    return fields
