"""Shared by tests of checkpoints: a toy run, cut unevenly over threads that act as its ranks."""

import json
import math
import random
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xxhash

from pipeline.cluster.ranks import RankGroup
from pipeline.training.checkpoints.data_position import Reading
from pipeline.training.checkpoints.fragment_files import seal, unseal
from pipeline.training.checkpoints.read import Checkpoint, State
from pipeline.training.checkpoints.saver import Saver
from pipeline.training.optimizer.optimizer import FragmentState

SHAPES = {"embedding.weight": (7, 3), "query.weight": (5, 5), "query.bias": (5,), "scale": ()}
"""Four logical parameters, 52 elements."""
Range = tuple[str, int, int]
"""Logical parameter, first and last element."""


@dataclass(frozen=True)
class ThreadRank:
    """One of several threads that act as the ranks of a run."""

    rank: int
    world_size: int
    texts: list[str]
    barrier: threading.Barrier

    def gather(self, text: str) -> list[str]:
        self.texts[self.rank] = text
        self.barrier.wait(timeout=60)
        texts = list(self.texts)
        self.barrier.wait(timeout=60)
        return texts

    def from_first(self, content: bytes) -> bytes:
        return self.gather(content.decode("latin-1"))[0].encode("latin-1")

    def total(self, values: torch.Tensor) -> torch.Tensor:
        parts = [json.loads(text) for text in self.gather(json.dumps(values.tolist()))]
        return torch.tensor(parts, dtype=torch.float64).sum(0)


def on_ranks(world_size: int, function: Callable[[RankGroup], Any]) -> list[Any]:
    """The result of `function`, or the error that it raised, on each rank."""
    results: list[Any] = [None] * world_size
    barrier, texts = threading.Barrier(world_size), [""] * world_size

    def play(rank: int) -> None:
        try:
            results[rank] = function(ThreadRank(rank, world_size, texts, barrier))
        except Exception as error:
            results[rank] = error

    threads = [threading.Thread(target=play, args=(rank,)) for rank in range(world_size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def values(step: int) -> dict[str, tuple[torch.Tensor, ...]]:
    """Name -> flat weight, exp_avg, exp_avg_sq of a step, of arbitrary bits (including NaN)."""
    generator = torch.Generator().manual_seed(step)
    return {
        name: tuple(
            torch.randint(-(2**31), 2**31, (math.prod(shape),), generator=generator)
            .to(torch.int32)
            .view(torch.float32)
            for _ in range(3)
        )
        for name, shape in SHAPES.items()
    }


def cut(world_size: int, seed: int = 0) -> list[list[Range]]:
    """The fragments of each rank: uneven, some ranks may have none."""
    generator = random.Random(world_size * 100 + seed)
    ranks: list[list[Range]] = [[] for _ in range(world_size)]
    for name, shape in SHAPES.items():
        numel = math.prod(shape)
        inner = generator.sample(range(1, numel), min(world_size - 1, numel - 1))
        for start, stop in pairwise([0, *sorted(inner), numel]):
            generator.choice(ranks).append((name, start, stop))
    return ranks


def fragments(step: int, ranges: Iterable[Range] | None = None) -> list[FragmentState]:
    """The given ranges of a step's values; without ranges, all values whole."""
    tensors = values(step)
    if ranges is None:
        ranges = [(name, 0, math.prod(shape)) for name, shape in SHAPES.items()]
    return [
        FragmentState(name, start, *(tensor[start:stop] for tensor in tensors[name]))
        for name, start, stop in ranges
    ]


def state(step: int, world_size: int = 1) -> State:
    return State(
        step=step, updates=step - 1, counters={"skipped": 1},
        readings=(Reading(16, step * 60, ((3, 5),)), Reading(32, step * 4)),
        left_out=((0, "train-00001.arrow"),), recent_losses=(2.5, 1 / 3),
        run={"name": "toy", "optimizer": {"peak_lr": 1e-3}},
        fingerprints={"data": "ab12", "tokenizer": "cd34"},
        world_size=world_size, stage=1, shapes=SHAPES, versions={"torch": "2"}, device="",
    )  # fmt: skip


def saver(run: Path, ranks: RankGroup, *, keep: int = 9, keep_every: int = 0) -> Saver:
    """A rank's saver, which prints nothing."""
    made = Saver(run, ranks, keep=keep, keep_every=keep_every, tell=lambda text: None)
    made.sound_step = 1 << 40  # as if later steps had shown that all of these are sound
    return made


def save(
    run: Path, step: int, world_size: int = 1, *, keep: int = 9, values_of: int = 0
) -> list[Any]:
    """Save a step, with the values of another step if given; each rank's error, or None."""
    cuts = cut(world_size)
    return on_ranks(
        world_size,
        lambda ranks: saver(run, ranks, keep=keep).save(
            fragments(values_of or step, cuts[ranks.rank]), state(step, world_size)
        ),
    )


def save_in_background(
    run: Path, step: int, world_size: int, *, keep: int, values_of: int
) -> list[Any]:
    """As `save`, in the background of ranks that continue and change their values."""
    cuts = cut(world_size)

    def play(ranks: RankGroup) -> str:
        own = saver(run, ranks, keep=keep)
        live = fragments(values_of, cuts[ranks.rank])
        own.begin(live, state(step, world_size))
        for part in live:
            for tensor in part[2:]:
                tensor.fill_(0)
        return own.finish()

    return on_ranks(world_size, play)


def flip(content: bytes, bit: int) -> bytes:
    """With one bit changed."""
    damaged = bytearray(content)
    damaged[bit // 8] ^= 1 << bit % 8
    return bytes(damaged)


def published(run: Path) -> list[int]:
    """The steps of a run's checkpoints."""
    return sorted(int(path.name[5:]) for path in (run / "checkpoints").glob("step-*"))


def holds(checkpoint: Checkpoint, step: int) -> bool:
    """Whether a checkpoint's bytes are those of a step's values."""
    return all(
        found.numpy().tobytes() == expected.numpy().tobytes()
        for name, tensors in values(step).items()
        for found, expected in zip(checkpoint.read(name, 0, len(tensors[0])), tensors, strict=True)
    )


def break_weight(directory: Path, name: str, value: float = math.nan) -> None:
    """Let a checkpoint hold a number that is not finite, as one that a broken run saved."""
    index = json.loads((directory / "index.json").read_bytes())
    stored = next(t for t in index["tensors"] if (t["name"], t["kind"]) == (name, "weight"))
    content = bytearray((directory / stored["file"]).read_bytes())
    end = stored["byte"] + 4 * stored["numel"]
    content[end - 4 : end] = np.float32(value).tobytes()
    (directory / stored["file"]).write_bytes(content)
    stored["xxh3_64"] = xxhash.xxh3_64_hexdigest(content[stored["byte"] : end])
    file = next(file for file in index["files"] if file["file"] == stored["file"])
    file["xxh3_64"] = xxhash.xxh3_64_hexdigest(content)
    text = json.dumps(index, indent=1).encode()
    (directory / "index.json").write_bytes(text)
    state = unseal(directory / "state.json")
    state["index"] |= {"bytes": len(text), "xxh3_64": xxhash.xxh3_64_hexdigest(text)}
    (directory / "state.json").write_bytes(seal(state))
