"""The rules of `pipeline.data.rows.segment_rows`, slow and obvious, for comparison with ours.

A document is a list of sentences, a sentence a list of ids; the rest of a document is such a list
too. Random numbers are ours (splitmix64), so rows must be equal, not only similar.
"""

from dataclasses import dataclass

Sentences = list[list[int]]
SHORTEST_LOOK = 32


@dataclass
class Row:
    """A, B (empty: none), the label, and the number of A's document."""

    a: list[int]
    b: list[int]
    label: int
    document: int


class Draws:
    """Uniform 32-bit numbers."""

    def __init__(self, key: int) -> None:
        self.state = key

    def next(self) -> int:
        self.state = (self.state + 0x9E3779B97F4A7C15) % 2**64
        word = self.state
        word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        word = (word ^ (word >> 27)) * 0x94D049BB133111EB % 2**64
        return (word ^ (word >> 31)) >> 32

    def happens(self, share: float) -> bool:
        return self.next() < round(share * 2**32)

    def below(self, limit: int) -> int:
        return self.next() * limit >> 32


def joined(sentences: Sentences) -> list[int]:
    return [token for sentence in sentences for token in sentence]


def split_at(sentence: list[int], room: int, begins_word: set[int]) -> tuple[list[int], list[int]]:
    """The part of a sentence that fits, and the rest; cut before a word that starts near there."""
    if len(sentence) <= room:
        return sentence, []
    for place in range(room, max(0, room - SHORTEST_LOOK), -1):
        if sentence[place] in begins_word:
            return sentence[:place], sentence[place:]
    return sentence[:room], sentence[room:]


def other_sentence(documents: list[Sentences], own: int, draws: Draws) -> Sentences:
    """A random sentence of the other documents, and those after it."""
    others = [
        document[start:]
        for number, document in enumerate(documents)
        if number != own
        for start in range(len(document))
    ]
    return others[draws.below(len(others))]


def segment_rows(
    documents: list[Sentences],
    begins_word: set[int],
    room: int,
    label: str,
    short_share: float,
    single_share: float,
    key: int,
) -> list[Row]:
    """Rows of segment_pair, and with single_share=1 of single_segment."""
    draws, rows = Draws(key), []
    for number, document in enumerate(documents):
        left = list(document)
        while left:
            target = 2 + draws.below(room - 1) if draws.happens(short_share) else room
            chunk: Sentences = []
            while left and len(joined(chunk)) < target:
                if len(joined(chunk)) + len(left[0]) > room:
                    break
                chunk.append(left.pop(0))
            if not chunk:
                piece, left[0] = split_at(left[0], room, begins_word)
                rows.append(Row(piece, [], -1, number))
                continue
            extra = join_next(chunk, left, target, room, begins_word)
            if (len(chunk) == 1 and not extra) or draws.happens(single_share):
                rows.append(Row(joined(chunk), [], -1, number))
                continue
            if extra:
                chunk.append(extra)
                left[0] = left[0][len(extra) :]
            if label == "none":
                cut = half_of(chunk, target, draws)
                rows.append(Row(joined(chunk[:cut]), joined(chunk[cut:]), -1, number))
                continue
            cut = 1 + draws.below(len(chunk) - 1)
            a, b = joined(chunk[:cut]), joined(chunk[cut:])
            if label == "order" or len(documents) == 1:
                rows.append(Row(a, b, 0 if label == "order" else -1, number))
            elif draws.happens(0.5):
                wanted = len(b) if not left else target - len(a)
                borrowed = other_sentence(documents, number, draws)
                random_b = fill(borrowed, room - len(a), wanted, not left, begins_word)
                rows.append(Row(a, random_b, 1, number))
                if extra:
                    left[0] = extra + left[0]
                else:
                    left = chunk[cut:] + left
            else:
                rows.append(Row(a, b, 0, number))
    return rows


def join_next(
    chunk: Sentences, left: Sentences, target: int, room: int, begins_word: set[int]
) -> list[int]:
    """The words of the next sentence that join a chunk of one, if they are enough."""
    size = len(joined(chunk))
    if len(chunk) > 1 or not left or size >= target:
        return []
    most = room - size
    if most == 0 or not any(token in begins_word for token in left[0][1 : most + 1]):
        return []
    extra = split_at(left[0], most, begins_word)[0]
    cut_at_word = left[0][len(extra)] in begins_word
    return extra if cut_at_word and len(extra) >= room // 4 else []


def half_of(chunk: Sentences, target: int, draws: Draws) -> int:
    """How many sentences A takes: while below half, and by a coin the one that reaches it."""
    taken, half = 1, target // 2
    while taken < len(chunk) and len(joined(chunk[: taken + 1])) < half:
        taken += 1
    if taken < len(chunk) and len(joined(chunk[:taken])) < half and draws.happens(0.5):
        taken += 1
    return taken


def fill(
    sentences: Sentences, room: int, wanted: int, nearest: bool, begins_word: set[int]
) -> list[int]:
    """The B that begins with the first of `sentences`."""
    if len(sentences[0]) > room:
        return split_at(sentences[0], room, begins_word)[0]
    taken = list(sentences[0])
    for sentence in sentences[1:]:
        more = len(taken) + len(sentence)
        if len(taken) >= wanted or more > room:
            break
        if nearest and abs(more - wanted) > abs(len(taken) - wanted):
            break
        taken += sentence
    return taken


def sentence_rows(
    documents: list[Sentences], begins_word: set[int], room: int, label: str, key: int
) -> list[Row]:
    """Rows of sentence_pair."""
    draws, rows, half = Draws(key), [], room // 2
    for number, document in enumerate(documents):
        left = list(document)

        def take(left: Sentences = left) -> list[int]:
            piece, rest = split_at(left.pop(0), half, begins_word)
            if rest:
                left.insert(0, rest)
            return piece

        while left:
            a = take()
            if not left:
                rows.append(Row(a, [], -1, number))
            elif label == "next" and len(documents) > 1 and draws.happens(0.5):
                borrowed = other_sentence(documents, number, draws)[0]
                rows.append(Row(a, split_at(borrowed, half, begins_word)[0], 1, number))
            else:
                known = label == "order" or (label == "next" and len(documents) > 1)
                rows.append(Row(a, take(), 0 if known else -1, number))
    return rows
