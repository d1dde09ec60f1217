"""Conversion of a config, a tree of frozen dataclasses, from and to plain values.

    to_dict     Run -> nested dict, the content of run.json
    from_dict   nested dict -> Run, every key known and typed, none missing
    override    Run + ["optimizer.peak_lr=1e-3"] -> Run, what `--set` does
    fingerprint dict or dataclass -> 16 hex digits, the same on every machine

The annotations of the dataclasses are the schema, see `schema.py`; nothing here knows which
settings exist but USUAL_NAMES, which serves suggestions. `--set` takes a list as JSON, or changes
one entry by its index: `list.0.x=1`. Values are checked when the whole tree is built, after all
overrides.
"""

from __future__ import annotations

import difflib
import functools
import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast, get_args, get_origin

from pipeline.base.errors import ConfigError
from pipeline.base.typed_json import WORDS, convert
from pipeline.config.schema import (
    entry_type,
    fields_of,
    is_section,
    is_text_list,
    legacy_values,
    refuse,
    setting_types,
)

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")

LONGEST_NAME = 200
"""Letters that are compared, more than any name here has."""
NEAR = 0.7
"""Least similarity (difflib) of the part after the last dot for a name to be suggested."""
NEAR_IN_SECTION = 0.5
"""The same if the whole path is similar."""
USUAL_NAMES = {
    "steps": ("optimizer steps of the whole run", "steps training_steps iters"),
    "epochs": ("passes over the data, in place of steps", "epochs passes"),
    "precision": ("fp32 or bf16", "fp16 bf16 amp dtype torch_dtype mixed_precision half"),
    "data.sequence_length": ("in tokens", "length len seq_len seq_length block_size"),
    "data.masks.rate": ("share of the tokens", "mlm_probability mlm_prob mask_prob mask_rate"),
    "encoder.layers": ("transformer layers", "layers hidden_layers depth"),
    "encoder.width": ("hidden size", "hidden_size hidden_dim d_model embd embed_dim"),
    "encoder.heads": ("attention heads per layer", "heads attention_heads"),
    "encoder.feed_forward": ("inner size", "intermediate_size ffn_dim ffn_hidden_size d_ff"),
    "encoder.dropout": ("of hidden units", "dropout hidden_dropout hidden_dropout_prob"),
    "encoder.attention_dropout": ("of attention weights", "attention_probs_dropout_prob"),
    "encoder.positions": ("longest sequence", "position_embeddings positions"),
    "optimizer.peak_lr": ("highest learning rate", "lr learning_rate base_lr"),
    "optimizer.kind": ("lamb, adamw or stable_adamw", "optim optimizer_type optimizer_name"),
    "optimizer.beta1": ("of the first moment", "adam_beta1 betas"),
    "optimizer.beta2": ("of the second moment", "adam_beta2"),
    "optimizer.weight_decay": ("per unit of learning rate", "wd weight_decay"),
    "optimizer.eps": ("of Adam and LAMB", "epsilon adam_eps adam_epsilon"),
    "optimizer.clip_norm": ("of the gradient", "grad_norm grad_clip clip_grad gradient_clipping"),
    "schedule.kind": ("of the learning rate", "scheduler lr_scheduler lr_scheduler_type"),
    "schedule.end_lr": ("final learning rate", "min_lr lr_min final_lr"),
    "schedule.warmup_steps": (
        "of the learning rate",
        "warmup warmup_steps warmup_ratio warmup_iters",
    ),
    "batch.sequences": ("per optimizer step, over all devices", "batch_size global_batch_size"),
    "batch.per_device": ("rows at most", "per_device_train_batch_size micro_batch_size"),
    "validation.every": ("in optimizer steps", "eval_steps eval_every eval_interval"),
    "checkpoint.every": ("in optimizer steps", "save_steps save_every save_interval"),
    "logging.every": ("in optimizer steps", "logging_steps log_steps log_every log_interval"),
}
"""Setting -> what it is, and the last words that other libraries use for it, without _PREFIX."""
_PREFIX = re.compile(r"^(?:(?:num|n|max|total|train)_)+")


def to_dict(config: DataclassInstance) -> dict[str, Any]:
    """The config as nested dicts of plain values; `from_dict` gives back an equal config."""
    return asdict(config)


def from_dict(kind: type[T], values: Mapping[str, object]) -> T:
    """Build a config of type `kind` from nested dicts.

    No key is ignored, and only a setting with a `Legacy` value may be absent. Numbers may be
    written as JSON editors do: `1` for a float field, `1e3` for an int field. Raises ConfigError
    with the dotted path if a setting is unknown, missing or of the wrong type.
    """
    return _section(kind, flatten(values), "")


def override(config: T, assignments: Iterable[str]) -> T:
    """The config with `path=value` assignments applied in order; the last one of a path wins.

    Values are parsed by the field's annotation: int takes 1000, 1_000 and 1e3, float any finite
    number, bool true or false, a list JSON. Raises ConfigError with every unknown path, naming the
    nearest known one, and every value of the wrong type.
    """
    kinds = setting_types(type(config))
    flat = flatten(to_dict(config))
    problems = []
    for assignment in assignments:
        try:
            _assign(kinds, flat, assignment)
        except ConfigError as error:
            problems.append(str(error))
    refuse(problems)
    return _section(type(config), flat, "")


def type_in_words(kind: Any) -> str:
    """The values that a setting of this type takes."""
    if get_origin(kind) is Literal:
        return f"one of {', '.join(get_args(kind))}"
    if entry := entry_type(kind):
        return f"a JSON list of objects with {', '.join(setting_types(entry))}"
    return "a JSON list of texts" if is_text_list(kind) else WORDS[kind]


def as_set(value: object) -> str:
    """A value as `--set` reads it."""
    return value if isinstance(value, str) else json.dumps(value)


def fingerprint(value: Mapping[str, object] | DataclassInstance) -> str:
    """16 hex digits: SHA-256 of the canonical JSON (keys sorted, no spaces, ASCII, short floats).

    Settings of a config that have their legacy value are skipped.
    """
    plain = value if isinstance(value, Mapping) else _without_legacy(value)
    return hashlib.sha256(_canonical(plain)).hexdigest()[:16]


def fingerprint_with(name: str, items: Iterable[object], rest: Mapping[str, object]) -> str:
    """`fingerprint` of `rest` with the items as a list of this name, which are never all in memory.

    The name is less than the keys in `rest`, of which there is one at least.
    """
    digest = hashlib.sha256(b"{" + _canonical(name) + b":[")
    for number, item in enumerate(items):
        # The bytes of `_canonical` of the whole, so that both functions agree.
        digest.update(b"," * (number > 0) + _canonical(item))
    digest.update(b"]," + _canonical(rest)[1:])
    return digest.hexdigest()[:16]


def _canonical(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")


def nearest(name: str, names: Iterable[str]) -> str:
    """The most similar of `names`, by the whole path and by the part after the last dot.

    A setting in the wrong section is commoner than a misspelt one: an equal last part comes first.
    """

    def likeness(other: str) -> tuple[bool, float]:
        whole, last = _likeness(name, other)
        return last == 1, whole + last

    return max(names, key=likeness)


def find_near(name: str, names: Iterable[str]) -> str | None:
    """The nearest of the similar names, or None if no name is similar."""
    similar = [other for other in names if _is_similar(name, other)]
    return nearest(name, similar) if similar else None


def unknown_setting(path: str, known: Iterable[str]) -> ConfigError:
    """The error for a path that is not a setting, with the nearest setting if one is similar."""
    names = list(known)
    inside = [name for name in names if name.startswith(path + ".")]
    if inside:
        return ConfigError(f"{path} is a section; set one of {', '.join(inside)}")
    lists = [name for name in names if path.startswith(name + ".")]
    # Below a list only that list can be meant.
    if near := _likeliest(path, lists or names):
        return ConfigError(f"unknown setting {path}; did you mean {near}?")
    section = path.rpartition(".")[0] + "."
    beside = [name.removeprefix(section) for name in names if name.startswith(section)]
    if beside:
        return ConfigError(
            f"unknown setting {path}; no setting of {section[:-1]} has a similar name; choose one "
            f"of {', '.join(beside)}"
        )
    return ConfigError(
        f"unknown setting {path}; no setting has a similar name; `tenfold settings RECIPE` lists "
        "them all"
    )


def flatten(values: object, path: str = "") -> dict[str, Any]:
    """{"data": {"seed": 1}} -> {"data.seed": 1}."""
    if not isinstance(values, Mapping):
        return {path: values}
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if not isinstance(name, str) or "." in name:
            raise ConfigError(f"{name!r} is not a setting name; nest settings in their sections")
        flat |= flatten(value, f"{path}.{name}" if path else name)
    return flat


def parts_per_million(share: float) -> int:
    """A share between 0 and 1 in whole millionths, for counts in integer arithmetic."""
    return round(share * 1_000_000)


def _without_legacy(config: DataclassInstance) -> dict[str, Any]:
    """Nested dicts without settings at their legacy value, and without sections left empty."""
    plain: dict[str, Any] = {}
    for name, setting in fields_of(type(config)).items():
        value = getattr(config, name)
        if setting.legacy is not None and value == setting.legacy.value:
            continue
        if is_section(setting.kind):
            value = _without_legacy(value)
            if not value:
                continue
        elif entry_type(setting.kind):
            value = [_without_legacy(entry) for entry in value]
        plain[name] = value
    return plain


def _likeliest(path: str, names: list[str]) -> str | None:
    """The setting that is meant, if one is likely, for a message.

    A suggestion is obeyed, so the commonest meaning of a word in the field comes before likeness of
    letters: `optimizer.warmup_steps` means the learning rate's, not the batch's. Only the same last
    word in a section of nearly that name comes first.
    """
    section, _, last = path.rpartition(".")
    same = [name for name in names if name.rpartition(".")[2] == last]
    if beside := [name for name in same if _ratio(section, name.rpartition(".")[0]) >= NEAR]:
        return nearest(path, beside)
    # Of the last word, or of all: batch.size means batch_size.
    asked = {
        _PREFIX.sub("", re.sub(r"[.-]", "_", part[:LONGEST_NAME].lower())) for part in (last, path)
    }
    is_entry = all(name.startswith(section + ".") for name in names)
    for name, (meaning, words) in USUAL_NAMES.items():
        # An entry of a list, such as a phase, has data.sequence_length as its sequence_length.
        beside_it = f"{section}.{name.rpartition('.')[2]}"
        known = next((other for other in (name, beside_it) if other in names), None)
        if not asked.isdisjoint(words.split()):
            if known:
                return f"{known} ({meaning})"
            if is_entry:
                return None
    return find_near(path, names)


def _likeness(name: str, other: str) -> tuple[float, float]:
    """Similarity of two paths, and of their parts after the last dot: 0 to 1."""
    last, other_last = name.rpartition(".")[2], other.rpartition(".")[2]
    return _ratio(name, other), _ratio(last, other_last)


def _ratio(name: str, other: str) -> float:
    """Likeness of their beginnings, as a name from a file may have millions of letters."""
    return difflib.SequenceMatcher(None, name[:LONGEST_NAME], other[:LONGEST_NAME]).ratio()


def _is_similar(name: str, other: str) -> bool:
    """True if a name could be a misspelling of another, or a part of it such as warmup."""
    whole, last = _likeness(name, other)
    words, other_words = (set(path.rpartition(".")[2].split("_")) for path in (name, other))
    is_slip = last >= NEAR or (last >= NEAR_IN_SECTION and whole > NEAR)
    return is_slip or words <= other_words or name.startswith(other + ".")


def _assign(kinds: Mapping[str, Any], flat: dict[str, Any], assignment: str) -> None:
    path, equals, text = assignment.partition("=")
    path = path.strip()
    if not equals:
        raise ConfigError(f"cannot read the setting {assignment!r}; write path=value")
    if entry := re.fullmatch(r"(.+?)\.(\d+)\.(.+)", path):
        _change_entry(kinds, flat, (entry[1], int(entry[2]), entry[3]), text.strip())
        return
    if path not in kinds:
        raise unknown_setting(path, kinds)
    value = _read(text.strip(), kinds[path])
    # Only to refuse it now, together with the other problems of the command line.
    _convert(path, value, kinds[path])
    flat[path] = value


def _change_entry(
    kinds: Mapping[str, Any], flat: dict[str, Any], place: tuple[str, int, str], text: str
) -> None:
    """Set one setting of a list's entry; place: path of the list, index, setting of the entry."""
    path, number, name = place
    entry = entry_type(kinds.get(path))
    if entry is None:
        raise unknown_setting(f"{path}.{number}.{name}", kinds)
    own = setting_types(entry)
    if name not in own:
        raise unknown_setting(
            f"{path}.{number}.{name}", [f"{path}.{number}.{other}" for other in own]
        )
    # A copy: the entries are those of the config that is being overridden.
    entries = list(deepcopy(cast("Sequence[dict[str, Any]]", flat[path])))
    if number >= len(entries):
        raise ConfigError(
            f"{path}.{number} does not exist: {path} has {len(entries)} entries, counted from 0; "
            f"set {path} to {type_in_words(kinds[path])}"
        )
    *sections, last = name.split(".")
    functools.reduce(dict.__getitem__, sections, entries[number])[last] = _read(text, own[name])
    _convert(path, entries, kinds[path])
    flat[path] = entries


def _section(kind: type[T], flat: Mapping[str, object], prefix: str) -> T:
    """Build a section from flat values; prefix: start of the paths in errors, for list entries."""
    kinds = setting_types(kind)
    for path in flat:
        if path not in kinds:
            raise unknown_setting(prefix + path, [prefix + known for known in kinds])
    flat = legacy_values(kind) | dict(flat)  # what is given wins
    missing = [prefix + path for path in kinds if path not in flat]
    if missing:
        raise ConfigError(f"missing settings: {', '.join(missing)}; every setting must be given")
    return _build(kind, {path: _convert(prefix + path, flat[path], kinds[path]) for path in kinds})


def _build(kind: type[T], flat: Mapping[str, object], prefix: str = "") -> T:
    return kind(
        **{
            name: _build(setting.kind, flat, f"{prefix}{name}.")
            if is_section(setting.kind)
            else flat[prefix + name]
            for name, setting in fields_of(kind).items()
        }
    )


def _read(text: str, kind: Any) -> object:
    """Text parsed as `kind`; text that cannot be parsed stays text, which `_convert` refuses."""
    if entry_type(kind) or is_text_list(kind):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):  # nested too deeply
            return text
    if kind is bool:
        return {"true": True, "false": False}.get(text.lower(), text)
    # `1e3` is not an int to Python; `_convert` accepts floats that are whole.
    for number in {int: (int, float), float: (float,)}.get(kind, ()):
        try:
            return number(text)
        except ValueError:
            continue
    return text


def _convert(path: str, value: object, kind: Any) -> object:
    """`value` converted to its field's type. Raises ConfigError if it does not fit that type."""
    entry = entry_type(kind)
    try:
        found = convert(tuple[dict[str, Any], ...] if entry else kind, value)
        if kind is float and not math.isfinite(found):
            raise ValueError("it is not finite")
    except ValueError as error:
        is_choice = get_origin(kind) is Literal
        wrong = "is not a choice; choose" if is_choice else "has the wrong type; give"
        expected = "a finite number" if kind is float else type_in_words(kind)
        raise ConfigError(f"{path}={value!r} {wrong} {expected}") from error
    if entry is None:
        return found
    return tuple(
        _section(entry, flatten(item), f"{path}.{index}.") for index, item in enumerate(found)
    )
