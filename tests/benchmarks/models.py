"""Models, engines and micro-batches of random rows, for benchmarks of steps."""

import torch
import transformers

from model.hugging_face.conversion import Model, logical_parameters, to_hugging_face
from model.objectives.masked_language import Inputs, MaskedLanguageModel
from model.pieces import pieces_of
from pipeline.cluster.process_group import init_distributed
from pipeline.config.run import Run
from pipeline.planning.deepspeed_config import read_deepspeed_file
from pipeline.planning.phase_plan import encoder_config
from pipeline.training.optimizer.engine import ZeroEngine, initialize_engine

SPECIAL, MASK_ID = 5, 4
"""Random ids are from SPECIAL on."""
CPU = torch.device("cpu")


def random_inputs(
    vocabulary: int, rows: int, length: int, predictions: int, device: torch.device = CPU
) -> Inputs:
    """Full rows with so many predictions each, the same on every device."""
    drawn = torch.Generator().manual_seed(0)
    ids = torch.randint(SPECIAL, vocabulary, (rows, length), generator=drawn)
    places = torch.rand(rows, length, generator=drawn).topk(predictions).indices.sort(-1).values
    positions = (places + length * torch.arange(rows)[:, None]).flatten()
    labels = ids.flatten()[positions]
    ids.view(-1)[positions] = MASK_ID
    tensors = (part.to(device) for part in (positions, labels, torch.ones(len(labels))))
    return Inputs(
        ids.flatten().to(device),
        pieces_of([length] * rows, device),
        *tensors,
        MASK_ID,
        dropout_keys_T=torch.arange(rows * length, dtype=torch.int32, device=device),
    )


def masked_language_model(run: Run) -> MaskedLanguageModel:
    return MaskedLanguageModel(encoder_config(run), seed=0).train()


def roberta_of_transformers(run: Run, *, weights: bool) -> transformers.RobertaForMaskedLM:
    """Of the run's sizes, configured by our converter; weights: those of our model, too."""
    with torch.device("cpu" if weights else "meta"), torch.no_grad():
        state, config = to_hugging_face(MaskedLanguageModel(encoder_config(run), seed=0))
    config = {name: config[name] for name in config if name not in ("architectures", "model_type")}
    settings = transformers.RobertaConfig(**config, attn_implementation="sdpa")
    model = transformers.RobertaForMaskedLM(settings).train()
    if weights:
        model.load_state_dict(state, strict=False)
    return model


def fused_adamw(model: torch.nn.Module, run: Run) -> torch.optim.Optimizer:
    """PyTorch's, with the run's settings."""
    settings = run.optimizer
    groups = [
        {
            "params": [part for part in model.parameters() if (part.dim() > 1) == matrices],
            "weight_decay": settings.weight_decay if matrices else 0.0,
        }
        for matrices in (True, False)
    ]
    betas = (settings.beta1, settings.beta2)
    return torch.optim.AdamW(groups, lr=1e-4, betas=betas, eps=settings.eps, fused=True)


def zero_engine(
    model: Model, run: Run, stage: str = "zero1", *, rows: int = 1, accumulation: int = 1
) -> ZeroEngine:
    """A ZeRO stage on this process alone."""
    init_distributed()
    return initialize_engine(
        model, run, read_deepspeed_file(stage), logical_parameters(model),
        rows=rows, accumulation=accumulation,
    )  # fmt: skip
