"""A SentencePiece `.model` as ALBERT publishes it -> tokenizer.json with the same ids.

The conversion is that of transformers' AlbertConverter: ALBERT's own steps (quotes, accents, lower
case), then the table of characters in the model. A piece that ends in a digit and a comma gets a
lower score, since ALBERT's code splits these after SentencePiece. The result is compared with the
`sentencepiece` package on a probe text, and refused if any id differs.
"""

from __future__ import annotations

import importlib
import json
import struct
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tokenizers import Regex, Tokenizer, normalizers

from pipeline.base.errors import DataError
from pipeline.base.files import read_plain
from pipeline.data.tokenizers.definitions import SPECIALS, UNIGRAM, unigram_json

_PIECES, _TRAINER, _NORMALIZER = 1, 2, 3
_PIECE, _SCORE, _TYPE = 1, 2, 3
_MODEL_TYPE, _BYTE_FALLBACK, _CHARACTER_TABLE = 3, 35, 2
"""Numbers of fields in sentencepiece_model.proto."""
_UNIGRAM_TYPE = 1
_USER_DEFINED = 4
"""Type of a piece that SentencePiece takes wherever it stands, whatever the scores are."""
_COMMA_PENALTY = 100.0  # transformers' AlbertConverter
PROBE = (
    "Hello world! It's 3.14; isn't it? A cafe, a café and the naïve.",
    "``Quoted'' text: (one) — “two”; 100 % of €5 £7 … ½ ² \ufb01",
    "Ελληνικά Русский 日本語 한국어 \uff21\uff22 ① 👩",
    "anti-hero co-operate e\u0301 STRASSE Straße İzmir",
    "a " * 40 + "x" * 200 + "..." * 30,
)
"""Lines of text that both must give the same ids; no digit stands before a comma."""


def sentencepiece_json(path: Path) -> str:
    """tokenizer.json of a model. Raises DataError if it is unusable or its ids would differ."""
    try:
        sentencepiece: Any = importlib.import_module("sentencepiece")
    except ImportError as error:
        raise DataError(
            f"{path} needs the sentencepiece package: pip install '.[sentencepiece]'"
        ) from error
    content = read_plain(path)
    try:
        reference = sentencepiece.SentencePieceProcessor(model_proto=content)
        pieces, symbols, table = _read_model(content, path)
    except (RuntimeError, ValueError, IndexError) as error:
        raise DataError(f"{path} is not a SentencePiece model ({error}); fetch it again") from error
    missing = [token for token in SPECIALS[UNIGRAM].values() if token not in dict(pieces)]
    if missing:
        raise DataError(f"{path} lacks {' '.join(missing)}; use a model of ALBERT's kind")
    lower_case = _is_uncased(path, pieces)
    scores = [(piece, score - _COMMA_PENALTY * _ends_in_comma(piece)) for piece, score in pieces]
    tokenizer = Tokenizer.from_str(unigram_json(scores, lower_case=lower_case))
    tokenizer.normalizer = _normalizer(table, lower_case)
    _check_ids(tokenizer, reference, lower_case, symbols, path)
    return str(tokenizer.to_str())


def _read_model(content: bytes, path: Path) -> tuple[list[tuple[str, float]], list[str], bytes]:
    """Pieces with their scores, by id; the user-defined ones; the table of characters."""
    pieces: list[tuple[str, float]] = []
    symbols: list[str] = []
    trainer: dict[int, Any] = {}
    normalizer: dict[int, Any] = {}
    for number, value in _fields(content):
        # pieces have no id of their own: it is their order
        if number == _PIECES:
            fields = dict(_fields(value))
            pieces.append((fields[_PIECE].decode(), fields.get(_SCORE, 0.0)))
            if (
                fields.get(_TYPE) == _USER_DEFINED
                and pieces[-1][0] not in SPECIALS[UNIGRAM].values()
            ):
                symbols.append(pieces[-1][0])
        elif number == _TRAINER:
            trainer = dict(_fields(value))
        elif number == _NORMALIZER:
            normalizer = dict(_fields(value))
    if trainer.get(_MODEL_TYPE, _UNIGRAM_TYPE) != _UNIGRAM_TYPE or trainer.get(_BYTE_FALLBACK):
        raise DataError(f"{path} is not a unigram model, or falls back to bytes; use ALBERT's kind")
    return pieces, symbols, normalizer.get(_CHARACTER_TABLE, b"")


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Number and value of each field of a protobuf message: an int, a float, or bytes."""
    place = 0
    while place < len(message):
        key, place = _varint(message, place)
        # protobuf's wire format: 0 varint, 1 eight bytes, 2 a length and bytes, 5 four bytes
        kind = key & 7
        if kind == 0:
            value, place = _varint(message, place)
            yield key >> 3, value
            continue
        size, place = (8 if kind == 1 else 4, place) if kind in (1, 5) else _varint(message, place)
        part = message[place : place + size]
        if kind not in (1, 2, 5) or len(part) < size:
            raise ValueError("it is truncated, or not a protobuf message")
        place += size
        yield key >> 3, part if kind != 5 else struct.unpack("<f", part)[0]


def _varint(message: bytes, place: int) -> tuple[int, int]:
    """An integer of 7 bits per byte, and the place after it."""
    value = shift = 0
    while message[place] & 0x80:
        value |= (message[place] & 0x7F) << shift
        place, shift = place + 1, shift + 7
    return value | message[place] << shift, place + 1


def _is_uncased(path: Path, pieces: list[tuple[str, float]]) -> bool:
    """True if the tokenizer_config.json next to the model says so, or if no piece has a capital."""
    config = path.with_name("tokenizer_config.json")
    special = SPECIALS[UNIGRAM].values()
    plain = all(piece == piece.lower() for piece, _ in pieces if piece not in special)
    found = json.loads(read_plain(config)) if config.exists() else {}
    return bool(found.get("do_lower_case", plain))


def _ends_in_comma(piece: str) -> bool:
    """True if a piece ends in a digit and a comma, which ALBERT's code splits."""
    return len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit()


def _normalizer(table: bytes, lower_case: bool) -> normalizers.Normalizer:
    """ALBERT's steps, then the model's table."""
    steps: list[normalizers.Normalizer] = [
        normalizers.Replace("``", '"'),
        normalizers.Replace("''", '"'),
    ]
    if lower_case:
        steps += [normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase()]
    if table:
        steps.append(normalizers.Precompiled(table))
    # as in transformers' AlbertConverter
    return normalizers.Sequence([*steps, normalizers.Replace(Regex(" {2,}"), " ")])


def _check_ids(
    tokenizer: Tokenizer, reference: Any, lower_case: bool, symbols: list[str], path: Path
) -> None:
    """Raise DataError unless both give the probe, and user-defined symbols in it, the same ids.

    SentencePiece takes such a symbol wherever it stands; here its score decides, which is the
    highest, so that the symbol wins unless a word's other pieces cross its edges.
    """
    tokenizer = Tokenizer.from_str(tokenizer.to_str())  # as it will be read from its file
    inside = (f"{symbol} the{symbol}house x{symbol} {symbol}y {symbol * 2}" for symbol in symbols)
    for text in (*PROBE, *inside):
        expected = reference.encode(albert_text(text, lower_case))
        found = tokenizer.encode(text, add_special_tokens=False).ids
        if found != expected:
            raise DataError(
                f"{path}: `tokenizers` gives other ids than sentencepiece for {text[:60]!r}; use a "
                "model of ALBERT's kind, or its tokenizer.json"
            )


def albert_text(text: str, lower_case: bool) -> str:
    """The text after google-research/albert's own steps (tokenization.py, preprocess_text)."""
    text = text.replace("``", '"').replace("''", '"')
    if not lower_case:
        return text
    parts = unicodedata.normalize("NFKD", text)
    return "".join(c for c in parts if not unicodedata.combining(c)).lower()
