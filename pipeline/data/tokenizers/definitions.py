"""tokenizer.json of each kind of vocabulary: its normalizer, pre-tokenizer and post-processor.

    byte-bpe   RoBERTa's: bytes, nothing trimmed or changed
    wordpiece  BERT's: cleaned text, separate ideographs, lower case without accents if uncased;
               punctuation separate from words, `##` on tokens that continue a word
    unigram    ALBERT's: ``quotes'' to ", NFKC, lower case without accents if uncased; words split
               at white space and marked by a leading `▁`

ALBERT's own normalizer is a table in its SentencePiece model; the table does NFKC.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)

BYTE_BPE, WORDPIECE, UNIGRAM = "byte-bpe", "wordpiece", "unigram"
ROLES = ("bos", "pad", "eos", "unk", "mask")
SPECIALS: Mapping[str, Mapping[str, str]] = {
    BYTE_BPE: {"bos": "<s>", "pad": "<pad>", "eos": "</s>", "unk": "<unk>", "mask": "<mask>"},
    WORDPIECE: {"pad": "[PAD]", "unk": "[UNK]", "bos": "[CLS]", "eos": "[SEP]", "mask": "[MASK]"},
    UNIGRAM: {"pad": "<pad>", "unk": "<unk>", "bos": "[CLS]", "eos": "[SEP]", "mask": "[MASK]"},
}
"""Special tokens of each kind by role, in the order of their ids in trained vocabularies."""
CONTINUATION = "##"
WORD_MARK = "▁"
LONGEST_WORD = 100
"""Most characters; a longer word is unknown in WordPiece (google-research/bert tokenization.py)."""


def _byte_letters() -> dict[int, str]:
    """The letter that byte-level BPE writes for each byte: itself if it can be seen."""
    # GPT-2's bytes_to_unicode: bytes that print are themselves, all others U+0100 and up
    seen = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in seen]
    return {byte: chr(byte) for byte in seen} | {
        byte: chr(256 + index) for index, byte in enumerate(hidden)
    }


LETTERS = _byte_letters()
BYTES = {letter: byte for byte, letter in LETTERS.items()}


def byte_bpe_json(ids: Mapping[str, int], merges: Sequence[tuple[str, str]]) -> str:
    """tokenizer.json that treats text as RoBERTa does."""
    tokenizer = Tokenizer(models.BPE(dict(ids), list(merges)))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    bos, eos = SPECIALS[BYTE_BPE]["bos"], SPECIALS[BYTE_BPE]["eos"]
    # as roberta-base: the mask takes the space before it, so "a <mask>" can become "a word"
    _add_specials(tokenizer, BYTE_BPE, spaced_mask=True)
    tokenizer.post_processor = processors.RobertaProcessing(
        (eos, ids[eos]), (bos, ids[bos]), trim_offsets=True, add_prefix_space=False
    )
    return str(tokenizer.to_str())


def wordpiece_json(
    ids: Mapping[str, int],
    *,
    lower_case: bool,
    strip_accents: bool | None = None,
    ideographs_apart: bool = True,
) -> str:
    """tokenizer.json that treats text as BERT does; strip_accents: None means `lower_case`."""
    specials = SPECIALS[WORDPIECE]
    tokenizer = Tokenizer(
        models.WordPiece(
            dict(ids), unk_token=specials["unk"], max_input_chars_per_word=LONGEST_WORD
        )
    )
    tokenizer.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=ideographs_apart,
        strip_accents=strip_accents,
        lowercase=lower_case,
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix=CONTINUATION)
    _add_specials(tokenizer, WORDPIECE, spaced_mask=False)
    tokenizer.post_processor = _two_segments(tokenizer)
    return str(tokenizer.to_str())


def unigram_json(pieces: Sequence[tuple[str, float]], *, lower_case: bool) -> str:
    """tokenizer.json that treats text as ALBERT does; pieces: (text, log probability) by id."""
    names = [piece for piece, _ in pieces]
    tokenizer = Tokenizer(models.Unigram(list(pieces), unk_id=names.index("<unk>")))
    tokenizer.normalizer = unigram_normalizer(lower_case)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.WhitespaceSplit(),
            pre_tokenizers.Metaspace(replacement=WORD_MARK, prepend_scheme="always"),
        ]
    )
    tokenizer.decoder = decoders.Metaspace(replacement=WORD_MARK, prepend_scheme="always")
    _add_specials(tokenizer, UNIGRAM, spaced_mask=True)  # as albert-base
    tokenizer.post_processor = _two_segments(tokenizer)
    return str(tokenizer.to_str())


def unigram_normalizer(lower_case: bool) -> normalizers.Normalizer:
    """ALBERT's normalizer; lower case removes accents too (transformers' AlbertConverter)."""
    # first, as in ALBERT's preprocess_text, which runs before SentencePiece normalizes
    quotes = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
    plain = [normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase()]
    return normalizers.Sequence([*quotes, *(plain if lower_case else []), normalizers.NFKC()])


def _add_specials(tokenizer: Tokenizer, kind: str, *, spaced_mask: bool) -> None:
    mask = SPECIALS[kind]["mask"]
    tokenizer.add_special_tokens(
        [
            AddedToken(token, special=True, normalized=False, lstrip=token == mask and spaced_mask)
            for token in SPECIALS[kind].values()
        ]
    )


def _two_segments(tokenizer: Tokenizer) -> processors.TemplateProcessing:
    """`[CLS] A [SEP]` and `[CLS] A [SEP] B [SEP]`, where B and the last [SEP] have type 1."""
    return processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in ("[CLS]", "[SEP]")],
    )
