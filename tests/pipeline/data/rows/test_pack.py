"""Formats by name, the packing counts, and independent draws."""

import numpy as np
import pytest

from pipeline.config.data_settings import DataSettings
from pipeline.config.settings import override
from pipeline.data.rows.pack import count_packing, pack
from pipeline.data.tokenizers.token_ids import select
from pipeline.data.tokenizers.vocabulary import Vocabulary
from pipeline.recipes import recipe
from tests.pipeline.data.rows.toys import lists, random_tokens

SIZE = 300
BOS, PAD, EOS, UNK, MASK = range(5)
SPECIAL = np.arange(SIZE) < 5
VOCABULARY = Vocabulary(
    kind="byte-bpe", lower_case=False, size=SIZE, bos=BOS, pad=PAD, eos=EOS, unk=UNK, mask=MASK,
    byte_lengths=np.ones(SIZE, np.uint16), word_starts=np.ones(SIZE, np.bool_), special=SPECIAL,
    tokenizer_json="", sha256="",
)  # fmt: skip
NEXT, ORDER = "data.segments.label=next", "data.segments.label=order"
FORMATS = [
    "data.format=full_sentences",
    "data.format=doc_sentences",
    "data.format=single_segment",
    "data.format=segment_pair",
    f"data.format=segment_pair {NEXT}",
    f"data.format=segment_pair {ORDER} data.segments.single_share=0.1",
    "data.format=sentence_pair",
    f"data.format=sentence_pair {NEXT}",
]


def data(settings: str) -> DataSettings:
    small = ["data.sequence_length=40", "data.masks.rate=0.2"]
    return override(recipe("roberta_base"), [*small, *settings.split()]).data


@pytest.mark.parametrize("settings", FORMATS)
def test_every_token_is_counted(settings: str) -> None:
    """Against the rows: ordinary ids in all rows, and in random second segments; each document
    starts in the row that is named."""
    chosen, source = data(settings), random_tokens(50, 20, 30, SIZE)
    rows = pack(chosen, source, VOCABULARY, "news", 0, 1)
    counts = count_packing(chosen, source, rows, 1)
    ids = lists(rows)
    shown = sum(int(np.count_nonzero(~SPECIAL[row])) for row in ids)
    assert counts["text_tokens"] == len(source.ids)
    assert counts["dropped_tokens"] == 0
    assert counts["repeated_tokens"] == shown - len(source.ids)
    assert (counts["repeated_tokens"] > 0) == (NEXT in settings)
    assert max(map(len, ids)) <= 40
    if "pair" in settings:
        kinds = ("one_segment", "in_order", "random_next", "unlabelled")
        assert sum(counts[kind] for kind in kinds) == len(rows)
        assert (counts["unlabelled"] > 0) == ("label" not in settings)
    for document, row in enumerate(rows.first_row):
        assert source.ids[source.document_offsets[document]] in ids[row]


def test_what_no_row_holds_is_dropped() -> None:
    chosen, source = data(FORMATS[0]), random_tokens(50, 20, 30, SIZE)
    rows = pack(chosen, select(source, np.arange(50) > 0), VOCABULARY, "news", 0, 1)
    counts = count_packing(chosen, source, rows, 1)
    assert counts["dropped_tokens"] == source.document_offsets[1] > 0


def test_draws_hold_the_same_documents_in_other_rows() -> None:
    chosen, source = data(FORMATS[4] + " data.segments.draws=3"), random_tokens(50, 20, 30, SIZE)
    rows = pack(chosen, source, VOCABULARY, "news", 7, 3)
    alone = lists(pack(chosen, source, VOCABULARY, "news", 7, 1))
    assert lists(rows)[: len(alone)] == alone
    counts = count_packing(chosen, source, rows, 3)
    assert counts["dropped_tokens"] == 0
    assert counts["repeated_tokens"] > 2 * len(source.ids)
    assert len({str(row) for row in lists(rows)}) > 1.5 * len(alone)
    starts = np.diff(rows.document_offsets)
    assert starts.tolist() == (1 + (rows.pair_label == 1)).tolist()


def test_rows_depend_only_on_seed_corpus_and_split() -> None:
    chosen, source = data(FORMATS[4]), random_tokens(50, 20, 30, SIZE)
    first = lists(pack(chosen, source, VOCABULARY, "news", 7, 1))
    assert lists(pack(chosen, source, VOCABULARY, "news", 7, 1)) == first
    others = [
        pack(data(FORMATS[4] + " data.seed=1"), source, VOCABULARY, "news", 7, 1),
        pack(chosen, source, VOCABULARY, "books", 7, 1),
        pack(chosen, source, VOCABULARY, "news", 8, 1),
    ]
    assert all(lists(rows) != first for rows in others)
