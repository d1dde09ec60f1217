"""Start two ranks, train a step, and exit, many times; print the exit codes.

    python exits.py PAIRS [plainly]

Ranks exit as commands do or, with `plainly`, through the interpreter's own cleanup, in which a
thread of a process group can abort the process ("terminate called without an active exception").
Each rank is forked from this process, which has already imported DeepSpeed.
"""

import importlib
import os
import socket
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import torch
import torch.distributed as dist

from pipeline.base.errors import run_command
from pipeline.cluster.process_group import init_distributed
from pipeline.planning.deepspeed_config import read_deepspeed_file
from pipeline.training.optimizer.engine import initialize_engine
from tests.pipeline.training.toy import Toy, batches, records, toy_run

WORLD_SIZE = 2


def work() -> None:
    """The work of a test worker: join, train under ZeRO-1, leave."""
    init_distributed()
    model, run = Toy(), toy_run("lamb", "fp32", 1.0, 2 * WORLD_SIZE, 1)
    file = read_deepspeed_file("zero1")
    engine = initialize_engine(model, run, file, records(model), rows=2, accumulation=1)
    for ids, marks in batches(2, 1):
        engine.backward(engine(ids, marks), 10)
    engine.step(1e-3)
    dist.barrier()
    dist.destroy_process_group()


def start(pairs: int) -> bool:
    """Start pair after pair. True in a rank; False in this process, after all have ended."""
    codes: Counter[int] = Counter()
    for _ in range(pairs):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        ranks = []
        for rank in range(WORLD_SIZE):
            process = os.fork()
            if not process:
                os.environ |= {
                    "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(WORLD_SIZE),
                    "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
                }  # fmt: skip
                return True
            ranks.append(process)
        codes.update(os.waitstatus_to_exitcode(os.waitpid(rank, 0)[1]) for rank in ranks)
    for code, count in sorted(codes.items()):
        print(f"{count} ended with {code}")
    return False


if __name__ == "__main__":
    torch.set_num_threads(1)
    for module in ("deepspeed", "torch._dynamo", "torch.utils.tensorboard"):
        importlib.import_module(module)  # once, before any fork
    if start(int(sys.argv[1])):
        if sys.argv[2:] == ["plainly"]:
            work()
        else:
            run_command(work, at_once=True)
