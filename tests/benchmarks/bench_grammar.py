"""Sentences scored by pseudo-log-likelihood: ours and minicons, same weights, same sentences.

    python -m tests.benchmarks.bench_grammar [--recipe NAME] [--pairs N] [--threads N]

Random weights of a recipe's shapes, in float32, on the CPU; pairs of Zorro. minicons 0.3.39 runs in
an environment of its own, a process beside this one, and gets 32 sentences at a time, padded to
the longest; it makes a batch of each sentence's copies. Loading is not counted, tokenizing is. Both
sides take turns: medians of ratios, by the clock and by CPU seconds.
"""

import tempfile
from dataclasses import replace
from pathlib import Path

import torch

from pipeline.base.errors import run_command
from pipeline.data.preparation.tokenizer_training import train_tokenizer
from pipeline.evaluation import zero_shot
from pipeline.evaluation.zero_shot.grammar_pairs import read_paradigms
from pipeline.evaluation.zero_shot.pseudo_likelihood import encode_sentences, log_probabilities
from pipeline.ingest.corpora.sources import corpus_sources
from pipeline.planning.build import build_model
from pipeline.recipes import recipe
from pipeline.training.weights.model_folders import write_folder
from tests.benchmarks.timing import THREADS, Seconds, median, parse, ratio, rounds
from tests.benchmarks.vocabulary import bench_vocabulary
from tests.pipeline.evaluation.zero_shot.minicons_environment import Minicons, install

PAIRS_SHIPPED = Path(zero_shot.__file__).with_name("zorro")
ROBERTA_IDS = 50_265
ROUNDS = 5
GOAL = 5.0


def bench(name: str, pairs: int, work: Path, python: Path) -> None:
    """Print the ratio for a recipe's shapes; pairs: of each of six paradigms."""
    run, folder = replace(recipe(name), precision="fp32"), work / name
    tokenizer = work / f"{name}-tokenizer"
    if run.data.vocab_size == ROBERTA_IDS:
        vocabulary = bench_vocabulary(tokenizer)
    else:
        vocabulary = train_tokenizer(corpus_sources("sample", [])[1], run.data, tokenizer)
    model = build_model(run, seed=0).eval()
    write_folder(model, tokenizer, folder)
    paradigms = [paradigm.sample(pairs) for paradigm in read_paradigms(PAIRS_SHIPPED)]
    sentences = [side.text for paradigm in paradigms for pair in paradigm.pairs for side in pair]
    ours, theirs = list[Seconds](), list[Seconds]()

    def score() -> None:
        """As `pipeline.evaluate --pll word` does."""
        sequences = encode_sentences(sentences, vocabulary, model.config.positions, "word")
        log_probabilities(model, sequences, vocabulary.mask, torch.device("cpu"))

    with Minicons(python, folder, sentences, work, torch.get_num_threads()) as minicons:
        for counted in rounds(ROUNDS):
            seconds = Seconds.of(score)
            _, *others = minicons.score()
            if counted:
                ours.append(seconds)
                theirs.append(Seconds(*others))
    faster = ratio(theirs, ours)
    each = [1e3 * median(side).cpu / len(sentences) for side in (theirs, ours)]
    print(
        f"grammar: {name}, {vocabulary.size:,} ids, {len(sentences):,} sentences: minicons "
        f"{each[0]:.1f} ms, ours {each[1]:.1f} ms a sentence of CPU time, ratio "
        f"{faster.wall:.2f} by the clock, {faster.cpu:.2f} by CPU seconds (goal >= {GOAL:g}), "
        f"{torch.get_num_threads()} threads, {len(ours)} rounds",
        flush=True,
    )


def main() -> None:
    recipes = ["roberta_mini", "roberta_base"]
    options = parse(__doc__, recipe=recipes, pairs=16, threads=THREADS)
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        python = install(work / "environment")
        for name in options.recipe:
            bench(name, options.pairs, work, python)


if __name__ == "__main__":
    run_command(main)
