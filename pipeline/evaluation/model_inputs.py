"""A micro-batch on the model's device -> the model's inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from model.objectives.masked_language import Inputs
from model.pieces import Pieces
from pipeline.loading.micro_batch import MicroBatch


def model_inputs(batch: MicroBatch, tokenizer: Mapping[str, Any]) -> Inputs:
    """The inputs for one forward pass; tokenizer: of the manifest, with the ids of mask, bos and
    eos."""
    tokens, weights_T = len(batch.input_ids), None
    if batch.tokens < tokens:  # the dead come last; a comparison on the device waits for no copy
        weights_T = (torch.arange(tokens, device=batch.input_ids.device) < batch.tokens).float()
    return Inputs(
        input_ids_T=batch.input_ids,
        pieces=Pieces(batch.cu_seqlens, batch.longest),
        positions_K=batch.positions,
        labels_K=batch.labels,
        weights_K=batch.weights,
        mask_id=tokenizer["mask"],
        segment_ids_T=batch.segment_ids,
        row_starts_R=batch.row_starts,
        pair_labels_R=batch.pair_labels,
        token_weights_T=weights_T,
        draws_K=batch.draws,
        dropout_keys_T=batch.dropout_keys,
        edge_ids=(tokenizer["bos"], tokenizer["eos"]),
    )
