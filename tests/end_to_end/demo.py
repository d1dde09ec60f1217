"""`make demo`: all steps on the sample corpus, on two CPU ranks, with an interruption.

    python tests/end_to_end/demo.py [--output demo-out]

prepare -> train (2 ranks, ZeRO-1, LAMB), stopped halfway by SIGTERM -> the same command resumes
-> export -> evaluate -> fill masks in held-out text -> score grammar. Prints each step and its
results.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

RECIPE = "roberta_tiny"
RANKS = 2
PAIRS = Path("pipeline", "evaluation", "zero_shot", "zorro")
"""Pairs of sentences that come with Tenfold; 50 % is guessing."""


def say(text: str) -> None:
    print(f"\n=== {text}", flush=True)


def run(arguments: list[object], **environment: str) -> None:
    """Print a command and run it as a user would."""
    command = [str(argument) for argument in arguments]
    print("$ " + " ".join(command), flush=True)
    subprocess.run(executable(command), check=True, env=os.environ | environment)


def executable(command: list[str]) -> list[str]:
    """`python` and `torchrun` of this environment."""
    return [str(Path(sys.executable).parent / command[0]), *command[1:]]


def train_command(output: Path) -> list[str]:
    return [
        "torchrun", "--standalone", "--nproc-per-node", str(RANKS), "-m", "pipeline.train", RECIPE,
        "--data", str(output / "shards"), "--output", str(output / "run"), "--ds", "zero1",
    ]  # fmt: skip


def steps_done(run_directory: Path) -> int:
    """The last step in metrics.jsonl; 0 before there is one."""
    try:
        lines = (run_directory / "metrics.jsonl").read_text().splitlines()
    except FileNotFoundError:
        return 0
    return max((json.loads(line)["step"] for line in lines), default=0)


def interrupted_training(output: Path, half: int) -> None:
    """Start training and stop it halfway with SIGTERM, as a batch system does."""
    command = train_command(output)
    print("$ " + " ".join(command), flush=True)
    process = subprocess.Popen(executable(command), env=os.environ | {"OMP_NUM_THREADS": "1"})
    while process.poll() is None and steps_done(output / "run") < half:
        time.sleep(0.2)
    if process.poll() is not None:
        sys.exit("error: training ended by itself before it could be interrupted")
    done = steps_done(output / "run")
    say(f"step {done}: sending SIGTERM, as a batch system does before it takes a node")
    process.send_signal(signal.SIGTERM)
    process.wait(timeout=120)
    if not (output / "run" / "INTERRUPTED").exists():
        sys.exit("error: the run was stopped without leaving RUN/INTERRUPTED")
    print("RUN/INTERRUPTED exists: the run is saved and can be started again")


def fill_masks(output: Path, count: int) -> None:
    """Mask a word in held-out sentences and print the predictions of the exported model."""
    import pyarrow.ipc
    import torch
    from transformers import AutoModelForMaskedLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(output / "export")
    model = AutoModelForMaskedLM.from_pretrained(output / "export").eval()
    for shard in sorted((output / "shards" / "rows").glob("validation-?????.arrow"))[:count]:
        row = pyarrow.ipc.open_file(shard).read_all()["input_ids"][0].as_py()
        words = [p for p in range(3, len(row) - 1) if tokenizer.decode([row[p]]).strip().isalpha()]
        place = words[len(words) // 2]
        ids = torch.tensor([row])
        ids[0, place] = tokenizer.mask_token_id
        with torch.no_grad():
            best = model(ids).logits[0, place].softmax(-1).topk(5)
        text = " ".join(tokenizer.decode(ids[0, max(1, place - 14) : place + 15]).split())
        guesses = ", ".join(
            f"{tokenizer.decode([index])!r} {probability:.0%}"
            for probability, index in zip(best.values.tolist(), best.indices.tolist(), strict=True)
        )
        print(f"\n  ... {text} ...")
        print(f"  was {tokenizer.decode([row[place]])!r}; the model says {guesses}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("demo-out"))
    output: Path = parser.parse_args().output
    started = time.monotonic()
    if output.exists():
        shutil.rmtree(output)
    from pipeline.recipes import recipe

    steps = recipe(RECIPE).steps
    root = {"TENFOLD_ROOT": str(output)}
    say("1 of 7: raw text to shards with ten masks per sequence")
    run(["python", "-m", "pipeline.prepare", "--corpus", "sample", "--recipe", RECIPE,
         "--output", output / "shards"], **root)  # fmt: skip
    say(f"2 of 7: train {RECIPE} on {RANKS} ranks with ZeRO-1 and LAMB, {steps} steps")
    interrupted_training(output, steps // 2)
    say("3 of 7: the same command resumes at the step where it stopped")
    run(list(train_command(output)), OMP_NUM_THREADS="1")
    say("4 of 7: export for transformers, logits compared")
    run(["python", "-m", "pipeline.export", output / "run", "--output", output / "export"])
    say("5 of 7: score it on held-out documents")
    run(["python", "-m", "pipeline.evaluate", output / "export", "--data", output / "shards"])
    say("6 of 7: fill masks in held-out text (a toy: two layers, minutes of training)")
    fill_masks(output, 4)
    say("7 of 7: grammar: is the right sentence of each pair more probable than the wrong one?")
    run(["python", "-m", "pipeline.evaluate", output / "export", "--grammar", PAIRS])
    seconds = time.monotonic() - started
    say(f"done in {seconds:.0f} s: {output}/shards, {output}/run, {output}/export")


if __name__ == "__main__":
    main()
