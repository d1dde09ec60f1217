"""Small byte-level BPE vocabularies that split words by regular expressions of their own."""

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from pipeline.data.tokenizers.definitions import SPECIALS, WORDPIECE

TEXTS = ["The cat sat on the mat 2024 times, didn't it? Naïve cafés; 12,345.67 and 日本"] * 20
_CL100K = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
SPLITS = {
    "gpt-2": pre_tokenizers.ByteLevel(add_prefix_space=False),
    "cl100k": pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(_CL100K), "isolated"), _BYTES]),
    "digits": pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(False)]
    ),
}
"""Ways of splitting text into words."""


def byte_bpe(split: pre_tokenizers.PreTokenizer, *, nfc: bool = True) -> str:
    """tokenizer.json with BERT's special tokens and, as ModernBERT's, NFC."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = split
    tokenizer.decoder = decoders.ByteLevel()
    if nfc:
        tokenizer.normalizer = normalizers.NFC()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=list(SPECIALS[WORDPIECE].values()),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    return str(tokenizer.to_str())
