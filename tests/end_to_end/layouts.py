"""Save under one ZeRO stage, load under all, on as many ranks as there are; then continue training.

    torchrun --nproc-per-node N layouts.py FOLDER OUT.json

Every stage trains the toy, saves it in the background, and continues for STEPS steps. Then each
stage loads its own checkpoint and that of FOLDER/first (made by the first launch), into an engine
that starts with other weights: the bytes must be those saved, and the next losses must agree. Rank
0 writes the results; test_layouts.py reads them.
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import torch
import torch.distributed as dist

from pipeline.base.errors import run_command
from pipeline.cluster.ranks import Cluster
from pipeline.cluster.stop_request import StopRequest
from pipeline.planning.deepspeed_config import DeepSpeedFile, read_deepspeed_file
from pipeline.planning.schedule import learning_rate
from pipeline.training.checkpoints.fragment_files import divide
from pipeline.training.checkpoints.read import Checkpoint, open_checkpoint, step_name
from pipeline.training.checkpoints.saver import Saver
from pipeline.training.optimizer.engine import ZeroEngine, initialize_engine
from pipeline.training.run_progress import restore
from tests.pipeline.training.toy import Toy, batches, records, toy_run
from tests.pipeline.training.toy_checkpoints import state

SAVED_AT, STEPS, SEQUENCES = 5, 10, 15
RUN = toy_run("lamb", "fp32", 1.0, SEQUENCES, SAVED_AT + STEPS)
LAYOUTS = {
    **{f"stage {stage}": read_deepspeed_file(f"zero{stage}") for stage in range(4)},
    "stage 2, offloaded": DeepSpeedFile(
        "offloaded", {"stage": 2, "offload_optimizer": {"device": "cpu"}}
    ),
}


def engine_of(file: DeepSpeedFile, cluster: Cluster, seed: int) -> ZeroEngine:
    model = Toy(seed)
    rows = SEQUENCES // cluster.world_size
    return initialize_engine(model, RUN, file, records(model), rows=rows, accumulation=1)


def train(engine: ZeroEngine, cluster: Cluster, first: int, last: int) -> Iterator[float]:
    """Make the steps after `first` up to `last`; returns the loss of each."""
    for step, (ids, weights) in enumerate(batches(SEQUENCES, last), 1):
        if step > first:
            count = int(weights[:, 1:].sum())
            world, rank = cluster.world_size, cluster.rank
            loss = engine(ids.chunk(world)[rank], weights.chunk(world)[rank])
            engine.backward(loss, count)
            engine.step(learning_rate(RUN, step))
            yield float(cluster.total(loss.detach().reshape(1))) / count


def save(engine: ZeroEngine, cluster: Cluster, folder: Path) -> Saver:
    fragments = engine.optimizer.fragments()
    if engine.stage == 0:
        fragments = divide(fragments, cluster.rank, cluster.world_size)
    shapes = {part.name: tuple(part.shape) for part in engine.optimizer.logical}
    own = {"updates": engine.optimizer.steps, "stage": engine.stage, "shapes": shapes}
    saver = Saver(folder, cluster, keep=1, keep_every=0)
    saver.begin(fragments, replace(state(SAVED_AT, cluster.world_size), **own))
    return saver


def content(engine: ZeroEngine) -> dict[tuple[str, int], bytes]:
    """This rank's weights and moments."""
    return {
        (part.name, part.start): b"".join(tensor.numpy().tobytes() for tensor in part[2:])
        for part in engine.optimizer.fragments()
    }


def stored(checkpoint: Checkpoint, engine: ZeroEngine) -> dict[tuple[str, int], bytes]:
    """The same, from a checkpoint."""
    found = {}
    for part in engine.optimizer.fragments():
        tensors = checkpoint.read(part.name, part.start, part.start + part.weight.numel())
        found[part.name, part.start] = b"".join(tensor.numpy().tobytes() for tensor in tensors)
    return found


def measure(name: str, file: DeepSpeedFile, cluster: Cluster, folder: Path) -> dict[str, Any]:
    own = folder / f"{cluster.world_size} {name}"
    engine = engine_of(file, cluster, seed=0)
    losses = list(train(engine, cluster, 0, SAVED_AT))
    before = content(engine)
    saver = save(engine, cluster, own)
    losses += train(engine, cluster, SAVED_AT, SAVED_AT + STEPS)  # while it is written
    assert saver.finish() == ""
    engine.close()
    found: dict[str, Any] = {"losses": losses}
    sources = {"own": own, "first": folder / "first"}
    for source, directory in sources.items():
        checkpoint = open_checkpoint(directory / "checkpoints" / step_name(SAVED_AT))
        engine = engine_of(file, cluster, seed=1)
        restore(engine, checkpoint)
        loaded = content(engine)
        same = loaded == stored(checkpoint, engine) and (source != "own" or loaded == before)
        found[source] = {
            "equal": not cluster.any(not same),
            "losses": list(train(engine, cluster, SAVED_AT, SAVED_AT + STEPS)),
        }
        engine.close()
    return found


def main() -> None:
    torch.set_num_threads(1)
    folder, output = Path(sys.argv[1]), Path(sys.argv[2])
    cluster = Cluster.join(StopRequest())
    if not (folder / "first").exists():
        engine = engine_of(LAYOUTS["stage 0"], cluster, seed=0)
        list(islice(train(engine, cluster, 0, SAVED_AT), SAVED_AT))
        assert save(engine, cluster, folder / "first").finish() == ""
        engine.close()
    dist.barrier()
    found = {name: measure(name, file, cluster, folder) for name, file in LAYOUTS.items()}
    if cluster.rank == 0:
        output.write_text(json.dumps(found))
    cluster.leave()


if __name__ == "__main__":
    run_command(main, at_once=True)
