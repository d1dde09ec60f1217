"""Tokenizer folders: the layouts a vocabulary is read from, and the layout it is written in.

Folders we write hold `tokenizer.json` + `tokenizer_config.json` (they load with
`transformers.AutoTokenizer`) and `word_starts.bin` (one byte per id: 1 if the id starts a word).
Layouts we read: such a folder, `vocab.txt` (BERT as Google and Hugging Face ship it), `vocab.json`
+ `merges.txt` (RoBERTa as Hugging Face ships it), `encoder.json` + `vocab.bpe` (GPT-2 as OpenAI
ships it), with fairseq's `dict.txt` next to them for RoBERTa's ids, and a SentencePiece `.model`
(ALBERT as Google ships it). fairseq orders ids by frequency, so GPT-2's ids read as RoBERTa's give
nonsense (transformers issue 7960). The files in the folder decide which ids are meant. Files may
have the name under which they are published, such as `bert-base-uncased-vocab.txt`.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.base.errors import DataError
from pipeline.base.files import read_plain, write_whole
from pipeline.base.typed_json import read_object
from pipeline.data.tokenizers.definitions import (
    BYTE_BPE,
    CONTINUATION,
    SPECIALS,
    WORDPIECE,
    byte_bpe_json,
    wordpiece_json,
)
from pipeline.data.tokenizers.sentencepiece_model import sentencepiece_json
from pipeline.data.tokenizers.vocabulary import Vocabulary, vocabulary

ROBERTA_SIZE = 50_265
ROBERTA_CLASS = "RobertaTokenizer"
CONFIG = "tokenizer_config.json"
WORD_STARTS = "word_starts.bin"
PANIC = "PanicException"
"""Name of the class, which `tokenizers` does not export."""
LAYOUTS = (
    "tokenizer.json; vocab.txt; vocab.json + merges.txt; encoder.json + vocab.bpe (+ dict.txt); or "
    "a SentencePiece .model"
)
PLAIN_CLASSES = (
    "PreTrained", "Bert", "Electra", "DistilBert", "MobileBert", "SqueezeBert", "Roberta", "GPT2",
    "Longformer", "Albert",
)  # fmt: skip
"""Classes of transformers, without Tokenizer, that split text as the layouts here do."""
_NAMES = ("tokenizer.json", "vocab.txt", "vocab.json", "encoder.json")
"""Files that say what a folder holds, the first that exists."""
_ENDINGS = ("vocab.txt", "vocab.json", ".model")
"""The ends of published names."""


def read_vocabulary(path: Path) -> Vocabulary:
    """Read the vocabulary in a folder, or of one file of it.

    Raises DataError if files are missing or unsuitable.
    """
    if not path.exists():
        raise DataError(f"tokenizer {path}: no such directory or file; give one with {LAYOUTS}")
    try:
        file = path if path.is_file() else _main_file(path)
        if file.suffix != ".json" or file.name.endswith("vocab.json"):
            _check_class(file.parent)
        text = _read_file(file)
        return vocabulary(text, str(path))
    except DataError:
        raise
    except BaseException as error:
        # `tokenizers` raises bare Exception for unreadable files, and for some of them its Rust
        # code panics, which is not an Exception
        if not isinstance(error, Exception) and type(error).__name__ != PANIC:
            raise
        what = str(error) if not isinstance(error, KeyError) else f"no entry {error}"
        raise DataError(
            f"tokenizer {path} cannot be read: {what}; replace the folder, or remove it if it "
            "was trained here"
        ) from error


def _check_class(folder: Path) -> None:
    """Raises DataError if a folder's vocabulary belongs to a class that does more than its files
    say, such as BertJapaneseTokenizer; a tokenizer.json says everything."""
    name = str(_checked_config(folder).get("tokenizer_class") or "PreTrainedTokenizer")
    if name.removesuffix("Fast").removesuffix("Tokenizer") not in PLAIN_CLASSES:
        raise DataError(
            f"tokenizer {folder} is a {name}, whose code says more than its vocabulary; write a "
            "tokenizer.json of it: transformers.AutoTokenizer.from_pretrained(FOLDER)"
            ".save_pretrained(NEW), where transformers has a fast one"
        )


def _main_file(folder: Path) -> Path:
    """The file of a folder that says what it holds."""
    for name in _NAMES:
        if (folder / name).exists():
            return folder / name
    published = sorted(path for path in folder.iterdir() if path.name.endswith(_ENDINGS))
    if not published:
        raise DataError(f"tokenizer {folder}: no known layout; expected {LAYOUTS}")
    if len(published) > 1:
        names = ", ".join(path.name for path in published)
        raise DataError(f"tokenizer {folder} holds {names}; name one of these files")
    return published[0]


def _read_file(path: Path) -> str:
    """tokenizer.json of a vocabulary that is known by its main file."""
    if path.name.endswith("vocab.txt"):
        return _read_bert(path)
    if path.name.endswith(".model"):
        return sentencepiece_json(path)
    if path.name.endswith("vocab.json"):
        return byte_bpe_json(*_read_roberta(path))
    if path.name == "encoder.json":
        return byte_bpe_json(*_read_gpt2(path.parent))
    if path.suffix != ".json":
        raise DataError(f"tokenizer {path} is not a vocabulary; expected {LAYOUTS}")
    return _text(path)


def save_vocabulary(
    vocabulary: Vocabulary, directory: Path, sequence_length: int, trained_on: str = ""
) -> None:
    """Write the folder, `tokenizer.json` last: a folder that has it is complete.

    trained_on: describes the training text; stored to be reported when the folder is used.
    """
    directory.mkdir(parents=True, exist_ok=True)
    names = vocabulary.names
    config: dict[str, Any] = {
        "tokenizer_class": _transformers_class(vocabulary),
        "model_max_length": sequence_length,
    }
    if vocabulary.kind == BYTE_BPE:
        config |= {"bos_token": names["bos"], "eos_token": names["eos"]}
    else:
        config["model_input_names"] = ["input_ids", "token_type_ids", "attention_mask"]
        # for BertTokenizer and AlbertTokenizer, which do not read the normalizer
        config["do_lower_case"] = vocabulary.lower_case
        if vocabulary.kind == WORDPIECE:
            normalizer = json.loads(vocabulary.tokenizer_json)["normalizer"]
            config["strip_accents"] = normalizer.get("strip_accents")
            config["tokenize_chinese_chars"] = normalizer["handle_chinese_chars"]
        else:
            config["keep_accents"] = not vocabulary.lower_case
    config |= {
        "cls_token": names["bos"], "pad_token": names["pad"], "sep_token": names["eos"],
        "unk_token": names["unk"], "mask_token": names["mask"],
        "clean_up_tokenization_spaces": False,
    }  # fmt: skip
    if trained_on:
        config["trained_on"] = trained_on
    # stored, because a later version may find other word starts than the masks were drawn with
    write_whole(directory / WORD_STARTS, vocabulary.word_starts.astype(np.uint8).tobytes())
    write_whole(directory / CONFIG, json.dumps(config, indent=1).encode())
    write_whole(directory / "tokenizer.json", vocabulary.tokenizer_json.encode())


def read_word_starts(directory: Path, vocabulary: Vocabulary) -> npt.NDArray[np.bool_]:
    """[vocabulary] ids that start a word, as the code that wrote the folder saw it.

    vocabulary: that of the folder. Raises DataError if the file is missing or of another size.
    """
    path = directory / WORD_STARTS
    flags = np.frombuffer(path.read_bytes() if path.is_file() else b"", np.uint8)
    if len(flags) != vocabulary.size:
        raise DataError(
            f"{path} has {len(flags):,} flags for {vocabulary.size:,} ids; copy it again"
        )
    return flags.astype(np.bool_)


def stated_length(directory: Path) -> int:
    """Tokens of the longest text by a folder's configuration; 0 if it states none.

    Raises DataError if the configuration is damaged.
    """
    found = _checked_config(directory).get("model_max_length")
    return found if isinstance(found, int) else 0


def copy_for_transformers(
    source: Path,
    folder: Path,
    vocabulary: Vocabulary,
    length: int | None = None,
    *,
    words: bool = False,
) -> None:
    """Copy the files that `transformers.AutoTokenizer` loads; vocabulary: that of `source`.

    length: tokens at which the tokenizer cuts a text; None: as in `source`, whose folder knows the
    rows that were prepared with it, and no model; words: the model was trained on words that were
    split already, each after a space, so a text's first word needs one too.
    The class is set, because that of a model's folder may ignore `add_prefix_space`.
    Raises DataError if the configuration is damaged.
    """
    shutil.copyfile(source / "tokenizer.json", folder / "tokenizer.json")
    config = _checked_config(source)
    config["tokenizer_class"] = _transformers_class(vocabulary)
    config.pop("add_prefix_space", None)  # the source may belong to a model that tags words
    if words and config["tokenizer_class"] == ROBERTA_CLASS:
        config["add_prefix_space"] = True
    if length is not None:
        config["model_max_length"] = length
    write_whole(folder / CONFIG, json.dumps(config, indent=1).encode())


def _transformers_class(vocabulary: Vocabulary) -> str:
    """The class of transformers that gives these ids.

    Byte-level BPE marks a word by the space before it, so words that are split already need
    `add_prefix_space=True`, which only RoBERTa's class honours. That class takes the vocabulary
    from tokenizer.json, and RoBERTa's way to split text from its own code.
    """
    if vocabulary.kind != BYTE_BPE:
        return "PreTrainedTokenizerFast"
    content = json.loads(vocabulary.tokenizer_json)
    ending = (content.get("post_processor") or {}).get("type")
    changes = content.get("normalizer") is not None or ending != "RobertaProcessing"
    if changes or not vocabulary.has_fast_engine:
        return "PreTrainedTokenizerFast"
    return ROBERTA_CLASS


def trained_on(directory: Path) -> str:
    """Description of the text that a folder's vocabulary was trained on; "" if not stored."""
    try:
        return str(_config(directory).get("trained_on", ""))
    except (OSError, ValueError):  # damaged; other readers of the file report it
        return ""


def num_rows(directory: Path) -> object:
    """Rows of the table of a model next to a tokenizer, by its configuration; None without one."""
    try:
        return read_object(directory / "config.json").get("vocab_size")
    except (OSError, ValueError):  # no model; other readers of a damaged one report it
        return None


def _checked_config(directory: Path) -> dict[str, Any]:
    try:
        return _config(directory)
    except ValueError as error:
        raise DataError(f"{directory / CONFIG} is damaged: {error}; copy it again") from error


def _config(directory: Path) -> dict[str, Any]:
    path = directory / CONFIG
    return read_object(path) if path.exists() else {}


def _text(path: Path) -> str:
    return read_plain(path).decode().replace("\r\n", "\n")


def _read_bert(path: Path) -> str:
    """`vocab.txt`, one token per line; without tokenizer_config.json, cased if any has a capital.

    In an uncased vocabulary, tokens with capitals could never be produced.
    """
    lines = _text(path).removesuffix("\n").split("\n")
    ids = {line.rstrip("\r"): index for index, line in enumerate(lines)}
    if len(ids) < len(lines):
        raise DataError(f"{path} repeats a token; use one without repeats")
    missing = [token for token in SPECIALS[WORDPIECE].values() if token not in ids]
    if missing:
        raise DataError(f"{path} lacks {' '.join(missing)}; use BERT's")
    # not [CLS] or [unused7], whose case says nothing
    words = (token.removeprefix(CONTINUATION) for token in ids if not token.startswith("["))
    cased = any(word != word.lower() for word in words)
    config = _config(path.parent)
    lower_case = bool(config.get("do_lower_case", not cased))
    if lower_case and cased:
        raise DataError(
            f"{path.parent}: tokenizer_config.json says do_lower_case=true, {path.name} has tokens "
            "with capitals; set it to false, or give the uncased vocabulary"
        )
    return wordpiece_json(
        ids,
        lower_case=lower_case,
        strip_accents=config.get("strip_accents"),
        ideographs_apart=bool(config.get("tokenize_chinese_chars", True)),
    )


def _read_roberta(path: Path) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """`vocab.json` + `merges.txt`; adds the three unused ids that some copies lack."""
    ids: dict[str, int] = json.loads(read_plain(path))
    merges = _read_merges(path.with_name(f"{path.name.removesuffix('vocab.json')}merges.txt"))
    if max(ids.values()) + 1 == ROBERTA_SIZE:
        used = set(ids.values())
        holes = [index for index in range(ROBERTA_SIZE) if index not in used]
        ids.update({f"madeupword{number:04d}": index for number, index in enumerate(holes)})
    return ids, merges


def _read_gpt2(directory: Path) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """`encoder.json` + `vocab.bpe`: GPT-2's ids, then specials; with `dict.txt`, RoBERTa's."""
    gpt2: dict[str, int] = json.loads(read_plain(directory / "encoder.json"))
    merges = _read_merges(directory / "vocab.bpe")
    names = SPECIALS[BYTE_BPE]
    if not (directory / "dict.txt").exists():
        return gpt2 | {token: len(gpt2) + i for i, token in enumerate(names.values())}, merges
    by_id = {str(index): token for token, index in gpt2.items()}
    # fairseq's Dictionary puts these before the file's lines
    ids = {names[role]: index for index, role in enumerate(("bos", "pad", "eos", "unk"))}
    for line in _text(directory / "dict.txt").splitlines():
        # a line is a GPT-2 id, or a madeupword, and how often it occurred
        word = line.rsplit(" ", 1)[0]
        ids[by_id.get(word, word)] = len(ids)
    ids.setdefault(names["mask"], len(ids))  # fairseq's task adds it after the dictionary
    return ids, merges


def _read_merges(path: Path) -> list[tuple[str, str]]:
    if not path.exists():
        raise DataError(f"{path} is missing; put the merges of the vocabulary beside it")
    lines = _text(path).split("\n")
    pairs = [line.split(" ") for line in lines if line and not line.startswith("#version")]
    bad = [pair for pair in pairs if len(pair) != 2]
    if bad:
        raise DataError(f"{path}: not a merge: {' '.join(bad[0])!r}; expected two symbols per line")
    return [(left, right) for left, right in pairs]
