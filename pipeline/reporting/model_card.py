"""The README.md of an exported folder: what the Hub shows of a model.

It says what the run's files say, up to the exported step, and nothing that changes with the day or
the machine: a second export of the same step writes the same bytes. Paths are cut to their names.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from model.hugging_face.families import FAMILIES, MODERNBERT
from model.hugging_face.modern_settings import untold
from pipeline import __version__
from pipeline.config.run import Run
from pipeline.config.settings import to_dict
from pipeline.data.shards.corpus_warnings import describe_unknown
from pipeline.data.shards.manifest import Manifest
from pipeline.loading.compatibility import phases_begun
from pipeline.recipes import RECIPES, recipe
from pipeline.reporting.front_matter import (
    UNCLEAR,
    front_matter,
    hub_datasets,
    licence_fields,
    model_index,
)
from pipeline.reporting.run_summary import RunSummary, changes, flat
from pipeline.reporting.score_files import Score
from pipeline.reporting.sections import (
    COMPARED,
    Section,
    TextTable,
    data_card,
    number_text,
    score_section,
    shorten,
)

CARD = "README.md"
FILL = """from transformers import pipeline

folder = "model"  # where this folder is, seen from another one, or its name on the Hub
fill = pipeline("fill-mask", model=folder)
for guess in fill(f"The house was {fill.tokenizer.mask_token} and old."):
    print(f"{guess['score']:.0%} {guess['token_str']}")"""
DETECT = """from transformers import AutoModelForPreTraining, AutoTokenizer

folder = "model"  # where this folder is, seen from another one, or its name on the Hub
tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModelForPreTraining.from_pretrained(folder)
inputs = tokenizer("The house was old.", return_tensors="pt")
for token, logit in zip(inputs.tokens(), model(**inputs).logits[0]):
    print(f"{logit.sigmoid():.0%} {token}")  # how probable it is that the token was replaced"""
ENCODE = """from transformers import AutoModel

encoder = AutoModel.from_pretrained(folder)  # hidden states, to fine-tune"""


@dataclass(frozen=True, slots=True, kw_only=True)
class CardFacts:
    """Facts that a card states."""

    run: Run
    """The checkpoint's settings."""
    step: int
    length: int
    """Tokens of the longest rows that the weights were trained on."""
    summary: RunSummary
    """Read up to `step`."""
    manifest: Manifest
    """Manifest of the first dataset, which may have moved."""
    scores: Sequence[Score] = ()
    score_files: Sequence[Path] = ()
    languages: Sequence[str] = ()

    @property
    def title(self) -> str:
        """Name of the run and the step."""
        # a folder's name may hold bytes that are not UTF-8, which a card has to be
        name = self.summary.name.encode(errors="replace").decode()
        return f"{name}, step {self.step}"

    @property
    def data(self) -> list[tuple[str, Manifest | None]]:
        """Name and manifest of each dataset; None where it is not there any more."""
        rest = self.summary.data
        found = [(Path(directory).name, manifest) for directory, manifest in rest]
        return [(found[0][0] if found else "shards", self.manifest), *found[1:]]

    @property
    def licences(self) -> list[tuple[str, str]]:
        """Corpus and licence; unknown for data that is not there any more."""
        found = []
        for name, manifest in self.data:
            corpora = manifest.corpora if manifest else {name: {"licence": "unknown"}}
            found += [(n, corpus["licence"]) for n, corpus in corpora.items()]
        return found


def model_card(facts: CardFacts, config: Mapping[str, Any]) -> str:
    """The text of README.md; config: the content of the folder's config.json."""
    architecture = str(config["architectures"][0])
    detects = architecture == "ElectraForPreTraining"
    fields = licence_fields([licence for _, licence in facts.licences]) | {
        "language": list(facts.languages),
        "datasets": hub_datasets(facts.licences),
        "library_name": "transformers",
        "pipeline_tag": "feature-extraction" if detects else "fill-mask",
        "tags": [str(config["model_type"]), facts.run.objective.kind, "tenfold"],
        "model-index": model_index(facts.title, facts.scores),
    }
    sections = [*_data(facts), _recipe(facts), _measured(facts)]
    if facts.scores:
        sections.append(score_section([_name_model(score) for score in facts.scores]))
    sections += [_limits(facts, _of_its_class(facts, config)), _versions(facts)]
    sections.append(Section("To reproduce", commands=commands(facts)))
    parts = [front_matter(fields), f"# {_escape(facts.title)}", _introduction(facts, architecture)]
    parts += ["## How to load", _code("python", f"{DETECT if detects else FILL}\n\n{ENCODE}")]
    parts += (part for section in sections for part in _markdown(section))
    return "\n\n".join((*parts, f"Written by Tenfold {__version__}.\n"))


def base_recipe(run: Run) -> str:
    """The recipe of a run, or the one with the fewest differences if its name is the user's own."""
    if run.name in RECIPES:
        return run.name
    settings = flat(to_dict(run))
    return min(RECIPES, key=lambda name: len(changes(settings, name)))


def commands(facts: CardFacts) -> list[str]:
    """Commands that train the model and export it again, from shards with the same fingerprints."""
    run, record = facts.run, facts.summary.record
    base = base_recipe(run)
    name = facts.summary.name
    train = ["python", "-m", "pipeline.train", base]
    train += ["--data", *(f"data/shards/{directory}" for directory, _ in facts.data)]
    if source := str(record.get("begun_from", "")):
        checkpoint = Path(source)
        # folders are padded with zeros, RUN/STEP is not
        step = checkpoint.name.removeprefix("step-").lstrip("0")
        train += ["--from", f"runs/{checkpoint.parent.parent.name}/{step}"]
    elif initial := record.get("initial_weights"):
        train += ["--init", str(initial.get("folder", "MODEL_DIR"))]
    train += ["--output", f"runs/{name}"]
    if run.name != base:
        train += ["--set", f"name={run.name}"]
    # `steps` says what `epochs` came to, and the two exclude each other
    for path, _, value in changes(flat(to_dict(replace(run, epochs=recipe(base).epochs))), base):
        train += ["--set", f"{path}={_assign(value)}"]
    export = ["python", "-m", "pipeline.export", f"runs/{name}", "--step", str(facts.step)]
    if facts.languages:
        export += ["--language", *facts.languages]
    if facts.score_files:
        export += ["--scores", *(path.name for path in facts.score_files)]
    return [shlex.join(train), shlex.join([*export, "--output", f"{name}-{facts.step}"])]


def _introduction(facts: CardFacts, architecture: str) -> str:
    record = facts.summary.record
    start = "from random weights"
    if source := str(record.get("begun_from", "")):
        step = Path(source)
        start = f"from {step.name} of the run {step.parent.parent.name}"
    elif initial := record.get("initial_weights"):
        start = f"from the weights of {initial.get('folder')} (sha256 {initial.get('sha256')})"
    tokens = facts.summary.curves.curves.get("tokens")
    last = tokens.points[-1] if tokens and tokens.points else None
    # the last line may be of an earlier step
    read = f", {last[1]:,.0f} tokens" if last and last[0] == facts.step else ""
    return _escape(
        f"An encoder for transformers' {architecture}, pretrained with Tenfold {start}: step "
        f"{facts.step:,} of {facts.run.steps:,}{read}."
    )


def _data(facts: CardFacts) -> Iterator[Section]:
    for name, manifest in facts.data:
        if manifest:
            yield data_card(name, manifest)
        else:
            yield Section("Data", [f"{name}: not there any more when this card was written"])


def _recipe(facts: CardFacts) -> Section:
    """Settings that differ from the recipe, or from the paper's own."""
    base = base_recipe(facts.run)
    paper = f"{base}_published"
    if paper not in RECIPES:
        paper = f"{base}_v1_published"  # ALBERT's paper has version 1
    settings = flat(to_dict(facts.run))
    lines = [f"the recipe is {base}"]
    if facts.run.name != base:
        lines[0] = f"the run is called {facts.run.name}; {base} is the recipe most like it"
    own = {path: value for path, value, _ in changes(settings, base)}
    theirs = {path: value for path, value, _ in changes(settings, paper)}
    head = ["differs", "this run", base]
    if paper in RECIPES:
        lines.append(f"{paper} has the paper's own optimizer, schedule and masks")
        head.append(paper)
    rows = [
        tuple(
            shorten(_assign(value))
            for value in (
                path, settings[path], own.get(path, settings[path]),
                theirs.get(path, settings[path]),
            )[: len(head)]
        )
        for path in settings
        if path in own or path in theirs
    ]  # fmt: skip
    if not own:
        lines.append("all settings are the recipe's")
    return Section("Recipe", lines, [TextTable(head, rows)] if rows else [])


def _measured(facts: CardFacts) -> Section:
    curves, rows = facts.summary.curves, []
    for name, called in COMPARED:
        # speed depends on the machine, which must not change the card
        is_nan = curves.is_nan(name)
        if (is_nan or name in curves.curves) and name != "tokens_per_second":
            at, value = (None, curves.last[name]) if is_nan else curves.curves[name].points[-1]
            rows.append((called, number_text(value), "" if at is None else f"{at:,}"))
    table = TextTable(("measured in training", "", "at step"), rows)
    lines = [words] if (words := curves.change()) else []
    return Section("Training", lines, [table] if rows else [])


def _of_its_class(facts: CardFacts, config: Mapping[str, Any]) -> list[str]:
    """Limits that follow from what transformers' class has and has not."""
    if config["model_type"] == MODERNBERT.model_type:
        return _untold(facts)
    # The classes with a pair head have trained theirs.
    poolers = {f.pooler for f in FAMILIES if f.pooler and f.architecture in config["architectures"]}
    return [f"Its pooler, {name}, is not trained: initial weights." for name in poolers]


def _untold(facts: CardFacts) -> list[str]:
    """Settings of each phase up to the step that ModernBERT's configuration cannot express."""
    begun = [part.encoder for part in phases_begun(facts.run, facts.step)]
    found = dict.fromkeys(untold(each.dropout, each.dropout_places) for each in begun)
    return [f"Trained with {text}." for text in found if text]


def _limits(facts: CardFacts, of_its_class: Sequence[str]) -> Section:
    """Limits that a user of the model should know."""
    run, lines = facts.run, []
    lines.append(f"Trained on rows of at most {facts.length:,} tokens.")
    lines += of_its_class
    if run.data.lower_case:
        lines.append("Reads lower-cased text; its tokenizer lower-cases what it is given.")
    if facts.step < run.steps:
        lines.append(
            f"Step {facts.step:,} of {run.steps:,} planned: the learning rate was not at its end."
        )
    if not facts.languages:
        lines.append("The languages of the text were not stated when this card was written.")
    unclear = [name for name, licence in facts.licences if licence in UNCLEAR]
    if unclear:
        lines.append(f"The licence of {', '.join(unclear)} is not known: find it out before use.")
    lines.append("The license above is that of the text; whether it binds a model is not decided.")
    for _, manifest in facts.data:
        for name, corpus in manifest.corpora.items() if manifest else ():
            if unknown := describe_unknown(corpus):
                lines.append(f"{name}: {unknown}.")
    if not facts.scores:
        lines.append("No scores were given when this card was written.")
    lines.append("Not fine-tuned, and not tested for bias: it repeats what its text says.")
    return Section("Limits", lines)


def _versions(facts: CardFacts) -> Section:
    record = facts.summary.record
    rows = [(str(k), str(v)) for k, v in record.get("versions", {}).items()]
    rows += [(f"data {name}", m.fingerprint if m else "gone") for name, m in facts.data]
    rows.append(("tokenizer, sha256", str(facts.manifest.tokenizer["sha256"])))
    return Section("Versions", (), [TextTable(("", ""), rows)])


def _name_model(score: Score) -> Score:
    """A score whose model is a name in place of a path."""
    name = Path(score.model).name or score.model
    return Score(name, score.name, score.value, score.low, score.high, score.note, score.kind)


def _markdown(section: Section) -> Iterator[str]:
    yield f"## {_escape(section.title)}"
    if section.lines:
        yield "\n".join(f"- {_escape(line)}" for line in section.lines)
    for table in section.tables:
        rows = [table.head, ["---"] * len(table.head), *table.rows]
        yield "\n".join(f"| {' | '.join(map(_escape, row))} |" for row in rows)
    if section.commands:
        yield _code("bash", "\n".join(section.commands))


def _code(language: str, text: str) -> str:
    return f"```{language}\n{text}\n```"


def _escape(text: str) -> str:
    """Text on one line that Markdown shows as it is."""
    # `&` before `<`, whose entity has one
    plain = re.sub(r"\s+", " ", text).replace("&", "&amp;").replace("<", "&lt;")
    return re.sub(r"([\\`*|\[\]])", r"\\\1", plain)


def _assign(value: object) -> str:
    """A value as `--set` takes it."""
    return value if isinstance(value, str) else json.dumps(value)
