"""Examples -> rows of token ids, with the tokens that the head reads.

Texts are encoded by `tokenizers` in one call per column, each as it is: only pretraining cleans its
documents. Literal special tokens in a text stay text. Rows look as in transformers, where that is
the tokenizer's choice: `<s> A </s> </s> B </s>` by RoBERTa's, `[CLS] A [SEP] B [SEP]` by others.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from tokenizers import Encoding, Tokenizer

from pipeline.base.progress import tracked
from pipeline.data.tokenizers.definitions import BYTE_BPE
from pipeline.data.tokenizers.vocabulary import Vocabulary
from pipeline.downstream.finetune_tasks import TaskKind
from pipeline.downstream.reading.examples import Answer, Example

QUESTION = 64
"""Most tokens of a question (google-research/bert run_squad.py)."""
STRIDE = 128
"""Most tokens from a window of a paragraph to the next (run_squad.py, doc_stride)."""


@dataclass(frozen=True, slots=True)
class Row:
    """A sequence for the encoder."""

    ids: list[int]
    second: int
    """First position of the second segment; len(ids) if there is one segment."""
    places: list[int]
    """Positions that the head reads."""


@dataclass(frozen=True, slots=True)
class Window:
    """The part of a paragraph in a row."""

    first: int
    """Position in the row of its first token."""
    offsets: list[tuple[int, int]]
    """Characters of the paragraph that each of its tokens stands for."""
    best: list[bool]
    """True if no other window shows the token with more context."""


@dataclass(frozen=True, slots=True)
class Feature:
    """One unit of training: an example, the rows of all its choices, or a window."""

    example: int
    """Index of its example."""
    rows: tuple[Row, ...]
    targets: tuple[float, ...]
    """A label, a number, a label per place, the index of the right choice, or the positions of an
    answer's first and last token, 0 if the window has none; empty if unknown."""
    window: Window | None = None
    words: tuple[int, ...] = ()
    """Index of the word at each place."""


@dataclass(slots=True)
class Lost:
    """Counts of what did not fit in rows."""

    texts: int = 0
    """Examples of which tokens are missing; a paragraph's are in another window."""
    answers: int = 0
    """Answers that no window shows whole."""
    words: int = 0
    """Tagged words beyond the end of their row, or without a token."""

    def describe(self) -> dict[str, int]:
        """The counts, for scores.json."""
        return {"texts": self.texts, "answers": self.answers, "words": self.words}


@dataclass(slots=True)
class RowEncoder:
    """Makes the rows of one model."""

    vocabulary: Vocabulary
    length: int
    doubled: bool = field(init=False)
    """True if two separators stand between two texts, as in RoBERTa's tokenizer."""
    tokenizer: Tokenizer = field(init=False)
    lost: Lost = field(default_factory=Lost)

    def __post_init__(self) -> None:
        self.tokenizer = Tokenizer.from_str(self.vocabulary.text_json())
        # text_json has special tokens as text, so only the whole file's template can be counted
        whole = Tokenizer.from_str(self.vocabulary.tokenizer_json)
        self.doubled = whole.num_special_tokens_to_add(True) > 3  # [CLS] A [SEP] B [SEP] has three

    def encode(
        self, examples: Sequence[Example], kind: TaskKind, labels: Sequence[str]
    ) -> list[Feature]:
        """The features of examples in their order; what is cut off is added to `lost`."""
        numbers = {label: index for index, label in enumerate(labels)}
        makers: dict[TaskKind, Callable[[], list[Feature]]] = {
            "classification": lambda: self._texts(examples, numbers),
            "regression": lambda: self._texts(examples, numbers),
            "choices": lambda: self._choices(examples),
            "tags": lambda: self._tags(examples, numbers),
            "spans": lambda: self._spans(examples),
        }
        return makers[kind]()

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of texts, without special tokens."""
        return [found.ids for found in self._encodings(texts)]

    def _encodings(self, texts: Sequence[str]) -> list[Encoding]:
        return list(self.tokenizer.encode_batch(list(texts), add_special_tokens=False))

    def _row(self, first: list[int], second: list[int] | None, places: list[int]) -> Row:
        ids = [self.vocabulary.bos, *first, self.vocabulary.eos]
        if second is None:
            return Row(ids, len(ids), places)
        if self.doubled:
            ids.append(self.vocabulary.eos)
        return Row([*ids, *second, self.vocabulary.eos], len(ids), places)

    def _cut(self, first: list[int], second: list[int] | None) -> tuple[Row, bool]:
        """The row of one or two texts, and whether something is missing.

        The longer text loses tokens at its end until both fit.
        """
        if second is None:
            kept = min(len(first), self.length - 2)  # for bos and eos
            return self._row(first[:kept], None, [0]), kept < len(first)
        space = self.length - 3 - self.doubled
        short = min(len(first), len(second))
        is_cut = len(first) + len(second) > space
        if is_cut:
            half = space // 2
            if short <= half:
                # the result of dropping tokens one by one from the longer text
                sizes = (short, space - short) if short == len(first) else (space - short, short)
            else:
                sizes = (space - half, half)
            first, second = first[: sizes[0]], second[: sizes[1]]
        return self._row(first, second, [0]), is_cut

    def _texts(self, examples: Sequence[Example], numbers: dict[str, int]) -> list[Feature]:
        columns = [self.ids([example.texts[place] for example in examples])
                   for place in range(len(examples[0].texts))]  # fmt: skip
        found = []
        for index, example in _number(examples):
            second = columns[1][index] if len(columns) > 1 else None
            gold = example.gold
            targets: tuple[float, ...] = ()
            if gold is not None:
                targets = (numbers[gold] if isinstance(gold, str) else float(gold),)  # type: ignore[arg-type]
            row, is_cut = self._cut(columns[0][index], second)
            self.lost.texts += is_cut
            found.append(Feature(index, (row,), targets))
        return found

    def _choices(self, examples: Sequence[Example]) -> list[Feature]:
        found = []
        for index, example in _number(examples):
            common, *choices = self.ids(example.texts)
            rows, cuts = zip(*(self._cut(common, choice) for choice in choices))
            self.lost.texts += any(cuts)
            targets = () if example.gold is None else (int(str(example.gold)),)
            found.append(Feature(index, rows, targets))
        return found

    def _tags(self, examples: Sequence[Example], numbers: dict[str, int]) -> list[Feature]:
        """Words are encoded one by one, each after a space; the head reads their first pieces."""
        # distinct words only: text repeats words, and here their ids do not depend on neighbours
        words = sorted({word for example in examples for word in example.texts})
        # byte-level BPE has other ids for a word after a space; other kinds do not
        space = " " if self.vocabulary.kind == BYTE_BPE else ""
        pieces = dict(zip(words, self.ids([f"{space}{word}" for word in words])))
        found = []
        for index, example in _number(examples):
            ids: list[int] = []
            places, shown = [], []
            for number, word in enumerate(example.texts):
                own = pieces[word]
                if own and len(ids) + 1 < self.length - 1:  # + 1 for bos, - 1 for eos
                    places.append(len(ids) + 1)
                    shown.append(number)
                ids += own  # past the end, too: `lost` counts it, the row cuts it
            self.lost.words += len(example.texts) - len(shown)
            self.lost.texts += len(ids) > self.length - 2
            targets: tuple[float, ...] = ()
            if isinstance(example.gold, tuple):
                targets = tuple(numbers[str(example.gold[number])] for number in shown)
            row = self._row(ids[: self.length - 2], None, places)
            found.append(Feature(index, (row,), targets, words=tuple(shown)))
        return found

    def _spans(self, examples: Sequence[Example]) -> list[Feature]:
        # SQuAD asks several questions about each paragraph, which is encoded once
        paragraphs = sorted({example.texts[1] for example in examples})
        located = {}
        for text, encoding in zip(paragraphs, self._encodings(paragraphs)):
            located[text] = (encoding.ids, token_offsets(text, encoding))
        questions = self.ids([example.texts[0] for example in examples])
        found = []
        for index, example in _number(examples):
            ids, offsets = located[example.texts[1]]
            # a short row would otherwise be all question
            question = questions[index][: min(QUESTION, self.length // 2)]
            self.lost.texts += len(question) < len(questions[index])
            space = self.length - len(question) - 3 - self.doubled
            # at run_squad.py's 384 a third is its 128; windows of shorter rows overlap as much
            starts = window_starts(len(ids), space, min(STRIDE, self.length // 3))
            wanted = answer_tokens(example, offsets)
            held = False
            for number, start in enumerate(starts):
                part = offsets[start : start + space]
                row = self._row(question, ids[start : start + space], [])
                first = len(row.ids) - 1 - len(part)
                # the head reads every token, and only the finished row says how many there are
                row = Row(row.ids, row.second, list(range(len(row.ids))))
                inside = wanted is not None and start <= wanted[0] and wanted[1] < start + len(part)
                held |= inside
                targets: tuple[float, ...] = ()
                if example.gold is not None:
                    targets = (0, 0)  # bos stands for "not in this window" (run_squad.py)
                if inside and wanted is not None:
                    targets = (wanted[0] - start + first, wanted[1] - start + first)
                best = most_context(starts, number, len(ids), space)
                found.append(Feature(index, (row,), targets, Window(first, part, best)))
            self.lost.answers += bool(example.gold) and not held
        return found


def _number(examples: Sequence[Example]) -> Iterator[tuple[int, Example]]:
    """Each example and its index, with progress."""
    return enumerate(tracked(examples, "encoding", "examples"))


def token_offsets(text: str, encoding: Encoding) -> list[tuple[int, int]]:
    """The characters of each token, without white space around them.

    Accents of their own that the tokenizer drops belong to the token before them.
    """
    found = []
    nexts = [start for start, _ in encoding.offsets[1:]]
    for (start, stop), after in zip(encoding.offsets, [*nexts, len(text)]):
        while start < stop < after and unicodedata.combining(text[stop]):
            stop += 1
        while start < stop and text[start].isspace():
            start += 1
        while stop > start and text[stop - 1].isspace():
            stop -= 1
        found.append((start, stop))
    return found


def answer_tokens(example: Example, offsets: Sequence[tuple[int, int]]) -> tuple[int, int] | None:
    """First and last token of the first accepted answer; None if there is none, or no token."""
    answers = [a for a in example.gold if isinstance(a, Answer)] if example.gold else []  # type: ignore[union-attr]
    if not answers:
        return None
    # run_squad.py also trains on one answer; those of other annotators are for scoring
    begin, end = answers[0].start, answers[0].start + len(answers[0].text)
    # a token of white space has an empty span, which overlaps no answer
    inside = [
        index for index, (start, stop) in enumerate(offsets)
        if start < end and stop > begin and stop > start
    ]  # fmt: skip
    return (inside[0], inside[-1]) if inside else None


def window_starts(tokens: int, space: int, stride: int) -> list[int]:
    """First token of each window; the last window reaches the end of the paragraph."""
    starts = [0]
    while starts[-1] + space < tokens:
        starts.append(starts[-1] + min(stride, space))  # a longer stride would skip tokens
    return starts


def most_context(starts: Sequence[int], number: int, tokens: int, space: int) -> list[bool]:
    """Which tokens of a window have their most context there: the smaller of the tokens before and
    after in the window, plus a hundredth of the window's length (run_squad.py)."""
    if len(starts) == 1:
        return [True] * min(space, tokens)
    places = np.arange(tokens)
    # below every score, so windows without the token never win
    scores = np.full((len(starts), tokens), -1.0)
    for index, start in enumerate(starts):
        stop = min(tokens, start + space)
        shown = places[start:stop]
        scores[index, start:stop] = np.minimum(shown - start, stop - 1 - shown)
        scores[index, start:stop] += 0.01 * (stop - start)
    start = starts[number]
    stop = min(tokens, start + space)
    # argmax takes the first of equals: ties go to the earlier window, as in run_squad.py
    best: list[bool] = (scores[:, start:stop].argmax(0) == number).tolist()
    return best
