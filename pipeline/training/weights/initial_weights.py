"""--init MODEL_DIR: a folder of transformers -> the initial weights of a new run.

The folder must be of the recipe's family and hold the recipe's encoder. Its tokenizer must give the
ids of the shards, unless the vocabulary is new: then tokens in both vocabularies keep their rows,
and another row is the mean of the token's pieces in the folder's vocabulary. Tokens are compared as
strings, which is meaningful only between vocabularies of the same kind; otherwise only special
tokens are compared, and every other token is taken to pieces.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from tokenizers import Tokenizer

from model.config import EncoderConfig
from model.hugging_face.conversion import Model, family
from model.hugging_face.families import ELECTRA
from model.hugging_face.growth import EmbeddingRows
from model.hugging_face.sizes import check_sizes, encoder_names
from model.hugging_face.tiling import WIDTHS, is_wider, why_not_wider
from model.hugging_face.warm_start import Difference, Folder, differences, encoders, take_over
from model.tasks.task_model import pooling_of
from pipeline.base.errors import CheckpointError, ConfigError
from pipeline.data.tokenizers.definitions import ROLES
from pipeline.data.tokenizers.folders import read_vocabulary, stated_length
from pipeline.data.tokenizers.vocabulary import Vocabulary
from pipeline.released.folder import CONFIG, GENERATOR, WEIGHTS
from pipeline.training.weights.model_folders import read_folder
from pipeline.training.weights.token_pieces import pieces_of_tokens


@dataclass(frozen=True, slots=True)
class InitialWeights:
    """The weights that a run starts from, for its run.json and its user."""

    described: dict[str, Any]
    """Plain values: the folder's name and hash, and what is new."""
    lines: tuple[str, ...]
    """Messages for the user."""
    length: int
    """Tokens of the longest text that the folder's tokenizer allows, or its encoder."""
    pooling: str
    """What stands for a row in the folder's task heads, see `RunRecord.classifier_pooling`."""


def load_initial_weights(
    model: Model, folder: Path, tokenizer: Path, new: Collection[str]
) -> InitialWeights:
    """Copy the weights of a folder into a model that the recipe has initialized.

    1. Read the folder, and ELECTRA's generator in it.
    2. Compare the sizes: only what --new names may be larger.
    3. Find the row of each token in the folder's vocabulary, or the rows of its pieces.
    4. Take the weights over, and describe what is new.

    tokenizer: the shards' folder; new: parts, of --new, that do not come from the folder. Raises
    ConfigError if the folder does not fit, CheckpointError if it cannot be read.
    """
    # 1. A folder that cannot be read is reported before any option is judged.
    content = _read(folder)
    detects = family(model) is ELECTRA
    if "generator" in new and not detects:
        raise ConfigError("--new generator: this run has no generator; remove it")
    if "width" in new and detects:
        raise ConfigError("--new width: ELECTRA's encoder is not tiled; remove it")
    generator = None
    if detects and "generator" not in new:
        generator = _read_generator(folder)
    # 2. The generator is never tiled, so its width has to be equal.
    longer, wider = "positions" in new, "width" in new
    said = _check_settings(model, folder, content, generator=False, longer=longer, wider=wider)
    if generator is not None:
        _check_settings(
            model, folder / GENERATOR, generator, generator=True, longer=longer, wider=False
        )
    both, vocabulary = _rows_of_tokens(folder, tokenizer, "vocabulary" in new)
    # 3. Rows move too if only the padding of the vocabulary differs.
    moved = vocabulary or content[1]["vocab_size"] != model.config.vocab_size
    said += vocabulary
    try:
        # 4. Last, as it overwrites the recipe's weights.
        lacking, unused = take_over(model, content, generator, both if moved else None)
        pooling = pooling_of(content[1])
    except ValueError as error:
        raise ConfigError(f"--init {folder} does not fit: {error}") from error
    fresh = [f"new, initialized by the recipe: {part}" for part in lacking]
    rest = [f"not used: {', '.join(unused)}"] if unused else []
    described = {
        # The name and not the path: run.json is read on other machines, where the hash decides.
        "folder": folder.resolve().name, "sha256": folder_hash(folder),
        "new": [*said, *fresh],
    }  # fmt: skip
    lines = (f"starts from the weights of {folder}", *said, *fresh, *rest)
    _, encoder = encoders(model, content[1])
    stated = stated_length(folder)
    # without tokenizer_config.json, or with a number that stands for none
    length = stated if 0 < stated <= encoder.positions else encoder.positions
    return InitialWeights(described, lines, length, pooling)


def folder_hash(folder: Path) -> str:
    """sha256 of a folder's weights, including its generator's."""
    digest = hashlib.sha256()
    for path in (folder / WEIGHTS, folder / GENERATOR / WEIGHTS):
        if path.exists():
            with path.open("rb") as file:
                while chunk := file.read(1 << 22):
                    digest.update(chunk)
    return digest.hexdigest()


def check_initial_weights(described: Mapping[str, Any], folder: Path) -> None:
    """Raises CheckpointError if a run that resumes was started from other weights than a folder's.

    described: see `InitialWeights`, {} for none. The folder may be missing: it is not needed.
    """
    if not (folder / WEIGHTS).exists():
        return
    if described.get("sha256") != folder_hash(folder):
        earlier = f"those of {described['folder']}" if described else "the recipe's own"
        raise CheckpointError(
            f"--init {folder} holds other weights than the run started from, {earlier}; repeat the "
            "first command, or name another --output"
        )


def _read(folder: Path) -> Folder:
    try:
        return read_folder(folder)
    except (OSError, ValueError, SafetensorError) as error:
        raise CheckpointError(f"--init {folder} cannot be read: {error}") from error


def _read_generator(folder: Path) -> Folder:
    if not (folder / GENERATOR / CONFIG).exists():
        raise ConfigError(
            f"--init {folder} has no generator: ELECTRA's is published as a separate folder; put "
            f"it at {folder / GENERATOR}, or give --new generator to initialize one"
        )
    return _read(folder / GENERATOR)


def _check_settings(
    model: Model, folder: Path, content: Folder, *, generator: bool, longer: bool,
    wider: bool,
) -> list[str]:  # fmt: skip
    """Lines about what grows. Raises ConfigError if the encoders differ otherwise.

    generator: whether it is ELECTRA's generator's folder; longer, wider: whether --new names
    positions, width.
    """
    weights, theirs = content
    try:
        found = differences(model, theirs, generator=generator, more_positions=longer, wider=wider)
        ours, their_encoder = encoders(model, theirs, generator=generator)
    except ValueError as error:
        raise ConfigError(f"--init {folder} does not fit the recipe: {error}") from error
    has_table = ours.position_kind == "learned"
    # Options without effect are mistakes, as in settings.
    if longer and not has_table:
        raise ConfigError("--new positions: rotary positions have no table; remove it")
    if longer and ours.positions <= their_encoder.positions:
        raise ConfigError(
            f"--new positions: encoder.positions={ours.positions}, and {folder} has "
            f"{their_encoder.positions}; remove it, or add --set encoder.positions=N for more"
        )
    if wider and (reason := why_not_wider(ours, their_encoder)):
        raise ConfigError(f"--new width: {reason}")
    if found:
        advice = _advice(found, theirs, ours, their_encoder)
        if generator:
            advice = "--set objective.generator.layers and width as its shares of the encoder's"
        differ = ", ".join(f"{part.name} {part.theirs} (the run: {part.ours})" for part in found)
        raise ConfigError(f"--init {folder} has another architecture: {differ}; add {advice}")
    try:
        own = family(model)
        check_sizes(own, their_encoder, theirs, encoder_names(weights, own))
    except ValueError as error:
        raise ConfigError(f"--init {folder} does not fit its {CONFIG}: {error}") from error
    return _growth(ours, their_encoder)


def _advice(
    found: Sequence[Difference],
    theirs: Mapping[str, Any],
    ours: EncoderConfig,
    their_encoder: EncoderConfig,
) -> str:
    """Settings that make the run's encoder the folder's, and what grows the folder's instead."""
    names = {part.name for part in found}
    advice = " ".join(f"--set encoder.{part.name}={_value(part, theirs)}" for part in found)
    if names == {"positions"} and ours.positions > their_encoder.positions:
        advice += ", or --new positions to extend its table"
    elif names <= WIDTHS and not why_not_wider(ours, their_encoder):
        advice += ", or --new width to tile its weights"
    elif names == {"layers"} and ours.layers > their_encoder.layers and ours.window:
        advice += (
            f" ({their_encoder.layers} layers are not a multiple of encoder.global_every="
            f"{ours.global_every}, so copies in turn would move the windows)"
        )
    return advice


def _growth(ours: EncoderConfig, theirs: EncoderConfig) -> list[str]:
    """Lines about what a model has more of than the folder."""
    said = []
    if is_wider(ours, theirs):
        said.append(
            f"grown from {theirs.layers} layers of width {theirs.width:,} and "
            f"{theirs.feed_forward:,} to {ours.layers} of {ours.width:,} and "
            f"{ours.feed_forward:,}: tiled, each layer from the nearest that attends as far"
        )
    elif ours.layers != theirs.layers and ours.sharing == "all":
        said.append(f"{ours.layers} layers share what {theirs.layers} shared in the folder")
    elif ours.layers != theirs.layers:
        said.append(
            f"grown from {theirs.layers} to {ours.layers} layers: the new ones are copies of the "
            "old ones, in turn"
        )
    if ours.positions > theirs.positions and ours.position_kind == "rotary":
        said.append(
            f"rows of up to {ours.positions:,} tokens, the folder's of {theirs.positions:,}: "
            "rotary positions need no table"
        )
    elif ours.positions > theirs.positions:
        said.append(
            f"new positions: rows {theirs.positions + 1:,} to {ours.positions:,} of the table "
            f"repeat the first {theirs.positions:,}"
        )
    return said


def _value(part: Difference, theirs: Mapping[str, Any]) -> object:
    """The value as `--set` takes it: 0 stands for embeddings as wide as the encoder."""
    return (
        0
        if part.name == "embedding_width" and part.theirs == theirs["hidden_size"]
        else part.theirs
    )


def _rows_of_tokens(folder: Path, tokenizer: Path, new: bool) -> tuple[EmbeddingRows, list[str]]:
    """The sources of the rows of the shards' tokens, and messages about new ones."""
    theirs, ours = read_vocabulary(folder), read_vocabulary(tokenizer)
    their_ids, our_ids = _ids(theirs), _ids(ours)
    alike = theirs.kind == ours.kind
    found = {our_ids[t]: their_ids[t] for t in our_ids if alike and t in their_ids}
    # Special tokens by role: `<s>` and [CLS] are the same thing.
    found |= {getattr(ours, role): getattr(theirs, role) for role in ROLES}
    if alike and theirs.lower_case == ours.lower_case and their_ids == our_ids:
        if new:
            raise ConfigError(f"--new vocabulary: {folder} has the tokenizer of --data; remove it")
        return _rows(found, {}), []
    if not new:
        moved = sum(their_ids.get(token) != index for token, index in our_ids.items())
        why = f"{moved:,} of {len(our_ids):,} tokens have another id there, or none"
        if not alike or not moved:
            why = f"{_kind(ours)} here, {_kind(theirs)} there"
        raise ConfigError(
            f"--init {folder} was trained with another tokenizer than that of --data ({why}); "
            f"prepare with --tokenizer {folder}, or give --new vocabulary to keep the rows of the "
            f"{len(found):,} tokens that both have"
        )
    lacking = {index: token for token, index in our_ids.items() if index not in found}
    pieces = pieces_of_tokens(ours, lacking, theirs)
    return _rows(found, pieces), [
        f"new vocabulary: {len(found):,} of {len(our_ids):,} tokens keep their rows, "
        f"{len(pieces):,} are the mean of their pieces, {len(lacking) - len(pieces):,} are "
        "initialized by the recipe"
    ]


def _rows(same: Mapping[int, int], pieces: Mapping[int, list[int]]) -> EmbeddingRows:
    """Map ids of the shards to those of the same token in the folder, or of its pieces."""
    owners = [index for index, each in enumerate(pieces.values()) for _ in each]
    flat = [piece for each in pieces.values() for piece in each]
    # In the order of EmbeddingRows' fields.
    ids = (list(same), list(same.values()), list(pieces), flat, owners)
    return EmbeddingRows(*(torch.tensor(each, dtype=torch.int64) for each in ids))


def _kind(vocabulary: Vocabulary) -> str:
    return f"uncased {vocabulary.kind}" if vocabulary.lower_case else vocabulary.kind


def _ids(vocabulary: Vocabulary) -> dict[str, int]:
    found: dict[str, int] = Tokenizer.from_str(vocabulary.tokenizer_json).get_vocab()
    return found
