"""Tokenizer folders: what a vocabulary is, the layouts it is read from, how it is trained.

A folder we write holds `tokenizer.json` + `tokenizer_config.json` (they load with
`transformers.AutoTokenizer`) and `word_starts.bin` (one byte an id: 1 when the id begins a word).
Layouts we read: such a folder, `vocab.json` + `merges.txt` (RoBERTa as Hugging Face ships it), and
`encoder.json` + `vocab.bpe` (GPT-2 as OpenAI ships it), with fairseq's `dict.txt` beside it when
the ids shall be RoBERTa's. fairseq orders ids by frequency: reading GPT-2's numbers as RoBERTa's
gives nonsense (transformers issue 7960), so the folder says which it is, by what it holds.
"""

from __future__ import annotations

import hashlib
import json
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from pipeline.data.files import write_whole
from pipeline.errors import DataError

BOS, PAD, EOS, UNK, MASK = "<s>", "<pad>", "</s>", "<unk>", "<mask>"
SPECIAL_TOKENS = (BOS, PAD, EOS, UNK, MASK)
ROBERTA_SIZE = 50_265
_LAYOUTS = "tokenizer.json; vocab.json + merges.txt; or encoder.json + vocab.bpe (+ dict.txt)"


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """A byte-level BPE vocabulary with the per-id tables that packing and masking need."""

    kind: str
    size: int
    """Largest id + 1."""
    bos: int
    pad: int
    eos: int
    unk: int
    mask: int
    byte_lengths: npt.NDArray[np.uint16]
    """[size] bytes of text an id stands for; 0 for special ids."""
    word_starts: npt.NDArray[np.bool_]
    """[size] ids that begin a word: white space first, or special."""
    special: npt.NDArray[np.bool_]
    """[size] ids that no text gives: special, reserved, unused. Never predicted, never drawn."""
    tokenizer_json: str
    sha256: str
    """Of the bytes of tokenizer.json."""

    def text_json(self) -> str:
        """tokenizer.json without added tokens: literal `<mask>` in a document stays text."""
        content = json.loads(self.tokenizer_json)
        content["added_tokens"] = []
        content["post_processor"] = None
        return json.dumps(content, ensure_ascii=False)

    def describe(self) -> dict[str, Any]:
        """What the manifest says of the tokenizer."""
        names = ("sha256", "kind", "size", "bos", "pad", "eos", "unk", "mask")
        return {name: getattr(self, name) for name in names}


def read_vocabulary(directory: Path) -> Vocabulary:
    """The vocabulary in `directory`, in any layout; DataError says what is missing or unfit."""
    if not directory.is_dir():
        raise DataError(f"tokenizer {directory}: no such directory; give one with {_LAYOUTS}")
    try:
        if (directory / "tokenizer.json").exists():
            text = (directory / "tokenizer.json").read_text(encoding="utf-8")
        elif (directory / "vocab.json").exists():
            text = _assemble(*_read_roberta(directory))
        elif (directory / "encoder.json").exists():
            text = _assemble(*_read_gpt2(directory))
        else:
            raise DataError(f"tokenizer {directory}: no known layout; expected {_LAYOUTS}")
        return vocabulary(text, str(directory))
    except DataError:
        raise
    except Exception as error:  # `tokenizers` raises bare Exception for what it cannot read
        what = str(error) if not isinstance(error, KeyError) else f"no entry {error}"
        raise DataError(
            f"tokenizer {directory} cannot be read: {what}; replace the folder, or remove it if it "
            "was trained here"
        ) from error


def vocabulary(tokenizer_json: str, name: str) -> Vocabulary:
    """Tables of a tokenizer.json; DataError unless it is lossless byte-level BPE and complete."""
    content = json.loads(tokenizer_json)
    ids: dict[str, int] = dict(content["model"]["vocab"])
    added = {token["content"]: token["id"] for token in content["added_tokens"]}
    _check_lossless(content, ids, added, name)
    Tokenizer.from_str(tokenizer_json)  # refuses merges of unknown tokens and the like
    ids.update(added)
    size = max(ids.values()) + 1
    lengths = np.zeros(size, np.uint16)
    word_starts = np.zeros(size, np.bool_)
    special = np.ones(size, np.bool_)
    alphabet = set(pre_tokenizers.ByteLevel.alphabet())
    white = {_byte_symbol(byte) for byte in b" \t\n\r\x0b\x0c"}
    for token, index in ids.items():
        if token in added or _reserved(token, alphabet):
            word_starts[index] = True
            continue
        lengths[index] = len(token)  # each character of a byte-level token stands for one byte
        word_starts[index] = token[0] in white
        special[index] = False
    bos, pad, eos, unk, mask = (ids[token] for token in SPECIAL_TOKENS)
    return Vocabulary(
        kind="byte-bpe",
        size=size,
        bos=bos,
        pad=pad,
        eos=eos,
        unk=unk,
        mask=mask,
        byte_lengths=lengths,
        word_starts=word_starts,
        special=special,
        tokenizer_json=tokenizer_json,
        sha256=hashlib.sha256(tokenizer_json.encode()).hexdigest(),
    )


def _check_lossless(
    content: dict[str, Any], ids: dict[str, int], added: dict[str, int], name: str
) -> None:
    """DataError for a tokenizer whose ids would not give back every byte of a text."""
    model, pre_tokenizer = content["model"], content.get("pre_tokenizer") or {}
    if model.get("type") != "BPE" or pre_tokenizer.get("type") != "ByteLevel":
        raise DataError(
            f"tokenizer {name} is {model.get('type')} with pre-tokenizer "
            f"{pre_tokenizer.get('type')}; this version prepares byte-level BPE only"
        )
    if content.get("normalizer") or pre_tokenizer.get("add_prefix_space"):
        raise DataError(
            f"tokenizer {name} changes the text (normalizer or add_prefix_space), so documents "
            "could not be recovered from their ids; use one that does not"
        )
    for key in ("dropout", "continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(key):
            raise DataError(f"tokenizer {name} sets model.{key}={model[key]}; use one without")
    lacking = set(pre_tokenizers.ByteLevel.alphabet()) - ids.keys()
    if lacking:
        raise DataError(
            f"tokenizer {name} lacks {len(lacking)} of the 256 byte symbols, so text would be "
            "lost; use a whole vocabulary"
        )
    missing = [token for token in SPECIAL_TOKENS if token not in added]
    if missing:
        raise DataError(
            f"tokenizer {name} lacks {' '.join(missing)} among its added tokens; RoBERTa's five "
            "are needed"
        )
    every = ids | added
    if len(set(every.values())) < len(every):
        raise DataError(f"tokenizer {name} gives two tokens one id; use one without repeats")


def save_vocabulary(
    vocabulary: Vocabulary, directory: Path, sequence_length: int, trained_on: str = ""
) -> None:
    """Write the folder, `tokenizer.json` last: a folder that has it is whole.

    trained_on: what text, in words; kept so that who uses the folder later can be told.
    """
    directory.mkdir(parents=True, exist_ok=True)
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": sequence_length,
        "bos_token": BOS, "cls_token": BOS, "pad_token": PAD, "eos_token": EOS, "sep_token": EOS,
        "unk_token": UNK, "mask_token": MASK,
        "clean_up_tokenization_spaces": False,
    }  # fmt: skip
    if trained_on:
        config["trained_on"] = trained_on
    write_whole(directory / "word_starts.bin", vocabulary.word_starts.astype(np.uint8).tobytes())
    write_whole(directory / "tokenizer_config.json", json.dumps(config, indent=1).encode())
    write_whole(directory / "tokenizer.json", vocabulary.tokenizer_json.encode())


def trained_on(directory: Path) -> str:
    """What text the vocabulary of a folder was trained on, in words; "" when it does not say."""
    path = directory / "tokenizer_config.json"
    return str(json.loads(path.read_bytes()).get("trained_on", "")) if path.exists() else ""


def train_byte_bpe(texts: Iterator[str], size: int) -> Vocabulary:
    """Train byte-level BPE (Radford et al. 2019, sec. 2.2) with `tokenizers`; ids 0-4 are special.

    The result may hold fewer than `size` tokens when the texts have too few pairs that occur twice.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        min_frequency=2,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    with _killed_by_interrupt():
        tokenizer.train_from_iterator(texts, trainer)
    content = json.loads(tokenizer.to_str())["model"]
    merges = [tuple(merge) for merge in content["merges"]]
    return vocabulary(_assemble(content["vocab"], merges), "just trained")


@contextmanager
def _killed_by_interrupt() -> Iterator[None]:
    """Ctrl-C ends the process at once: `tokenizers` would hear of it only when it is done."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _assemble(ids: dict[str, int], merges: list[tuple[str, str]]) -> str:
    """tokenizer.json that treats text as RoBERTa does: byte-level, nothing trimmed or changed."""
    tokenizer = Tokenizer(models.BPE(ids, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        # as roberta-base: the mask swallows the space before it, so "a <mask>" can become "a word"
        [AddedToken(token, special=True, lstrip=token == MASK) for token in SPECIAL_TOKENS]
    )
    tokenizer.post_processor = processors.RobertaProcessing(
        (EOS, ids[EOS]), (BOS, ids[BOS]), trim_offsets=True, add_prefix_space=False
    )
    return str(tokenizer.to_str())


def _read_roberta(directory: Path) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """`vocab.json` + `merges.txt`; the three unused ids that some copies lack are put back."""
    ids: dict[str, int] = json.loads((directory / "vocab.json").read_text(encoding="utf-8"))
    merges = _read_merges(directory / "merges.txt")
    if max(ids.values()) + 1 == ROBERTA_SIZE:
        used = set(ids.values())
        holes = [index for index in range(ROBERTA_SIZE) if index not in used]
        ids.update({f"madeupword{number:04d}": index for number, index in enumerate(holes)})
    return ids, merges


def _read_gpt2(directory: Path) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """`encoder.json` + `vocab.bpe`: GPT-2's ids and ours after them; RoBERTa's with `dict.txt`."""
    gpt2: dict[str, int] = json.loads((directory / "encoder.json").read_text(encoding="utf-8"))
    merges = _read_merges(directory / "vocab.bpe")
    if not (directory / "dict.txt").exists():
        return gpt2 | {token: len(gpt2) + i for i, token in enumerate(SPECIAL_TOKENS)}, merges
    by_id = {str(index): token for token, index in gpt2.items()}
    ids = {
        BOS: 0,
        PAD: 1,
        EOS: 2,
        UNK: 3,
    }  # fairseq's Dictionary puts these before the file's lines
    for line in (directory / "dict.txt").read_text(encoding="utf-8").splitlines():
        word = line.rsplit(" ", 1)[0]
        ids[by_id.get(word, word)] = len(ids)
    ids.setdefault(MASK, len(ids))
    return ids, merges


def _read_merges(path: Path) -> list[tuple[str, str]]:
    if not path.exists():
        raise DataError(f"{path} is missing; a vocabulary needs its merges beside it")
    lines = path.read_text(encoding="utf-8").split("\n")
    pairs = [line.split(" ") for line in lines if line and not line.startswith("#version")]
    bad = [pair for pair in pairs if len(pair) != 2]
    if bad:
        raise DataError(f"{path}: not a merge: {' '.join(bad[0])!r}; expected two symbols a line")
    return [(left, right) for left, right in pairs]


def _reserved(token: str, alphabet: set[str]) -> bool:
    """Ids that fill a table: fairseq's madeupwords, GPT-2's end of text, unused symbols."""
    return (
        token.startswith("madeupword")
        or token == "<|endoftext|>"
        or not all(character in alphabet for character in token)
    )


def _byte_symbol(byte: int) -> str:
    """The character that stands for a control or space byte in byte-level BPE (Ġ for a space)."""
    return chr(256 + byte)  # holds for bytes 0-32, the first that GPT-2's table moves
