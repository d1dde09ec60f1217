"""A vocabulary: its tokenizer.json with the per-id tables that packing and masking need.

Literal `<mask>` or `[MASK]` in a document stays text in every kind of vocabulary: only packing and
masking insert special tokens. Added tokens that are not special, such as `[GENE]`, are text: they
are matched as `transformers.AutoTokenizer` matches them, and predicted like any other id.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from pipeline.base.errors import DataError
from pipeline.data.text.scripts import begins_spaceless
from pipeline.data.tokenizers.definitions import (
    BYTE_BPE,
    BYTES,
    CONTINUATION,
    ROLES,
    SPECIALS,
    UNIGRAM,
    WORD_MARK,
    WORDPIECE,
)

WORDS_VERSION = 2
"""Part of the fingerprint if `has_spaceless_letters`: increase it when other ids start a word."""
_WHITE = tuple(bytes([byte]) for byte in b" \t\n\r\x0b\x0c")
_KINDS = {"BPE": BYTE_BPE, "WordPiece": WORDPIECE, "Unigram": UNIGRAM}
ADDED_TOKENS_VERSION = 1
"""Part of the fingerprint if added tokens are text: increase it when their ids can change."""
_SPARE_IDS = 1000  # that a vocabulary may leave out
_ANY_LETTER = "q"  # does not compose with any character


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """A vocabulary with its tables."""

    kind: str
    """byte-bpe, wordpiece or unigram."""
    lower_case: bool
    """True if text is lower-cased before it is looked up."""
    size: int
    """Largest id + 1."""
    bos: int
    """First token of every row: <s> or [CLS]."""
    pad: int
    eos: int
    """Last token of every segment: </s> or [SEP]."""
    unk: int
    mask: int
    byte_lengths: npt.NDArray[np.uint16]
    """[size] bytes of text per byte-bpe id; 0 for special ids, added tokens, and other kinds."""
    word_starts: npt.NDArray[np.bool_]
    """[size] ids that start a word, are added tokens, or are special."""
    special: npt.NDArray[np.bool_]
    """[size] ids that no text produces, and the unknown id; never predicted, never drawn."""
    tokenizer_json: str
    sha256: str
    """Hash of the bytes of tokenizer.json."""

    def text_json(self) -> str:
        """tokenizer.json without special tokens: literal `<mask>` in a document stays text."""
        content = json.loads(self.tokenizer_json)
        pieces = content["model"]["vocab"]
        in_text = {token["id"] for token in self.text_tokens}
        names = {piece for piece, _ in pieces} if self.kind == UNIGRAM else set(pieces)
        kept = []
        for token in content["added_tokens"]:
            if token["id"] in in_text:
                kept.append(token)
            elif token["content"] not in names:
                # keeps the ids of those after it, and never matches: text has no NUL
                kept.append(token | {"content": f"\0{token['content']}", "normalized": False})
            elif self.kind == UNIGRAM:
                # an ordinary piece here; with a space in it, it never matches
                pieces[token["id"]][0] = f" {token['content']}"
        content["added_tokens"] = kept
        content["post_processor"] = None
        return json.dumps(content, ensure_ascii=False)

    @property
    def text_tokens(self) -> list[dict[str, Any]]:
        """The added tokens that are text, as tokenizer.json describes them."""
        return _text_tokens(_parsed(self.tokenizer_json)["added_tokens"], self.names.values())

    @property
    def has_spaceless_letters(self) -> bool:
        """True if letters of scripts without spaces start words where no mark of a start is."""
        vocab = _parsed(self.tokenizer_json)["model"]["vocab"]
        ids = vocab if isinstance(vocab, dict) else {pair[0]: id for id, pair in enumerate(vocab)}
        inside = [token for token in ids if _continues(self.kind, token)]
        starting = [ids[token] for token in inside if begins_spaceless(_text(self.kind, token))]
        return not self.special[starting].all()

    @property
    def names(self) -> dict[str, str]:
        """The special tokens by role."""
        added = {t["id"]: t["content"] for t in _parsed(self.tokenizer_json)["added_tokens"]}
        return {role: added[getattr(self, role)] for role in ROLES}

    @property
    def has_fast_engine(self) -> bool:
        """True if a fast engine knows how words are split: not for byte-level BPE with another
        regular expression than GPT-2's, which only `tokenizers` encodes."""
        splitter = _parsed(self.tokenizer_json).get("pre_tokenizer") or {}
        gpt2 = splitter.get("type") == "ByteLevel" and splitter.get("use_regex", True)
        return self.kind != BYTE_BPE or gpt2

    def describe(self) -> dict[str, Any]:
        """The tokenizer's entry in the manifest."""
        return {name: getattr(self, name) for name in ("sha256", "kind", "size", *ROLES)}


@lru_cache(maxsize=2)
def _parsed(tokenizer_json: str) -> dict[str, Any]:
    """tokenizer.json, to be read only: 50,000 tokens take 60 ms to parse."""
    return cast(dict[str, Any], json.loads(tokenizer_json))


def vocabulary(tokenizer_json: str, name: str) -> Vocabulary:
    """The vocabulary of a tokenizer.json, with truncation and padding turned off.

    Raises DataError if it is incomplete or of an unsupported kind.
    """
    tokenizer_json = _unlimited(tokenizer_json)
    content = json.loads(tokenizer_json)
    model = content["model"]
    kind = _KINDS.get(model.get("type", ""))
    if kind is None:
        raise DataError(
            f"tokenizer {name} is {model.get('type')}; byte-level BPE, WordPiece and unigram "
            "vocabularies can be prepared"
        )
    if model.get("byte_fallback"):
        raise DataError(
            f"tokenizer {name} spells what it lacks in bytes (model.byte_fallback), as Gemma's and "
            "so mmBERT's, which is not supported; use byte-level BPE, WordPiece or unigram without"
        )
    pieces = model["vocab"]
    ids: dict[str, int] = (
        {piece: index for index, (piece, _) in enumerate(pieces)}
        if kind == UNIGRAM
        else dict(pieces)
    )
    added = {token["content"]: token["id"] for token in content["added_tokens"]}
    _CHECKS[kind](content, ids, added, name)
    _check_ids(kind, ids, added, len(pieces), name)
    tokenizer = Tokenizer.from_str(tokenizer_json)  # refuses merges of unknown tokens and the like
    moved = [token for token, index in added.items() if tokenizer.token_to_id(token) != index]
    if moved:
        raise DataError(
            f"tokenizer {name} says id {added[moved[0]]} of its added token {moved[0]!r}, but "
            f"`tokenizers` gives it {tokenizer.token_to_id(moved[0])}; load it with transformers "
            "and save it again"
        )
    size = max((ids | added).values()) + 1  # ids may have gaps
    tables = (np.zeros(size, np.uint16), np.zeros(size, np.bool_), np.ones(size, np.bool_))
    if kind == BYTE_BPE:
        _byte_tables(ids, added, *tables)
    else:
        _word_tables(kind, tokenizer, ids, added, *tables[1:])
    roles = _special_names(kind, added)
    for token in _text_tokens(content["added_tokens"], roles.values()):
        tables[2][token["id"]] = False
    return Vocabulary(
        kind=kind,
        lower_case=_words(tokenizer, "A") == _words(tokenizer, "a"),  # tried: normalizers vary
        size=size,
        **{role: added[token] for role, token in roles.items()},
        byte_lengths=tables[0],
        word_starts=tables[1],
        special=tables[2],
        tokenizer_json=tokenizer_json,
        sha256=hashlib.sha256(tokenizer_json.encode()).hexdigest(),
    )


def _text_tokens(added: list[dict[str, Any]], roles: Iterable[str]) -> list[dict[str, Any]]:
    """The added tokens that are text; roles: the special tokens, whatever their own flag says."""
    special = set(roles)
    return [token for token in added if not (token["special"] or token["content"] in special)]


def _unlimited(tokenizer_json: str) -> str:
    """The same tokenizer.json with `truncation` and `padding` set to null.

    A tokenizer that was called with truncation=True keeps its limit when it is saved, and would
    truncate every document. All other characters are kept, so the sha256 equals that of the same
    tokenizer saved before that call.
    """
    content = json.loads(tokenizer_json)
    for key in ("truncation", "padding"):
        if content.get(key) is None:
            continue
        content[key] = None
        start = re.search(rf'"{key}"\s*:\s*', tokenizer_json)
        assert start is not None  # the key was just read
        _, end = json.JSONDecoder().raw_decode(tokenizer_json, start.end())
        cleared = f"{tokenizer_json[: start.end()]}null{tokenizer_json[end:]}"
        same = json.loads(cleared) == content  # the first match may be another object's key
        tokenizer_json = cleared if same else json.dumps(content, ensure_ascii=False)
    return tokenizer_json


def _byte_tables(
    ids: dict[str, int],
    added: dict[str, int],
    lengths: npt.NDArray[np.uint16],
    word_starts: npt.NDArray[np.bool_],
    special: npt.NDArray[np.bool_],
) -> None:
    """Fill the tables of byte-level BPE, where white space starts a word, and so does a letter of a
    script without spaces, even if the token holds only its first bytes."""
    for token, index in (ids | added).items():
        if token in added or _reserved(token):
            word_starts[index] = True
            continue
        text = _text(BYTE_BPE, token)
        lengths[index] = len(text)
        word_starts[index] = not _continues(BYTE_BPE, token) or begins_spaceless(text)
        special[index] = False


def _word_tables(
    kind: str,
    tokenizer: Tokenizer,
    ids: dict[str, int],
    added: dict[str, int],
    word_starts: npt.NDArray[np.bool_],
    special: npt.NDArray[np.bool_],
) -> None:
    """Fill the tables of WordPiece and unigram.

    Ids such as `[unused7]` and `##中`, which no word produces, are special. In WordPiece a token
    without `##` starts a word. In unigram `▁` does, and so does punctuation, as in ALBERT's
    create_pretraining_data.py (where any letter but a-z starts a word, too; not here). In both, so
    does a letter of a script without spaces, as in BERT's whole words of Chinese.
    """
    word_starts[list(added.values())] = True
    for token, index in ids.items():
        if token in added:
            continue
        inside, body = _continues(kind, token), _text(kind, token).decode()
        word_starts[index] = (
            not inside
            or (kind == UNIGRAM and _is_punctuation(token))
            or begins_spaceless(body.encode())
        )
        mark = WORD_MARK if kind == UNIGRAM else ""
        whole = f"{_ANY_LETTER}{body}" if inside else body
        special[index] = bool(whole) and _words(tokenizer, whole) != [mark + whole]


def _continues(kind: str, token: str) -> bool:
    """True if a token lacks its kind's mark of a word's start: white space, no `##`, or `▁`."""
    if kind == WORDPIECE:
        return token.startswith(CONTINUATION)
    return token[0] != WORD_MARK if kind == UNIGRAM else _text(kind, token)[:1] not in _WHITE


def _text(kind: str, token: str) -> bytes:
    """The text that a token stands for, without the marks of WordPiece and unigram."""
    if kind == BYTE_BPE:
        return bytes(BYTES.get(letter, 0) for letter in token)
    return token.removeprefix(CONTINUATION if kind == WORDPIECE else WORD_MARK).encode()


def _words(tokenizer: Tokenizer, text: str) -> list[str]:
    """The normalized words that a text is split into."""
    if tokenizer.normalizer is not None:
        text = tokenizer.normalizer.normalize_str(text)
    assert tokenizer.pre_tokenizer is not None  # checked before
    return [word for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(text)]


def _is_punctuation(text: str) -> bool:
    return all(unicodedata.category(character)[0] in "PS" for character in text)


def _check_ids(
    kind: str, ids: dict[str, int], added: dict[str, int], pieces: int, name: str
) -> None:
    """Raise DataError unless all special tokens exist and every token has its own id."""
    special = _special_names(kind, added).values()
    missing = [token for token in special if token not in added]
    if missing:
        raise DataError(
            f"tokenizer {name} lacks {' '.join(missing)} among its added tokens; "
            f"use one with {' '.join(special)}"
        )
    every = ids | added
    if len(ids) < pieces or len(set(every.values())) < len(every):
        raise DataError(f"tokenizer {name} gives two tokens one id; use one without repeats")
    last = max(every.values())
    if last >= 2 * len(every) + _SPARE_IDS:
        raise DataError(
            f"tokenizer {name} has {len(every):,} tokens and an id {last:,}, but a model needs a "
            "row for each id up to the last; number the tokens without gaps"
        )


def _special_names(kind: str, added: Mapping[str, int]) -> Mapping[str, str]:
    """The special tokens by role; byte-level BPE may have BERT's, as ModernBERT's does."""
    named_as_bert = kind == BYTE_BPE and all(name in added for name in SPECIALS[WORDPIECE].values())
    return SPECIALS[WORDPIECE if named_as_bert else kind]


def _check_byte_bpe(
    content: dict[str, Any], ids: dict[str, int], added: dict[str, int], name: str
) -> None:
    """Raise DataError unless every byte of a text can be recovered from its ids."""
    model, pre_tokenizer = content["model"], content.get("pre_tokenizer") or {}
    *splits, last = pre_tokenizer.get("pretokenizers") or [pre_tokenizer]
    other = [step.get("type") for step in splits if step.get("type") not in ("Split", "Digits")]
    if other or last.get("type") != "ByteLevel":
        raise DataError(
            f"tokenizer {name} is BPE with pre-tokenizer {(*other, last.get('type'))[0]}; use one "
            "of the byte-level kind"
        )
    normalizer = (content.get("normalizer") or {}).get("type", "NFC")  # documents are in NFC
    removes = any(step.get("behavior") == "Removed" for step in splits)
    if normalizer != "NFC" or removes or last.get("add_prefix_space"):
        raise DataError(
            f"tokenizer {name} changes the text (normalizer, add_prefix_space or a split that "
            "removes text), so ids could not be turned back into documents; use one that does not"
        )
    for key in ("dropout", "continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(key):
            raise DataError(f"tokenizer {name} sets model.{key}={model[key]}; use one without")
    lacking = BYTES.keys() - model["vocab"].keys()
    if lacking:
        raise DataError(
            f"tokenizer {name} lacks {len(lacking)} of the 256 byte symbols, so text would be "
            "lost; use a complete vocabulary"
        )


def _check_wordpiece(
    content: dict[str, Any], ids: dict[str, int], added: dict[str, int], name: str
) -> None:
    """Raise DataError unless text is treated as in BERT."""
    parts = [(content.get(key) or {}).get("type") for key in ("normalizer", "pre_tokenizer")]
    if parts != ["BertNormalizer", "BertPreTokenizer"]:
        raise DataError(
            f"tokenizer {name} is WordPiece with normalizer {parts[0]} and pre-tokenizer "
            f"{parts[1]}; use one with BertNormalizer and BertPreTokenizer"
        )
    prefix = content["model"]["continuing_subword_prefix"]
    if prefix != CONTINUATION or content["model"]["unk_token"] != SPECIALS[WORDPIECE]["unk"]:
        raise DataError(f"tokenizer {name} marks continuations with {prefix!r}; use one with '##'")
    if content["model"]["unk_token"] not in content["model"]["vocab"]:
        raise DataError(
            f"tokenizer {name} has no {content['model']['unk_token']} in its model, so words could "
            "not be encoded; use a complete vocabulary"
        )


def _check_unigram(
    content: dict[str, Any], ids: dict[str, int], added: dict[str, int], name: str
) -> None:
    """Raise DataError unless words are split at white space and start with `▁`, as in ALBERT."""
    pre_tokenizer = content.get("pre_tokenizer") or {}
    steps = pre_tokenizer.get("pretokenizers", [pre_tokenizer])
    last = steps[-1]
    if (
        last.get("type") != "Metaspace"
        or [step["type"] for step in steps[:-1]] not in ([], ["WhitespaceSplit"])
        or (last["replacement"], last["prepend_scheme"]) != (WORD_MARK, "always")
        or not last.get("split", True)
    ):
        raise DataError(
            f"tokenizer {name} is unigram and does not split words as ALBERT does; use "
            "pre-tokenizer Metaspace with replacement ▁, prepend_scheme always and split"
        )
    if content["model"]["unk_id"] != added.get(SPECIALS[UNIGRAM]["unk"]):
        raise DataError(f"tokenizer {name}: unknown id differs from that of <unk>; use ALBERT's")


_CHECKS = {BYTE_BPE: _check_byte_bpe, WORDPIECE: _check_wordpiece, UNIGRAM: _check_unigram}


def _reserved(token: str) -> bool:
    """True if a token only fills the table: fairseq's madeupwords, GPT-2's end of text, unused."""
    return (
        token.startswith("madeupword")
        or token == "<|endoftext|>"
        or not all(letter in BYTES for letter in token)
    )
