"""Several training commands in one process, or on the ranks of one launcher: a start costs seconds.

`python train_worker.py JOBS.json`, or under torchrun: JOBS.json holds a list of argument lists.
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from pipeline import train
from pipeline.base.errors import run_command
from pipeline.cluster.ranks import Cluster
from pipeline.cluster.stop_request import StopRequest
from pipeline.training.job import read_job
from pipeline.training.network_arguments import parse_train
from tests.pipeline.training.frozen import freeze


def main() -> None:
    jobs = json.loads(Path(sys.argv[1]).read_text())
    stop = StopRequest()
    cluster = Cluster.join(stop)
    freeze()
    for arguments in jobs:
        sys.argv[1:] = arguments
        assert not train.train(read_job(parse_train()), cluster, stop)
    cluster.leave()


if __name__ == "__main__":
    run_command(main, at_once=True)
