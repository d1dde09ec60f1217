"""How each family, and a small model, is fine-tuned on each task; the source of every number.

Sources, by the names used below:
  Devlin   Devlin et al. 2019, sec. 4.1-4.4 and app. A.3; google-research/bert run_classifier.py
  Liu      Liu et al. 2019 (RoBERTa), app. C, table 10
  Lan      Lan et al. 2020 (ALBERT), app. A.4, table 14; google-research/albert run_glue.sh
  Clark    Clark et al. 2020 (ELECTRA), app. B; google-research/electra configure_finetuning.py
  Joshi    Joshi et al. 2020 (SpanBERT), README of facebookresearch/SpanBERT
  Warner   Warner et al. 2024 (ModernBERT), AnswerDotAI/ModernBERT src/evals/glue_jobs.py and
           misc_jobs.py; its decay is not multiplied by the rate, so the quotient is here
  Turc     Turc et al. 2019, README of google-research/bert: grid and epochs of its small models,
           with the optimizer of Devlin
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from pipeline.downstream.finetune_tasks import LabelledTask


@dataclass(frozen=True, kw_only=True, slots=True)
class TuningProtocol:
    """One way to fine-tune."""

    source: str
    peak_lr: float
    rows: int
    """Examples per optimizer step; windows for spans."""
    epochs: float
    length: int
    """Longest row in tokens."""
    warmup: float
    """Share of the steps, after which the rate falls linearly to 0."""
    weight_decay: float
    """Never applied to biases and LayerNorm."""
    beta2: float = 0.999
    epsilon: float = 1e-6
    clip: float = 1.0
    """Largest norm of the gradient; 0: none."""
    layer_decay: float = 1.0
    """Factor of the rate from a layer to the one below it."""
    dropout: float = 0.1
    """Dropout of the encoder, whatever the model was trained with."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """Format of matrix products in training; weights, updates and predictions are float32."""
    grid: tuple[tuple[float, int], ...] = ()
    """Published grid of (peak_lr, rows), of which the best is reported."""
    max_steps: int = 0
    """Steps instead of epochs, where a paper gives these; 0: epochs."""

    def points(self) -> list[TuningProtocol]:
        """The protocols of the grid; this one if it has none."""
        return [replace(self, peak_lr=rate, rows=rows) for rate, rows in self.grid] or [self]

    def describe(self) -> dict[str, Any]:
        """Its numbers, for scores.json."""
        return asdict(self) | {"grid": [list(point) for point in self.grid]}


def _grid(rates: tuple[float, ...], sizes: tuple[int, ...]) -> tuple[tuple[float, int], ...]:
    return tuple((rate, rows) for rate in rates for rows in sizes)


BERT = TuningProtocol(
    source="Devlin",
    peak_lr=2e-5,
    rows=32,
    epochs=3,
    length=128,  # run_classifier.py --max_seq_length
    warmup=0.1,
    weight_decay=0.01,
    grid=_grid((5e-5, 4e-5, 3e-5, 2e-5), (32,)),  # sec. 4.1
)
ROBERTA = TuningProtocol(
    source="Liu",
    peak_lr=2e-5,
    rows=16,
    epochs=10,
    length=512,
    warmup=0.06,
    weight_decay=0.1,
    beta2=0.98,
    clip=0.0,  # fairseq examples/roberta/README.glue.md
    grid=_grid((1e-5, 2e-5, 3e-5), (16, 32)),
)
ALBERT = TuningProtocol(
    source="Lan",
    peak_lr=1e-5,
    rows=32,
    epochs=3,
    length=512,
    warmup=0.1,
    weight_decay=0.01,
    dropout=0.0,  # most tasks of table 14; _ALBERT_STEPS has the others
)
ELECTRA = TuningProtocol(
    source="Clark",
    peak_lr=1e-4,
    rows=32,
    epochs=3,
    length=128,
    warmup=0.1,
    weight_decay=0.01,
    layer_decay=0.8,
)
SPANBERT = TuningProtocol(
    source="Joshi",
    peak_lr=2e-5,
    rows=32,
    epochs=10,
    length=128,
    warmup=0.1,
    weight_decay=0.01,
)
MODERNBERT = TuningProtocol(
    source="Warner",
    peak_lr=3e-5,  # SST-2's, for tasks without a published rate
    rows=16,
    epochs=3,
    length=256,
    warmup=0.1,  # generate_eval_config.py t_warmup
    weight_decay=0.1,
    beta2=0.98,
    clip=0.0,
    # as released; the authors' .1 is only after attention's output, which folders cannot express
    dropout=0.0,
)
SMALL = replace(
    BERT,
    source="Turc",
    # ours: the better of 3e-4 and 1e-4 for roberta_mini on phrases cut from SST-2's training file
    # (81.5 and 79.7 %)
    peak_lr=3e-4,
    epochs=4,
    grid=_grid((3e-4, 1e-4, 5e-5, 3e-5), (8, 16, 32, 64, 128)),
)
PROTOCOLS = {
    "bert": BERT,
    "roberta": ROBERTA,
    "albert": ALBERT,
    "electra": ELECTRA,
    "spanbert": SPANBERT,
    "modernbert": MODERNBERT,
    "small": SMALL,
}
LEAST_LENGTH = 16
"""Shortest rows: half for a question, four special tokens, and some of its paragraph."""
SMALL_WIDTH = 512
"""Widest encoder that is a small model; ELECTRA has rates of its own for these."""

_CHANGES: dict[tuple[str, str], dict[str, Any]] = {
    # Devlin sec. 4.2 and 4.3
    ("bert", "spans"): {"peak_lr": 5e-5, "rows": 32, "epochs": 3, "length": 384, "grid": ()},
    ("bert", "squad2"): {"peak_lr": 5e-5, "rows": 48, "epochs": 2, "length": 384, "grid": ()},
    ("bert", "swag"): {"peak_lr": 2e-5, "rows": 16, "grid": ()},  # Devlin sec. 4.4
    ("roberta", "spans"): {
        "peak_lr": 1.5e-5, "rows": 48, "epochs": 2, "weight_decay": 0.01, "grid": (),
    },
    ("roberta", "choices"): {"peak_lr": 1e-5, "epochs": 4, "grid": ()},
    ("electra", "rte"): {"epochs": 10},
    ("electra", "stsb"): {"epochs": 10},
    ("electra", "spans"): {"epochs": 2, "length": 512},
    ("spanbert", "spans"): {"epochs": 4, "length": 512},
    ("modernbert", "cola"): {"peak_lr": 5e-5, "rows": 32, "epochs": 10},
    ("modernbert", "mnli"): {"peak_lr": 5e-5, "rows": 64, "epochs": 2, "weight_decay": 0.02},
    ("modernbert", "mrpc"): {"peak_lr": 8e-5, "rows": 32, "epochs": 10},
    ("modernbert", "qnli"): {"peak_lr": 1e-5, "epochs": 10},
    ("modernbert", "qqp"): {"epochs": 5},
    ("modernbert", "rte"): {"peak_lr": 1e-5, "weight_decay": 1.0},
    ("modernbert", "stsb"): {"rows": 32, "epochs": 10},
    ("modernbert", "choices"): {  # SWAG's
        "peak_lr": 1e-5, "rows": 32, "epochs": 1, "weight_decay": 0.5,
    },
    ("modernbert", "spans"): {"length": 512},  # ours: as ELECTRA's
    ("small", "spans"): {"length": 384},  # Devlin sec. 4.2
}  # fmt: skip
"""Differences from the general protocol by task, or else by kind of task."""

_ALBERT_STEPS: dict[str, tuple[float, int, float, int, float]] = {
    # task: peak_lr, rows, dropout, steps, warm-up steps (table 14)
    "cola": (1e-5, 16, 0.0, 5336, 320),
    "stsb": (2e-5, 16, 0.0, 3598, 214),
    "sst2": (1e-5, 32, 0.0, 20935, 1256),
    "mnli": (3e-5, 128, 0.0, 10000, 1000),
    "qnli": (1e-5, 32, 0.0, 33112, 1986),
    "qqp": (5e-5, 128, 0.1, 14000, 1000),
    "rte": (3e-5, 32, 0.1, 800, 200),
    "mrpc": (2e-5, 32, 0.0, 800, 200),
    "wnli": (2e-5, 16, 0.1, 2000, 250),
    "squad1": (5e-5, 48, 0.0, 3649, 365),
    "squad2": (3e-5, 48, 0.0, 8144, 814),
    "race": (2e-5, 32, 0.1, 12000, 1000),
}


def usual_protocol(family: str, width: int) -> str:
    """Name in PROTOCOLS of the protocol for a model of this family and width."""
    return "small" if width <= SMALL_WIDTH and family != "electra" else family


def protocol_for(name: str, task: LabelledTask, width: int) -> TuningProtocol:
    """The published protocol of this name for a task; its general one where none is published.

    width: of the hidden vectors; ELECTRA's rates depend on the size.
    """
    changes = dict(_CHANGES.get((name, task.name), _CHANGES.get((name, task.kind), {})))
    if name == "albert" and task.name in _ALBERT_STEPS:
        rate, rows, dropout, steps, warmup = _ALBERT_STEPS[task.name]
        changes = {"peak_lr": rate, "rows": rows, "dropout": dropout, "max_steps": steps,
                   "warmup": warmup / steps,  # table 14 counts steps, a protocol takes a share
                   "length": 384 if task.name == "squad1" else 512}  # fmt: skip
    if name == "electra" and width >= 1024:
        changes |= {"peak_lr": 5e-5, "layer_decay": 0.9}  # Clark, table 7, Large
    elif name == "electra" and width <= 256:
        changes |= {"peak_lr": 3e-4}  # Clark, table 7
    return replace(PROTOCOLS[name], **changes)
