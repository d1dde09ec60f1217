"""gigatoken's ids against those of `tokenizers`, and the fallback where they differ."""

from pipeline.data.tokenizers.document_encoder import TextEncoder
from pipeline.data.tokenizers.gigatoken_engine import CACHE_BYTES, DIFFERING, GigatokenEngine
from pipeline.data.tokenizers.vocabulary import Vocabulary
from tests.pipeline.data.tokenizers.conftest import documents, encode, random_texts


def test_ids_are_those_of_the_reference_and_cover_every_byte(tiny_vocabulary: Vocabulary) -> None:
    """Of random Unicode, and of code points whose classes differ, which go to the reference."""
    encoder = TextEncoder.create(tiny_vocabulary)
    ends = [chr(code) for first, last in DIFFERING for code in (first, last)]
    differing = ["plain text", *(f"a{end}b {end}1" for end in ends), "plain again"]
    random = (random_texts(1000, highest, lowest=1) for highest in (0x80, 0x3000, 0x110000))
    for texts in (*random, differing):
        found = documents(encode(encoder, texts, checked=False))
        tokenizer = encoder.reference.tokenizer
        assert found == [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
        for text, ids in zip(texts, found):
            assert tiny_vocabulary.byte_lengths[ids].sum() == len(text.encode())


def test_the_cache_is_emptied_when_the_process_has_grown(tiny_vocabulary: Vocabulary) -> None:
    encoder = TextEncoder.create(tiny_vocabulary)
    assert isinstance(encoder.fast, GigatokenEngine)
    texts, first = ["one text", "two texts"], encoder.fast.engine
    expected = documents(encode(encoder, texts))
    assert encoder.fast.engine is first
    encoder.fast.resident -= CACHE_BYTES + (1 << 30)
    assert documents(encode(encoder, texts)) == expected
    assert encoder.fast.engine is not first
