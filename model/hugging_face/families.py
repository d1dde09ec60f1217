"""transformers' names for each family: its classes, its modules, its settings.

A family is a value of `Family`; that of a model follows from its configuration and heads.
`hugging_face` uses these names to convert weights in both directions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from model.config import EncoderConfig, LayerDesign

Names = Mapping[str, tuple[str, ...]]


DESIGNED = ("norm", "gated", "biases", "position_kind")
"""Fields of `LayerDesign` that every family fixes."""
OF_ROTARY = ("window", "global_every", "rotary_base", "local_rotary_base")
"""Fields that it also fixes if its positions are learned, which use none of these."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Family:
    """A family of encoders, as transformers defines it."""

    model_type: str
    """Its name in transformers."""
    architecture: str
    """Class with the masked-word head only."""
    pair_architecture: str | None
    """Class with the masked-word head and the segment-pair head."""
    modules: Names
    """Our module -> theirs; several if ours stacks their rows. `weight` and `bias` are the same.
    {} is a layer, {next} the one after it, {last} the last one, which precedes {}."""
    tied: Mapping[str, str]
    """Alias of a tied parameter in transformers -> its primary name."""
    unused: tuple[str, ...]
    """Prefixes of names in published folders that none of the classes uses."""
    activations: Mapping[str, str]
    """Our name of the activation -> theirs."""
    after_pad: bool
    """True if positions start after the pad id instead of at 0."""
    factorised: bool
    """True if embeddings may be narrower than hidden vectors, and layers may share weights. Models
    with neither belong to a family without."""
    pooler: str = ""
    """The layer over a row's first vector that its encoder's class always has; "" if none."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings whose value is fixed."""
    design: LayerDesign = field(default_factory=LayerDesign)
    """Design of its layers, in the fields of `DESIGNED`."""

    @property
    def prefix(self) -> str:
        """Prefix of the encoder's names in models with heads, which its own class drops."""
        return self.modules["encoder.embeddings.words"][0].partition(".")[0] + "."

    def changes(self, config: EncoderConfig, pairs: bool) -> dict[str, Any]:
        """Changes that make a model one of this family: fields of its configuration, and values.

        `pairs`, whether it has a pair head, counts as a field. Empty if the model is of the family.
        """
        found: dict[str, Any] = {}
        if config.activation not in self.activations:
            found["activation"] = next(iter(self.activations))
        if self.after_pad != (config.position_offset > 0):
            found["position_offset"] = 2 if self.after_pad else 0  # <pad> is 1 in RoBERTa
        narrow = config.embedding_width < config.width
        if self.factorised and not narrow and config.sharing == "none":
            found["embedding_width"] = min(128, config.width // 2)  # 128 in all of ALBERT
        elif narrow and not self.factorised:
            found["embedding_width"] = config.width
        if config.sharing != "none" and not self.factorised:
            found |= {"sharing": "none", "groups": 1}
        if pairs and self.pair_architecture is None:
            found["pairs"] = False
        fixed: tuple[str, ...] = DESIGNED
        if self.design.position_kind == "learned":
            fixed += OF_ROTARY
        elif config.segment_types > 1:
            found["segment_types"] = 1
        wanted = {name: getattr(self.design, name) for name in fixed}
        return found | {
            name: value for name, value in wanted.items() if getattr(config, name) != value
        }


def _layers(prefix: str, attention: str, names: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """prefix: of a layer in transformers; attention: of the module with query, key and value."""
    projections = tuple(f"{prefix}.{attention}.{part}" for part in ("query", "key", "value"))
    others = {f"encoder.layers.{{}}.{ours}": (f"{prefix}.{name}",) for ours, name in names.items()}
    return {"encoder.layers.{}.attention.query_key_value": projections} | others


def _embeddings(prefix: str) -> dict[str, tuple[str, ...]]:
    return {
        "encoder.embeddings.words": (f"{prefix}.embeddings.word_embeddings",),
        "encoder.embeddings.positions": (f"{prefix}.embeddings.position_embeddings",),
        "encoder.embeddings.segments": (f"{prefix}.embeddings.token_type_embeddings",),
        "encoder.embeddings.norm": (f"{prefix}.embeddings.LayerNorm",),
    }


def _bert_encoder(prefix: str) -> dict[str, tuple[str, ...]]:
    names = {
        "attention.output": "attention.output.dense",
        "attention_norm": "attention.output.LayerNorm",
        "feed_forward.inner": "intermediate.dense",
        "feed_forward.outer": "output.dense",
        "feed_forward_norm": "output.LayerNorm",
    }
    return _embeddings(prefix) | _layers(f"{prefix}.encoder.layer.{{}}", "attention.self", names)


def _tied(head: str, prefix: str) -> dict[str, str]:
    return {
        f"{head}.decoder.weight": f"{prefix}.embeddings.word_embeddings.weight",
        f"{head}.decoder.bias": f"{head}.bias",
    }


ROBERTA = Family(
    model_type="roberta",
    architecture="RobertaForMaskedLM",
    pair_architecture=None,
    modules=_bert_encoder("roberta")
    | {
        "head": ("lm_head",),
        "head.dense": ("lm_head.dense",),
        "head.norm": ("lm_head.layer_norm",),
    },
    tied=_tied("lm_head", "roberta"),
    unused=(
        "roberta.pooler.", "roberta.embeddings.position_ids", "roberta.embeddings.token_type_ids",
    ),
    activations={"gelu": "gelu"},  # of its head, whatever hidden_act says
    after_pad=True,
    factorised=False,
    pooler="roberta.pooler.dense",
)  # fmt: skip

BERT = Family(
    model_type="bert",
    architecture="BertForMaskedLM",
    pair_architecture="BertForPreTraining",
    modules=_bert_encoder("bert")
    | {
        "head": ("cls.predictions",),
        "head.dense": ("cls.predictions.transform.dense",),
        "head.norm": ("cls.predictions.transform.LayerNorm",),
        "pair_head.pooler": ("bert.pooler.dense",),
        "pair_head.classifier": ("cls.seq_relationship",),
    },
    tied=_tied("cls.predictions", "bert"),
    unused=("bert.embeddings.position_ids", "bert.embeddings.token_type_ids"),  # not parameters
    activations={"gelu": "gelu", "gelu_tanh": "gelu_new"},
    after_pad=False,
    factorised=False,
    pooler="bert.pooler.dense",
    settings={"position_embedding_type": "absolute"},
)

MAPPING = "albert.encoder.embedding_hidden_mapping_in"
"""The embeddings' projection, which transformers' ALBERT always has. If embeddings are as wide as
hidden vectors, google-research/albert has none, and neither have we: folders hold the identity."""

ALBERT = Family(
    model_type="albert",
    architecture="AlbertForMaskedLM",
    pair_architecture="AlbertForPreTraining",
    modules=_embeddings("albert")
    | {"encoder.projection": (MAPPING,)}
    | _layers(
        "albert.encoder.albert_layer_groups.{}.albert_layers.0",
        "attention",
        {
            "attention.output": "attention.dense",
            "attention_norm": "attention.LayerNorm",
            "feed_forward.inner": "ffn",
            "feed_forward.outer": "ffn_output",
            "feed_forward_norm": "full_layer_layer_norm",
        },
    )
    | {
        "head": ("predictions",),
        "head.dense": ("predictions.dense",),
        "head.norm": ("predictions.LayerNorm",),
        "pair_head.pooler": ("albert.pooler",),
        "pair_head.classifier": ("sop_classifier.classifier",),
    },
    tied=_tied("predictions", "albert"),
    unused=("albert.embeddings.position_ids", "albert.embeddings.token_type_ids"),
    activations={"gelu": "gelu", "gelu_tanh": "gelu_new"},
    after_pad=False,
    factorised=True,
    pooler="albert.pooler",
    settings={"inner_group_num": 1},  # groups have one layer, "albert_layers.0"
)

ELECTRA = Family(
    model_type="electra",
    architecture="ElectraForPreTraining",
    pair_architecture=None,
    modules=_bert_encoder("electra")
    | {"encoder.projection": ("electra.embeddings_project",)}
    | {
        ours.replace("encoder.", "generator.", 1): tuple(f"generator.{name}" for name in theirs)
        for ours, theirs in _bert_encoder("electra").items()
    }
    | {
        "generator.projection": ("generator.electra.embeddings_project",),
        "head": ("generator.generator_lm_head",),
        "head.dense": ("generator.generator_predictions.dense",),
        "head.norm": ("generator.generator_predictions.LayerNorm",),
        "restoring.words": ("generator_lm_head",),
        "restoring.words.dense": ("generator_predictions.dense",),
        "restoring.words.norm": ("generator_predictions.LayerNorm",),
        "restoring.copy": ("copying",),
        "detection.dense": ("discriminator_predictions.dense",),
        "detection.output": ("discriminator_predictions.dense_prediction",),
    },
    tied={"generator_lm_head.weight": "electra.embeddings.word_embeddings.weight"},
    unused=("electra.embeddings.position_ids", "electra.embeddings.token_type_ids"),
    activations={"gelu": "gelu"},
    after_pad=False,
    factorised=False,
)
"""The encoder and, under names that start with `generator.`, its generator; `electra_folders`
converts their configurations. An encoder that restores words has the class of a generator, which
has no copy probability: these names are ours."""
COPYING_PREFIX = "copying."
RESTORING_PREFIX = "generator_predictions."
"""Prefix of the head of an encoder that restores words, and of any generator in its own folder."""

MODERNBERT = Family(
    model_type="modernbert",
    architecture="ModernBertForMaskedLM",
    pair_architecture=None,
    modules={
        "encoder.embeddings.words": ("model.embeddings.tok_embeddings",),
        "encoder.embeddings.norm": ("model.embeddings.norm",),
        "encoder.layers.{}.attention.query_key_value": ("model.layers.{}.attn.Wqkv",),
        "encoder.layers.{}.attention.output": ("model.layers.{}.attn.Wo",),
        "encoder.layers.{}.attention_norm": ("model.layers.{}.mlp_norm",),
        "encoder.layers.{}.feed_forward.inner": ("model.layers.{}.mlp.Wi",),
        "encoder.layers.{}.feed_forward.outer": ("model.layers.{}.mlp.Wo",),
        "encoder.layers.{}.feed_forward_norm": ("model.layers.{next}.attn_norm",),
        "encoder.layers.{last}.feed_forward_norm": ("model.final_norm",),
        "head": ("decoder",),
        "head.dense": ("head.dense",),
        "head.norm": ("head.norm",),
    },
    tied={"decoder.weight": "model.embeddings.tok_embeddings.weight"},
    unused=(),
    activations={"gelu": "gelu"},
    after_pad=False,
    factorised=False,
    design=LayerDesign(norm="pre", gated=True, biases=False, position_kind="rotary"),
)
"""Ettin's and mmBERT's models have the same class (Warner et al. 2024). Its norms are named for
what reads them, ours for what they follow, see `model.layers`."""

NAMES_WITHOUT_CLASS: Names = {
    **BERT.modules,
    "encoder.projection": ("bert.embeddings_project",),
}
"""Names of a model that transformers has no class for, which is trained only for comparisons."""

BOUNDARY_HEAD = {
    "boundary_head": ("span_boundary",),
    "boundary_head.places": ("span_boundary.places",),
    "boundary_head.first": ("span_boundary.first",),
    "boundary_head.first_norm": ("span_boundary.first_norm",),
    "boundary_head.second": ("span_boundary.second",),
    "boundary_head.second_norm": ("span_boundary.second_norm",),
}
"""SpanBERT's head, in any family: transformers has none, so these names are ours."""
BOUNDARY_PREFIX = "span_boundary."

FAMILIES = (ROBERTA, BERT, ALBERT, MODERNBERT)
"""Families of `MaskedLanguageModel`, which belongs to the first that fits; `ReplacedTokenModel` is
ELECTRA."""


def family_of(config: EncoderConfig, pairs: bool) -> Family:
    """The family that a model belongs to; pairs: it has a head for segment pairs.

    Raises ValueError if transformers has no class for it, see `changes_to_fit`.
    """
    for family in FAMILIES:
        if not family.changes(config, pairs):
            return family
    pair_head = " and a pair head" if pairs else ""
    raise ValueError(
        f"no family of transformers has a class for activation={config.activation}, "
        f"position_offset={config.position_offset}, embedding_width={config.embedding_width} of "
        f"{config.width}, sharing={config.sharing}, norm={config.norm}, gated={config.gated}, "
        f"biases={config.biases}, position_kind={config.position_kind}, window={config.window}"
        f"{pair_head}"
    )


def changes_to_fit(config: EncoderConfig, pairs: bool) -> dict[str, dict[str, Any]]:
    """By model_type, the changes that make a model one of that family, see `Family.changes`.

    Families that take a model with its pair head come first, then those with fewer changes.
    """
    found = {family.model_type: family.changes(config, pairs) for family in FAMILIES}
    return dict(sorted(found.items(), key=lambda item: ("pairs" in item[1], len(item[1]))))


def family_named(model_type: str) -> Family:
    """The family with this name in transformers; raises ValueError if it is unknown."""
    for family in FAMILIES:
        if family.model_type == model_type:
            return family
    known = ", ".join(family.model_type for family in FAMILIES)
    raise ValueError(f"model_type={model_type} is not supported; supported: {known}")


def model_type_of(theirs: Mapping[str, Any]) -> str:
    """The family named by a configuration; raises ValueError if it names none, as in some
    folders from 2019."""
    if "model_type" not in theirs:
        raise ValueError(
            "the configuration has no model_type; add one of "
            f"{', '.join(family.model_type for family in (*FAMILIES, ELECTRA))}"
        )
    return str(theirs["model_type"])
