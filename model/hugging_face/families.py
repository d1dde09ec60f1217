"""What transformers calls each family: its classes, its module names, its settings.

A family is a value of `Family`; that of a model follows from its configuration and heads.
`hugging_face` uses these names to convert weights in both directions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from model.config import EncoderConfig

Names = Mapping[str, tuple[str, ...]]


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
    """Our module -> theirs; several if ours stacks their rows. `weight` and `bias` are the same."""
    tied: Mapping[str, str]
    """Alias of a tied parameter in transformers -> its primary name."""
    unused: tuple[str, ...]
    """Prefixes of names in published folders that none of the classes uses."""
    activations: Mapping[str, str]
    """Our name of the activation -> theirs."""
    after_pad: bool
    """Whether positions start after the pad id instead of at 0."""
    factorised: bool
    """Whether embeddings may be narrower than hidden vectors, and layers may share weights. Models
    with neither belong to a family without."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings whose value is fixed."""

    def changes(self, config: EncoderConfig, pairs: bool) -> dict[str, Any]:
        """What would make a model one of this family: fields of its configuration and their values.

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
        return found


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
    unused=("bert.embeddings.position_ids", "bert.embeddings.token_type_ids"),
    activations={"gelu": "gelu", "gelu_tanh": "gelu_new"},
    after_pad=False,
    factorised=False,
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
    settings={"inner_group_num": 1},
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
"""Of an encoder that restores words, and of any generator in its own folder."""

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

FAMILIES = (ROBERTA, BERT, ALBERT)
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
        f"{config.width}, sharing={config.sharing}{pair_head}"
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


COMMON = {
    "vocab_size": "vocab_size",
    "layers": "num_hidden_layers",
    "width": "hidden_size",
    "heads": "num_attention_heads",
    "feed_forward": "intermediate_size",
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "layer_norm_eps": "layer_norm_eps",
    "segment_types": "type_vocab_size",
    "initializer_range": "initializer_range",
}
"""Our setting -> theirs, for settings with the same value in every family; the rest is below."""
SHARES = ("dropout", "attention_dropout", "layer_norm_eps", "initializer_range")
"""Those that may be 0 and need not be whole numbers."""

CLASSIFIER_DROPOUT = 0.1
"""Dropout of ALBERT's classifiers in all its published folders; pretraining has none there."""


def their_config(config: EncoderConfig, pairs: bool) -> dict[str, Any]:
    """transformers' configuration of a model; raises ValueError if it has no class for it.

    Ids of special tokens are RoBERTa's or BERT's; callers with a tokenizer set their own.
    """
    family = family_of(config, pairs)
    theirs = {
        "architectures": [family.pair_architecture if pairs else family.architecture],
        "model_type": family.model_type,
        **{name: getattr(config, ours) for ours, name in COMMON.items()},
        "hidden_act": family.activations[config.activation],
        "max_position_embeddings": config.positions + config.position_offset,
        "pad_token_id": config.position_offset - 1 if family.after_pad else 0,
        "bos_token_id": 0,
        "eos_token_id": 2,
        "tie_word_embeddings": True,
        **family.settings,
    }
    if family.factorised:
        theirs |= {
            "embedding_size": config.embedding_width,
            "num_hidden_groups": config.groups if config.sharing == "all" else config.layers,
            "classifier_dropout_prob": CLASSIFIER_DROPOUT,
        }
    return theirs


MOST_LAYERS = 10_000
"""Layers of a configuration: shared weights can be used any number of times."""


def check_numbers(theirs: Mapping[str, Any]) -> None:
    """Raise ValueError unless sizes are whole numbers above 0, and shares numbers."""
    sizes = ("embedding_size", "num_hidden_groups", "max_position_embeddings")
    for ours, name in [*COMMON.items(), *((name, name) for name in sizes)]:
        value = theirs.get(name, 1)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        share = ours in SHARES
        if not number or not (0 <= value < 1e9 if share else isinstance(value, int) and value > 0):
            raise ValueError(
                f"{name}={value!r} cannot be loaded; it must be "
                f"{'a number in [0, 1e9)' if share else 'a whole number above 0'}"
            )
    if theirs.get("num_hidden_layers", 1) > MOST_LAYERS:
        raise ValueError(
            f"num_hidden_layers={theirs['num_hidden_layers']} cannot be loaded; it must be at most "
            f"{MOST_LAYERS:,}"
        )
    if theirs.get("hidden_size", 1) % theirs.get("num_attention_heads", 1):
        raise ValueError(
            f"num_attention_heads={theirs['num_attention_heads']} cannot be loaded; it must divide "
            f"hidden_size={theirs['hidden_size']}"
        )
    pad = theirs.get("pad_token_id", 0)
    if not isinstance(pad, int) or pad < 0:
        raise ValueError(f"pad_token_id={pad!r} cannot be loaded; it must be a whole number")
    if not isinstance(theirs.get("hidden_act", ""), str):
        raise ValueError(f"hidden_act={theirs['hidden_act']!r} cannot be loaded; it must be text")


def our_config(theirs: Mapping[str, Any]) -> tuple[Family, EncoderConfig]:
    """The inverse of `their_config`; raises ValueError for settings missing or not supported."""
    family = family_named(model_type_of(theirs))
    # folders from 2019, such as BioBERT's and SpanBERT's, omit these and rely on class defaults
    theirs = {"layer_norm_eps": 1e-12, "pad_token_id": int(family.after_pad), **theirs}
    needed = {*COMMON.values(), "max_position_embeddings", "hidden_act", "pad_token_id"}
    needed |= {"embedding_size", "num_hidden_groups"} if family.factorised else set()
    if lacking := sorted(needed - theirs.keys()):
        raise ValueError(f"the configuration lacks {', '.join(lacking)}")
    check_numbers(theirs)
    fixed = {
        "tie_word_embeddings": True,
        "is_decoder": False,
        **family.settings,
    }
    for name, value in fixed.items():
        if theirs.get(name, value) != value:
            raise ValueError(f"{name}={theirs[name]} cannot be loaded; it must be {value}")
    activations = {name: ours for ours, name in family.activations.items()}
    if theirs["hidden_act"] not in activations:
        raise ValueError(
            f"hidden_act={theirs['hidden_act']} cannot be loaded; it must be "
            f"{' or '.join(activations)}"
        )
    offset = theirs["pad_token_id"] + 1 if family.after_pad else 0
    if theirs["max_position_embeddings"] <= offset:
        raise ValueError(
            f"pad_token_id={theirs['pad_token_id']} cannot be loaded: the position table has "
            f"max_position_embeddings={theirs['max_position_embeddings']} rows, and positions "
            "start after the pad id"
        )
    layers = theirs["num_hidden_layers"]
    groups = theirs["num_hidden_groups"] if family.factorised else layers
    if layers % groups:
        raise ValueError(
            f"num_hidden_groups={groups} cannot be loaded: {layers} layers are not a multiple of it"
        )
    size = theirs["embedding_size" if family.factorised else "hidden_size"]
    # ALBERT with neither is a sharing of groups of one layer: without sharing it would be a BERT
    alone = groups == layers and not (family.factorised and size == theirs["hidden_size"])
    return family, EncoderConfig(
        **{ours: theirs[name] for ours, name in COMMON.items()},
        embedding_width=size,
        sharing="none" if alone else "all",
        groups=1 if alone else groups,
        activation=activations[theirs["hidden_act"]],  # type: ignore[arg-type]
        positions=theirs["max_position_embeddings"] - offset,
        position_offset=offset,
    )
