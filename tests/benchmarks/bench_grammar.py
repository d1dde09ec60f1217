"""Sentences scored by pseudo-log-likelihood: ours and minicons, same weights, same sentences.

    python -m tests.benchmarks.bench_grammar [--recipe NAME] [--pairs N] [--threads N]

Random weights of a recipe's shapes, in float32, on the CPU; pairs of Zorro. minicons 0.3.39 runs in
an environment of its own, a process beside this one, and gets 32 sentences at a time, padded to
the longest; it makes a batch of each sentence's copies. Loading is not counted, tokenizing is. Both
sides take turns: medians of ratios, by the clock and by CPU seconds.
"""

import argparse
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from pipeline.base.errors import run_command
from pipeline.data.preparation.tokenizer_training import train_tokenizer
from pipeline.data.tokenizers.vocabulary import Vocabulary
from pipeline.evaluation import zero_shot
from pipeline.evaluation.zero_shot.grammar_pairs import read_paradigms
from pipeline.evaluation.zero_shot.pseudo_likelihood import encode_sentences, log_probabilities
from pipeline.ingest.corpora.sources import corpus_sources
from pipeline.planning.build import Model, build_model
from pipeline.recipes import recipe
from pipeline.training.weights.model_folders import write_folder
from tests.benchmarks.bench_training import Seconds, parse_threads, ratios, rounds
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
    sentences = [side for paradigm in paradigms for pair in paradigm.pairs for side in pair]
    measured: list[tuple[Seconds, Seconds]] = []
    farthest = 0.0
    with Minicons(python, folder, sentences, work, torch.get_num_threads()) as minicons:
        for counted in rounds(ROUNDS):
            started = time.perf_counter(), time.process_time()
            ours = score(model, vocabulary, sentences)
            mine = Seconds(time.perf_counter() - started[0], time.process_time() - started[1])
            theirs, *seconds = minicons.score()
            farthest = max(farthest, float(np.abs(np.array(ours) - theirs).max()))
            if counted:
                measured.append((Seconds(*seconds), mine))
    wall, cpu = ratios(measured)
    each = [
        statistics.median(pair[side].cpu for pair in measured) / len(sentences) for side in (0, 1)
    ]
    print(
        f"grammar: {name}, {vocabulary.size:,} ids, {len(sentences):,} sentences: minicons "
        f"{1e3 * each[0]:.1f} ms, ours {1e3 * each[1]:.1f} ms a sentence of CPU time, ratio "
        f"{wall:.2f} by the clock, {cpu:.2f} by CPU seconds (goal >= {GOAL:g}), "
        f"{torch.get_num_threads()} threads, {len(measured)} rounds; scores differ by "
        f"{farthest:.1e} at most",
        flush=True,
    )


def score(model: Model, vocabulary: Vocabulary, sentences: list[str]) -> list[float]:
    """The score of each sentence, as `pipeline.evaluate` computes it."""
    sequences = encode_sentences(sentences, vocabulary, model.config.positions)
    found = log_probabilities(model, sequences, vocabulary.mask, torch.device("cpu"))
    return [float(part.sum()) for part in found]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--recipe", nargs="+", default=["roberta_mini", "roberta_base"])
    parser.add_argument("--pairs", type=int, default=16, help="pairs of each of six paradigms")
    parser.add_argument("--python", type=Path, help="an environment's that has minicons")
    options = parse_threads(parser)
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        python = options.python or install(work / "environment")
        for name in options.recipe:
            bench(name, options.pairs, work, python)


if __name__ == "__main__":
    run_command(main)
