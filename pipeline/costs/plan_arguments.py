"""The command line of `pipeline.plan`; needs no torch, so --help works anywhere."""

from __future__ import annotations

import argparse
from pathlib import Path

from pipeline.base.command_line import Parser, add_training_arguments, cores, example_text
from pipeline.costs.device_rates import GPUS


def parse_plan() -> argparse.Namespace:
    """The command line of pipeline.plan."""
    parser = Parser(
        prog="python -m pipeline.plan",
        description="Estimate what a run takes before it is submitted: memory, the largest "
        "micro-batch, hours, cost and energy, passes over the data, disk space, time to prepare. "
        "Every figure says whether it is computed, published, estimated or measured here, "
        "and what it assumes. Runs write what they measured to $TENFOLD_ROOT/site.json, which the "
        "next plan uses.",
        epilog=example_text(
            "python -m pipeline.plan roberta_base --tokens 4e9 --nodes 2 --gpus-per-node 8 \\\n"
            "    --gpu h100 --price 2.5",
            "python -m pipeline.plan roberta_tiny --data data/shards/sample-* --cpu --json",
        ),
    )
    add_training_arguments(parser)
    text = parser.add_mutually_exclusive_group(required=True)
    text.add_argument(
        "--data",
        type=Path,
        nargs="+",
        default=[],
        metavar="DIR",
        help="shards made by pipeline.prepare: their files, hashes and settings are checked too",
    )
    text.add_argument(
        "--tokens",
        type=float,
        metavar="N",
        help="plan for shards of N tokens that are not prepared yet, e.g. 4e9; English has about "
        "4.2 bytes per token",
    )
    parser.add_argument(
        "--nodes", type=int, default=1, metavar="N", help="number of nodes (default: 1)"
    )
    parser.add_argument(
        "--gpus-per-node",
        type=int,
        metavar="M",
        help="ranks per node, one per GPU (default: 8; with --cpu 1)",
    )
    device = parser.add_mutually_exclusive_group(required=True)
    device.add_argument(
        "--gpu",
        choices=tuple(GPUS),
        help="kind of GPU (SXM boards: h100 80 GB, h200 141 GB, a100 80 GB)",
    )
    device.add_argument("--cpu", action="store_true", help="train without GPUs")
    parser.add_argument(
        "--cores", type=int, default=cores(), metavar="N",
        help="CPU cores per node, for --cpu, for updates of an offloaded optimizer and for "
        "pipeline.prepare (default: those of this machine)",
    )  # fmt: skip
    parser.add_argument(
        "--nics",
        type=int,
        metavar="N",
        help="network cards per node, of 400 Gb/s, or 200 with a100 (default: one per GPU)",
    )
    parser.add_argument(
        "--price", type=float, default=0.0, metavar="P",
        help="price of a GPU-hour (with --cpu of a node-hour), in any currency",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser.parse_args()
