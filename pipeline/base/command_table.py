"""The table of all commands, in the order of their use."""

from __future__ import annotations

COMMANDS = {
    "train_tokenizer": "text -> a vocabulary (optional: prepare trains one if there is none)",
    "prepare": "text -> shards with ten masks per sequence; needs CPUs only",
    "inspect": "show what is in shards, a tokenizer, raw documents, a run or a model",
    "plan": "estimate what a run takes: memory, hours, cost, disk, passes over the data",
    "doctor": "check whether these machines can run a job, before it waits in a queue",
    "train": "shards -> a trained model; resumes by itself",
    "status": "show how far runs are, whether they are alive, and why they ended",
    "report": "show what runs did on one page: curves, time, data, scores",
    "export": "a trained model -> a folder that transformers loads",
    "evaluate": "score a model on held-out sequences",
    "finetune": "score a model on labelled tasks, fine-tuned with several seeds",
    "ablate": "compare choices: train arms with the same seeds, test the differences",
}
"""Modules of `pipeline` in the order of their use, each with what it does."""
VIEWS = {
    "recipes": "list the recipes by family",
    "settings": "list the settings of a recipe: settings RECIPE [PATH]",
    "compile": "compile the numerical kernels now instead of at the first start",
}
"""Subcommands that have no module of their own."""


def list_commands() -> str:
    """Every command in the order of use, each with a line."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name:{width}}  {meaning}" for name, meaning in (COMMANDS | VIEWS).items()]
    lines.append("\n`tenfold COMMAND --help` describes the options of a command.")
    return "\n".join(["commands:", *lines, "", ""])
