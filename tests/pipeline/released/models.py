"""Folders that transformers writes, of every family, with and without heads."""

from pathlib import Path
from typing import Any

import torch
import transformers

from pipeline.data.tokenizers.folders import save_vocabulary
from pipeline.data.tokenizers.vocabulary import Vocabulary

SIZES = {
    "vocab_size": 2_000, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 64, "max_position_embeddings": 32, "layer_norm_eps": 1e-12,
}  # fmt: skip


FAMILIES = ("Roberta", "Bert", "Albert", "Electra", "ModernBert")


def save_model(
    kind: str, folder: Path, vocabulary: Vocabulary, *, dtype: torch.dtype = torch.float32,
    **settings: Any,
) -> Path:  # fmt: skip
    """Weights at random of a class of transformers, e.g. BertForPreTraining, and a tokenizer."""
    family = next(name for name in FAMILIES if kind.startswith(name))
    sizes = SIZES | {"pad_token_id": vocabulary.pad, "vocab_size": vocabulary.size}
    if family in ("Albert", "Electra"):
        sizes["embedding_size"] = 16
    if family == "Roberta":
        sizes |= {"max_position_embeddings": 34, "type_vocab_size": 1}
    if family == "ModernBert":
        names = {"bos": "bos", "eos": "eos", "cls": "bos", "sep": "eos"}
        sizes |= {f"{name}_token_id": getattr(vocabulary, ours) for name, ours in names.items()}
        sizes |= {"local_attention": 8, "global_attn_every_n_layers": 2}
    config = getattr(transformers, f"{family}Config")(**(sizes | settings))
    torch.manual_seed(0)
    model = getattr(transformers, kind)(config)
    model.to(dtype).save_pretrained(folder)
    save_vocabulary(vocabulary, folder, 32)
    return folder


def save_electra(folder: Path, vocabulary: Vocabulary, **settings: Any) -> Path:
    """A discriminator with its generator inside, whose embeddings are the same."""
    save_model("ElectraForPreTraining", folder, vocabulary, **settings)
    inside = folder / "generator"
    small = {"hidden_size": 16, "num_attention_heads": 1}
    save_model("ElectraForMaskedLM", inside, vocabulary, **small, **settings)
    detector = transformers.ElectraForPreTraining.from_pretrained(folder)
    filler = transformers.ElectraForMaskedLM.from_pretrained(inside)
    filler.electra.embeddings.load_state_dict(detector.electra.embeddings.state_dict())
    filler.save_pretrained(inside)
    return folder
