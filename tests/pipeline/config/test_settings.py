import difflib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest

from pipeline.base.errors import ConfigError
from pipeline.config.schema import Legacy, setting_types
from pipeline.config.settings import (
    USUAL_NAMES,
    as_set,
    find_near,
    fingerprint,
    fingerprint_with,
    flatten,
    from_dict,
    nearest,
    override,
    to_dict,
)
from pipeline.recipes import RECIPES


@dataclass(frozen=True, kw_only=True, slots=True)
class Oven:
    degrees: float
    fan: bool
    mode: Literal["bake", "grill"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Cake:
    name: str
    eggs: int
    oven: Oven

    def __post_init__(self) -> None:
        if self.eggs < 1:
            raise ConfigError(f"eggs={self.eggs}; use at least one")


CAKE = Cake(name="sponge", eggs=3, oven=Oven(degrees=180.0, fan=False, mode="bake"))
PLAIN = {"name": "sponge", "eggs": 3, "oven": {"degrees": 180.0, "fan": False, "mode": "bake"}}


def with_value(path: str, value: object) -> dict[str, Any]:
    plain: dict[str, Any] = json.loads(json.dumps(PLAIN))
    *sections, name = path.split(".")
    inner = plain
    for section in sections:
        inner = inner[section]
    inner[name] = value
    return plain


def leaves(plain: dict[str, Any]) -> Iterator[object]:
    for value in plain.values():
        yield from leaves(value) if isinstance(value, dict) else [value]


def test_round_trip_is_exact_and_numbers_convert_to_the_type_of_the_field() -> None:
    assert to_dict(CAKE) == PLAIN
    assert from_dict(Cake, PLAIN) == CAKE
    assert from_dict(Cake, json.loads(json.dumps(to_dict(CAKE)))) == CAKE
    cake = from_dict(Cake, with_value("oven.degrees", 180) | {"eggs": 3.0})
    assert cake == CAKE
    assert [type(value) for value in leaves(to_dict(cake))] == [str, int, float, bool, str]


def test_from_dict_refuses() -> None:
    for plain, message in (
        (with_value("egs", 3), "egs; did you mean eggs?"),
        (with_value("oven.fann", True), "oven.fann; did you mean oven.fan?"),
        (with_value("fan", True), "fan; did you mean oven.fan?"),
        ({"name": "a", "oven": {"mode": "bake", "fan": True}}, "missing settings: eggs, oven.deg"),
        (with_value("oven", 1), "oven is a section; set one of oven.degrees, oven.fan, oven.mode"),
        (with_value("eggs", "3"), "eggs='3' has the wrong type"),
        (with_value("eggs", 3.5), "eggs=3.5 has the wrong type"),
        (with_value("eggs", True), "eggs=True has the wrong type"),
        (with_value("name", None), "name=None has the wrong type"),
        (with_value("oven.fan", 1), "oven.fan=1 has the wrong type"),
        (with_value("oven.degrees", float("nan")), "oven.degrees=nan has the wrong type"),
        (with_value("oven.degrees", 10**400), f"oven.degrees={10**400} has the wrong type"),
        (with_value("oven.mode", "fry"), "oven.mode='fry' is not a choice"),
        (PLAIN | {"oven.fan": True}, "'oven.fan' is not a setting name"),
        (with_value("eggs", 0), "eggs=0; use at least one"),
    ):
        with pytest.raises(ConfigError, match=re.escape(message)):
            from_dict(Cake, plain)


def test_override_reads_text_by_the_annotation_and_applies_all_before_it_checks() -> None:
    assert override(CAKE, []) == CAKE
    assert override(CAKE, ["eggs=0", "eggs=5"]).eggs == 5 and CAKE.eggs == 3
    for assignment, path, value in (
        ("eggs=4", "eggs", 4), ("eggs=1_000", "eggs", 1000), ("eggs=1e3", "eggs", 1000),
        ("eggs = 4", "eggs", 4), ("oven.degrees=200", "oven.degrees", 200.0),
        ("oven.degrees=1.5e2", "oven.degrees", 150.0), ("oven.fan=true", "oven.fan", True),
        ("oven.fan=False", "oven.fan", False), ("oven.mode=grill", "oven.mode", "grill"),
        ("name=7", "name", "7"), ("name=a=b", "name", "a=b"),
    ):  # fmt: skip
        changed = override(CAKE, [assignment])
        assert changed == from_dict(Cake, with_value(path, value))
        assert list(map(type, leaves(to_dict(changed)))) == [str, int, float, bool, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Party:
    host: str
    cakes: tuple[Cake, ...]


PARTY = Party(host="Ann", cakes=(CAKE, CAKE))


def test_lists_of_sections_are_kept() -> None:
    assert from_dict(Party, json.loads(json.dumps(to_dict(PARTY)))) == PARTY
    assert list(setting_types(Party)) == ["host", "cakes"]
    assert fingerprint(PARTY) == fingerprint(json.loads(json.dumps(to_dict(PARTY))))
    changed = override(PARTY, ["cakes.1.oven.degrees=200", "cakes.1.eggs=1e1"])
    hot = override(CAKE, ["oven.degrees=200", "eggs=10"])
    assert changed == Party(host="Ann", cakes=(CAKE, hot))
    assert override(PARTY, ["cakes=[]"]).cakes == ()
    assert override(PARTY, [f"cakes=[{json.dumps(PLAIN)}]", "cakes.0.eggs=1"]).cakes[0].eggs == 1


def test_override_refuses() -> None:
    for settings, assignment, message in (
        (CAKE, "eggs", "cannot read the setting 'eggs'; write path=value"),
        (CAKE, "ovn.degres=1", "unknown setting ovn.degres; did you mean oven.degrees?"),
        (CAKE, "oven.zzz=1", "unknown setting oven.zzz; no setting of oven .* degrees, fan, mode$"),
        (CAKE, "eggs=1.5", "eggs=1.5 has the wrong type; give a whole number"),
        (CAKE, "eggs=many", "eggs='many' has the wrong type; give a whole number"),
        (CAKE, "eggs=inf", "eggs=inf has the wrong type; give a whole number"),
        (CAKE, "oven.degrees=inf", "oven.degrees=inf has the wrong type; give a finite number"),
        (CAKE, "oven.degrees=hot", "oven.degrees='hot' has the wrong type; give a finite number"),
        (CAKE, "oven.fan=1", "oven.fan='1' has the wrong type; give true or false"),
        (CAKE, "eggs=0", "eggs=0; use at least one"),
        (PARTY, "cakes=3", "cakes=3 .* give a JSON list of objects with name, eggs, oven.degrees,"),
        (PARTY, 'cakes=[{"name":"a"}]', "missing settings: cakes.0.eggs, cakes.0.oven.degrees, "),
        (PARTY, "cakes.0.egs=1", "unknown setting cakes.0.egs; did you mean cakes.0.eggs?"),
        (PARTY, "cakes.0.eggs=x", "cakes.0.eggs='x' has the wrong type; give a whole number"),
        (PARTY, "cakes.2.eggs=1", "cakes.2 does not exist: cakes has 2 entries, counted from 0"),
        (PARTY, "cakes.eggs=1", "unknown setting cakes.eggs; did you mean cakes?"),
        (PARTY, "host.0.eggs=1", "unknown setting host.0.eggs; did you mean host?"),
    ):
        with pytest.raises(ConfigError, match=f"^{message}"):
            override(settings, [assignment])


def test_fingerprint_depends_only_on_the_values() -> None:
    # Canonical text: {"eggs":3,"name":"sponge","oven":{"degrees":180.0,"fan":false,"mode":"bake"}}
    assert fingerprint(CAKE) == "c4a9ccd3534272e2"
    assert fingerprint(PLAIN) == fingerprint(CAKE)
    assert fingerprint(dict(reversed(PLAIN.items()))) == fingerprint(CAKE)
    assert fingerprint(override(CAKE, ["eggs=4"])) != fingerprint(CAKE)
    assert fingerprint({"ä": 1}) != fingerprint({"a": 1})
    rest = {"tokenizer": ["wordpiece", 3], "other": 1}  # a list need not be in memory
    for items in ([], [["\u00e4", 1, None]], [[1.5, {"b": 1, "a": 2}], "x", 3]):
        assert fingerprint_with("files", iter(items), rest) == fingerprint({"files": items} | rest)


@dataclass(frozen=True, kw_only=True, slots=True)
class Icing:
    colour: Annotated[str, Legacy("none")]
    grams: Annotated[float, Legacy(0.0)]


@dataclass(frozen=True, kw_only=True, slots=True)
class LaterOven(Oven):
    steam: Annotated[bool, Legacy(False)]


@dataclass(frozen=True, kw_only=True, slots=True)
class LaterCake(Cake):
    """A later version with one more setting in a section, and one more section."""

    oven: LaterOven
    icing: Icing


@dataclass(frozen=True, kw_only=True, slots=True)
class LaterParty:
    host: str
    cakes: tuple[LaterCake, ...]
    candles: Annotated[int, Legacy(0)]


def test_only_settings_with_a_legacy_value_may_be_absent() -> None:
    cake = from_dict(LaterCake, PLAIN)
    assert (cake.oven.steam, cake.icing) == (False, Icing(colour="none", grams=0.0))
    assert from_dict(LaterCake, to_dict(cake)) == cake
    assert to_dict(cake)["icing"] == {"colour": "none", "grams": 0.0}  # files name every setting
    assert override(cake, ["oven.steam=true"]).oven.steam
    party = from_dict(LaterParty, to_dict(PARTY))
    assert (party.cakes, party.candles) == ((cake, cake), 0)
    partly = {**PLAIN, "icing": {"grams": 5}}
    assert from_dict(LaterCake, partly).icing == Icing(colour="none", grams=5.0)
    for kind, plain, said in (
        (LaterCake, {"name": "sponge", "oven": PLAIN["oven"]}, "^missing settings: eggs; every"),
        (Cake, to_dict(cake), "^unknown setting oven.steam; "),
        (LaterCake, {**PLAIN, "icing": {"grams": "much"}}, "^icing.grams='much' has the wrong"),
    ):
        with pytest.raises(ConfigError, match=said):
            from_dict(kind, plain)


def test_the_fingerprint_skips_legacy_values() -> None:
    cake, party = from_dict(LaterCake, PLAIN), from_dict(LaterParty, to_dict(PARTY))
    assert fingerprint(cake) == fingerprint(CAKE) == "c4a9ccd3534272e2"
    assert fingerprint(party) == fingerprint(PARTY)
    changes = (["oven.steam=true"], ["icing.grams=5"], ["icing.colour=red"])
    marks = {fingerprint(override(cake, change)) for change in changes}
    assert len(marks | {fingerprint(cake)}) == 4
    for change in ("candles=1", "cakes.1.oven.steam=true"):
        assert fingerprint(override(party, [change])) != fingerprint(PARTY)


def test_override_reports_all_assignments_that_it_cannot_apply() -> None:
    with pytest.raises(ConfigError) as error:
        override(CAKE, ["egs=1", "oven.fan=2", "name=fine", "foo=1"])
    problems = zip(("egs; did you mean eggs?", "oven.fan='2'", " foo;"), error.value.problems)
    assert all(said in problem for said, problem in problems) and len(error.value.problems) == 3


def test_a_name_is_suggested_only_when_it_is_near() -> None:
    names = ["steps", "optimizer.peak_lr", "batch.warmup_steps", "data.sequence_length",
             "data.masks.rate"]  # fmt: skip
    for name, near in {
        "seq_length": "data.sequence_length", "max_steps": "steps", "optimizer.steps": "steps",
        "peak": "optimizer.peak_lr", "warmup": "batch.warmup_steps", "steps.0.x": "steps",
        "masks.rat": "data.masks.rate", "foo": None, "temperature": None, "data.masks.zzz": None,
        "optimizer.foo": None,
    }.items():  # fmt: skip
        assert find_near(name, names) == near, name
    names = ["steps", "schedule.warmup_steps", "validation.every", "checkpoint.every"]
    for name, near in {
        "warmup_steps": "schedule.warmup_steps", "optimizer.warmup_steps": "schedule.warmup_steps",
        "checkpoints.every": "checkpoint.every", "stepps": "steps",
    }.items():  # fmt: skip
        assert nearest(name, names) == near, name


def test_a_suggestion_is_the_setting_that_the_field_means() -> None:
    """Suggestions are obeyed: with the batch's warm-up the learning rate never warmed up."""
    run = RECIPES["bert_base_published"]()  # with a phase
    for path, near in (
        ("phases.0.batch_size", "phases.0.sequences"), ("phases.0.max_steps", "phases.0.steps"),
        ("phases.0.seq_len", "phases.0.sequence_length"),
        ("phases.0.sequence", "phases.0.sequences"),
        ("batch.size", "batch.sequences"), ("optimizer.name", "optimizer.kind"),
        ("warmup_iters", "schedule.warmup_steps"), ("min_lr", "schedule.end_lr"),
        ("optimizer.warmup_steps", "schedule.warmup_steps"),
        ("warmup_steps", "schedule.warmup_steps"), ("warmup", "schedule.warmup_steps"),
        ("training.num_warmup_steps", "schedule.warmup_steps"),
        ("batches.warmup_steps", "batch.warmup_steps"),  # nearly its section
        ("validate.mask_rate", "validation.mask_rate"), ("mask_rate", "data.masks.rate"),
        ("lr", "optimizer.peak_lr"), ("optimizer.lr", "optimizer.peak_lr"),
        ("optimizer.learning_rate", "optimizer.peak_lr"), ("Learning-Rate", "optimizer.peak_lr"),
        ("schedule.peak_lr", "optimizer.peak_lr"), ("schedule.end_rl", "schedule.end_lr"),
        ("batch_size", "batch.sequences"), ("train.batch_size", "batch.sequences"),
        ("per_device_train_batch_size", "batch.per_device"),
        ("num_train_epochs", "epochs"), ("passes", "epochs"), ("max_steps", "steps"),
        ("hidden_size", "encoder.width"), ("model.hidden_size", "encoder.width"),
        ("num_layers", "encoder.layers"), ("num_hidden_layers", "encoder.layers"),
        ("num_attention_heads", "encoder.heads"), ("intermediate_size", "encoder.feed_forward"),
        ("dropout", "encoder.dropout"), ("hidden_dropout_prob", "encoder.dropout"),
        ("attention_probs_dropout_prob", "encoder.attention_dropout"), ("n_head", "encoder.heads"),
        ("fp16", "precision"), ("bf16", "precision"), ("mlm_probability", "data.masks.rate"),
        ("max_seq_length", "data.sequence_length"), ("max_grad_norm", "optimizer.clip_norm"),
        ("eval_steps", "validation.every"), ("beta1", "optimizer.beta1"),
        ("scheduler.kind", "schedule.kind"), ("encoder.head", "encoder.heads"),
    ):  # fmt: skip
        with pytest.raises(ConfigError) as error:
            override(run, [f"{path}=1"])
        said = str(error.value).removeprefix(f"unknown setting {path}; did you mean ")
        assert re.match(rf"{re.escape(near)}( \(|\?)", said), f"{path}: {said}"
    for name in ("lr", "warmup_steps", "dropout"):  # not of a phase: its steps are no warm-up
        with pytest.raises(ConfigError) as error:
            override(run, [f"phases.0.{name}=1"])
        assert "did you mean" not in str(error.value), name


def test_every_suggestion_for_a_usual_name_is_accepted() -> None:
    run = RECIPES["bert_base_published"]()
    values = flatten(to_dict(run))
    for name, (_, words) in USUAL_NAMES.items():
        for word in words.split():
            path = f"somewhere.{word}"
            with pytest.raises(ConfigError) as error:
                override(run, [f"{path}=1"])
            suggested = re.split(r" \(|\?", str(error.value).partition("did you mean ")[2])[0]
            assert suggested == name, path
            assert override(run, [f"{suggested}={as_set(values[suggested])}"]) == run


def test_only_the_beginning_of_a_long_name_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name of a million letters in a damaged file took minutes."""
    lengths: list[int] = []

    class Matcher(difflib.SequenceMatcher[str]):
        def __init__(self, isjunk: None, a: str, b: str) -> None:
            lengths.extend(map(len, (a, b)))
            super().__init__(isjunk, a, b)

    monkeypatch.setattr(difflib, "SequenceMatcher", Matcher)
    assert find_near("warmup_step" + "s" * 1_000_000, ["batch.warmup_steps"]) is None
    assert max(lengths) <= 200
