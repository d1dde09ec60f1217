"""Sentence boundaries in cleaned text: one pass over the UTF-8 bytes, by rules and word lists.

A newline ends a sentence. Inside a paragraph a boundary needs a terminator, any closing quotes,
brackets and footnote marks, and a space before something that can open a sentence; full-width
stops and the danda need no space. The space between two sentences belongs to the second, because
byte-level BPE attaches a space to the word after it. A period is ambiguous after an abbreviation,
an initial or an enumerator ("etc." is on no list: before a capital it nearly always ends a
sentence). Not handled: the Greek question mark, text without capitals.
"""

from __future__ import annotations

import unicodedata

import numba
import numpy as np
import numpy.typing as npt

from pipeline.kernels.bits import EVERY_HIGH_BIT, EVERY_ONE, Bytes, U, equal_bytes, word_at

SENTENCES_VERSION = 1
"""Part of every shard's fingerprint: increase it when any boundary can move."""

# Abbreviations, without the last period. One written with a capital counts only with a capital
# in the text ("Gen. Lee", not "the next gen. Then"). Single letters with periods between them
# ("U.S", "J.R.R") need no entry: they are treated as MAY_END.
# fmt: off
NEVER_END = (
    "e.g", "i.e", "cf", "vs", "viz", "eg", "ie", "Mr", "Mrs", "Ms", "Mx", "Messrs", "Mme", "Mlle",
    "Dr", "Drs", "Prof", "Profs", "Rev", "Fr", "Hon", "Rt", "Gen", "Col", "Maj", "Capt", "Cpt",
    "Lt", "Lieut", "Cmdr", "Cdr", "Adm", "Sgt", "Cpl", "Pvt", "Pte", "Brig", "Gov", "Sen", "Sens",
    "Rep", "Reps", "Pres", "Supt", "Det", "Insp", "Hr", "Frl", "Sra", "Srta", "Dra", "Msgr", "Amb",
    "Atty", "Mt", "Ft", "Ste", "Wm", "Chas", "Geo", "Thos", "Jas",
)
BEFORE_DIGIT = (
    "no", "nos", "p", "pp", "ll", "nr", "approx", "ib", "ibid", "ft", "Jan", "Feb", "Mar", "Apr",
    "Jun", "Jul", "Aug", "Sep", "Sept", "Oct", "Nov", "Dec",
)
BEFORE_NUMERAL = (  # before digits, Roman numerals and single capitals: "vol. II", "Fig. A"
    "fig", "figs", "eq", "eqs", "vol", "vols", "ch", "chap", "Sec", "Sect", "Art", "Op", "Bk",
    "Pt", "Par", "Ex", "Tab", "Ref", "Refs", "Ser", "Cap", "Lib", "Prop",
)
BEFORE_DAY_OR_ZONE = ("a.m", "p.m")
DAYS_AND_ZONES = (
    "monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday", "mon", "tue",
    "wed", "thu", "thurs", "fri", "sat", "sun", "est", "edt", "et", "cst", "cdt", "ct", "mst",
    "mdt", "pst", "pdt", "pt", "gmt", "utc", "bst", "cet", "ist", "jst", "eastern", "central",
    "mountain", "pacific", "local", "january", "february", "march", "april", "may", "june", "july",
    "august", "september", "october", "november", "december",
)
MAY_END = (  # ends a sentence only before one of STARTERS
    "inc", "ltd", "co", "cos", "corp", "llc", "plc", "bros", "Jr", "Sr", "Esq", "ph.d", "ll.b",
    "ll.d", "St", "Sts", "Ave", "Blvd", "Rd", "Hwy", "Dept", "Univ", "al", "ed", "eds", "rev",
    "repr", "trans", "ret", "est", "b", "c", "ca", "d", "fl", "m", "n", "r", "s", "v", "Calif",
    "Conn", "Fla", "Ind", "Ky", "Md", "Mich", "Minn", "Neb", "Nev", "Okla", "Ore", "Penn", "Tenn",
    "Tex", "Va", "Vt", "Wis", "Wyo", "Ala", "Ariz", "Colo", "Ga", "Ont",
)
STARTERS = (
    "the", "a", "an", "this", "that", "these", "those", "i", "you", "he", "she", "it", "we",
    "they", "my", "your", "his", "her", "its", "our", "their", "there", "here", "in", "on", "at",
    "by", "for", "from", "with", "to", "of", "after", "before", "during", "since", "until",
    "under", "among", "between", "within", "without", "despite", "unlike", "according", "as",
    "if", "when", "while", "where", "why", "how", "what", "who", "which", "although", "though",
    "because", "but", "and", "or", "so", "yet", "nor", "not", "however", "then", "now", "once",
    "some", "many", "most", "several", "all", "both", "each", "every", "another", "other", "such",
    "only", "even", "also", "still", "later", "meanwhile", "nobody", "nothing", "perhaps", "is",
    "are", "was", "were", "do", "does", "did", "has", "had", "have", "can", "could", "would",
)
SPEECH = (  # '"What?" Mary asked.' is one sentence
    "said", "says", "asked", "asks", "cried", "replied", "answered", "shouted", "whispered",
    "exclaimed", "called", "demanded", "added", "murmured", "muttered", "returned", "inquired",
    "enquired", "repeated", "continued", "began", "interrupted", "growled", "gasped", "roared",
    "screamed", "yelled", "snapped", "groaned", "sighed", "responded", "observed", "remarked",
    "retorted", "thought", "wondered", "insisted", "declared", "protested", "ejaculated",
)

# Classes of characters. OTHER can open a sentence: $, caseless letters of every other script.
OTHER, LOWER, UPPER, DIGIT, OPENER, QUOTE, DASH, SPACE, PARTICLE = range(9)
NEWLINE, CLOSER, CONTINUES, DOT, STRONG, ELLIPSIS, WIDE = range(9, 16)
_PUNCTUATION = (
    (SPACE, " "), (NEWLINE, "\n"), (DOT, "."), (ELLIPSIS, "…"), (STRONG, "!?‼⁇⁈⁉‽؟۔։"),
    (WIDE, "。！？｡।॥။។።"), (QUOTE, "\"'“‘«»‹›„‚*_"), (CLOSER, ")]}”’」』）】》〉"),
    (OPENER, "([{¿¡「『（【《〈"), (DASH, "-–—―•·"), (CONTINUES, ",;:%&、，；："), (PARTICLE, "と"),
)
NEVER, NUMBER, NUMERAL, TIME, MAY, DAY, STARTER, SPOKEN = 1, 2, 4, 8, 16, 32, 64, 128
_WORDS = (
    (NEVER, NEVER_END), (NUMBER, BEFORE_DIGIT), (NUMERAL, BEFORE_NUMERAL), (MAY, MAY_END),
    (TIME, BEFORE_DAY_OR_ZONE), (DAY, DAYS_AND_ZONES), (STARTER, STARTERS), (SPOKEN, SPEECH),
)
# fmt: on
_FNV_BASIS, _FNV_PRIME = 0xCBF29CE484222325, 0x100000001B3  # FNV-1a, 64 bits
_LONGEST = 24  # bytes examined of a word or a footnote mark


def _character_classes() -> Bytes:
    """Class of each code point below 65,536; case only below 0x2000, where Unicode is stable."""
    classes = np.zeros(1 << 16, np.uint8)
    by_category = {"Ll": LOWER, "Lu": UPPER, "Lt": UPPER, "Nd": DIGIT}
    for code_point in range(0x2000):
        classes[code_point] = by_category.get(unicodedata.category(chr(code_point)), OTHER)
    for kind, characters in _PUNCTUATION:
        classes[[ord(character) for character in characters]] = kind
    return classes


def _word_table() -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]:
    """Sorted FNV-1a hashes of the words above, also capitalized, and the lists each is in."""
    flags: dict[int, int] = {}
    for kind, words in _WORDS:
        for word in words:
            for spelling in {word, word[0].upper() + word[1:]}:  # any word can open a sentence
                key = _FNV_BASIS
                for byte in spelling.encode():
                    key = (key ^ byte) * _FNV_PRIME % (1 << 64)
                flags[key] = flags.get(key, 0) | kind
    keys = sorted(flags)
    return np.array(keys, np.uint64), np.array([flags[key] for key in keys], np.int64)


_CLASSES = _character_classes()
_STOPS = "\n" + "".join(characters for kind, characters in _PUNCTUATION if kind >= DOT)
_TRIGGERS = np.isin(np.arange(256), [stop.encode()[0] for stop in _STOPS])
_HASHES, _FLAGS = _word_table()
_SEEN = np.isin(np.arange(1 << 14), _HASHES & np.uint64((1 << 14) - 1))  # avoids most searches


def sentence_starts(buffer: Bytes, offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Byte positions in `buffer` where sentences start, sorted and unique.

    Document i is `buffer[offsets[i] : offsets[i + 1] - 1]`, cleaned text followed by one NUL byte.
    Its first byte is a start, an empty document has none, and no document depends on another.
    """
    starts: npt.NDArray[np.int64] = _scan(buffer, offsets)
    return starts


@numba.njit(cache=True, nogil=True)
def _scan(buffer: Bytes, offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    starts = np.empty(len(buffer) // 64 + len(offsets), np.int64)  # a guess, grown below
    count = 0
    for document in range(len(offsets) - 1):
        at, stop = offsets[document], offsets[document + 1] - 1
        begin = at
        while begin < stop:
            if count == len(starts):
                starts = np.concatenate((starts, np.empty(count, np.int64)))
            starts[count] = begin
            count += 1
            first, begin = begin, np.int64(-1)
            while begin < 0:
                while at + 8 <= stop and _is_plain(word_at(buffer, at)):
                    at += 8
                while at < stop and not _TRIGGERS[buffer[U(at)]]:
                    at += 1
                if at >= stop:
                    begin = stop
                elif buffer[at] == 10:
                    at += 1
                    begin = at
                else:
                    at, begin = _boundary(buffer, at, first, stop)
    return starts[:count]


@numba.njit(cache=True, nogil=True)
def _is_plain(word: np.uint64) -> bool:
    """True if eight bytes are ASCII without a byte that may end a sentence."""
    found = word & EVERY_HIGH_BIT
    for ending in (10, 33, 46, 63):  # \n ! . ?
        found |= equal_bytes(word, U(ending) * EVERY_ONE)
    return bool(found == U(0))


@numba.njit(cache=True, nogil=True)
def _boundary(buffer: Bytes, at: int, first: int, stop: int) -> tuple[int, int]:
    """Place to continue the scan at, and start of the next sentence (-1 if none ends at `at`).

    The current sentence starts at `first`; the document ends at `stop`.
    """
    dots, strong, wide, end = 0, False, False, at
    while end < stop:
        kind, length = _class_at(buffer, end, stop)
        if kind < DOT:
            break
        dots += 1 if kind == DOT else 3 * (kind == ELLIPSIS)
        strong = strong or kind == STRONG
        wide = wide or kind == WIDE
        end += length
    if end == at:
        return at + length, -1
    dot = end - 1
    end, closed = _closers(buffer, end, stop)
    if end >= stop:
        return stop, -1
    kind, _ = _class_at(buffer, end, stop)
    if kind != SPACE:
        # "什么?因为": a half-width ? or ! between ideographs needs no space either
        ends = wide or (strong and 0xE3 <= buffer[end] <= 0xE9)
        ends = ends and kind not in (NEWLINE, CONTINUES) and not (closed and kind == PARTICLE)
        return end, end if ends else -1
    head, kind = _head(buffer, end + 1, stop)
    if kind == LOWER and not wide and not _shape(buffer, head, _word_end(buffer, head, stop))[2]:
        return end, -1
    if NEWLINE <= kind <= ELLIPSIS:
        return end, -1
    if dots == 1 and not strong and not wide:
        doubted = _is_doubtful(buffer, dot, first, head, stop, closed)
    else:
        doubted = closed and _is_attributed(buffer, head, stop)
    return end, -1 if doubted else end


@numba.njit(cache=True, nogil=True)
def _closers(buffer: Bytes, at: int, stop: int) -> tuple[int, bool]:
    """Past the quotes, brackets and [1] marks at `at`; whether a quote or mark was among them."""
    closed = False
    while at < stop:
        kind, length = _class_at(buffer, at, stop)
        if kind == CLOSER:
            closed = closed or length == 3  # ” ’ 」 and their like, not ) and ]
        elif kind == QUOTE:  # a quote before a word opens
            if at + length < stop and _class_at(buffer, at + length, stop)[0] <= OPENER:
                break
            closed = True
        elif buffer[at] == 91:  # [
            while length < _LONGEST and at + length < stop and buffer[at + length] not in (10, 93):
                length += 1
            if at + length >= stop or buffer[at + length] != 93:
                break
            closed, length = True, length + 1
        else:
            break
        at += length
    return at, closed


@numba.njit(cache=True, nogil=True)
def _head(buffer: Bytes, at: int, stop: int) -> tuple[int, int]:
    """First character at or after `at` that is not a quote, opening bracket or dash; its class."""
    while at < stop:
        kind, length = _class_at(buffer, at, stop)
        quote = kind == CLOSER and buffer[at] == 0xE2  # ”Hej” opens with ” in some languages
        if not quote and not OPENER <= kind <= SPACE:
            return at, kind
        at += length
    return stop, NEWLINE


@numba.njit(cache=True, nogil=True)
def _is_doubtful(buffer: Bytes, dot: int, first: int, head: int, stop: int, closed: bool) -> bool:
    """True if the period at `dot` only belongs to an abbreviation, initial or enumerator.

    `head` is the character that would open the next sentence; `closed` is whether a quote or
    footnote mark follows the period.
    """
    word = _word_start(buffer, dot, first)
    flags = _flags(buffer, word, dot)
    kind, length = _class_at(buffer, word, dot + 1)
    if flags & NEVER or closed:
        return flags & NEVER != 0
    roman, dotted, _ = _shape(buffer, word, dot)
    single = length == dot - word
    flags &= NUMBER | NUMERAL | TIME | MAY
    if not (flags or roman or dotted or single or word == dot):
        return False
    if (roman or single or word == dot) and _enumerates(buffer, word, dot, first):
        return True
    if single and not _stands_alone(buffer, word, first):
        return False
    next_end = _word_end(buffer, head, stop)
    next_flags = _flags(buffer, head, next_end)
    next_kind, _ = _class_at(buffer, head, stop)
    chained = next_end == head + 1 and next_end < stop and buffer[next_end] == 46  # J. R. R.
    shouted = next_end > head + 1 and 65 <= buffer[head + 1] <= 90  # "U.S. IT" is not "it"
    starter = next_flags & STARTER != 0 and not chained and not shouted
    if single and kind == UPPER:  # not the I of "than I. Then", "World War I. Then"
        pronoun = buffer[word] == 73 and (word < first + 2 or buffer[word - 2] != 46)
        return chained or not (pronoun or starter or next_kind == DIGIT)
    if flags & NUMBER:
        return next_kind == DIGIT
    if flags & NUMERAL:
        return next_kind == DIGIT or next_end == head + 1 or _shape(buffer, head, next_end)[0]
    if flags & TIME:
        return next_flags & DAY != 0
    return (flags == MAY or dotted) and not starter


@numba.njit(cache=True, nogil=True)
def _enumerates(buffer: Bytes, word: int, dot: int, first: int) -> bool:
    """True if "3.", "b." or "IV." opens its sentence."""
    token = word
    while word == dot and token > max(first, dot - 4) and 48 <= buffer[token - 1] <= 57:
        token -= 1
    digits = dot - token if word == dot else 1
    near = token - first <= _LONGEST  # bounds the work where a sentence opens with a ruled line
    return near and 1 <= digits <= 3 and _head(buffer, first, dot)[0] == token


@numba.njit(cache=True, nogil=True)
def _stands_alone(buffer: Bytes, word: int, first: int) -> bool:
    """True if a single letter is a whole word, unlike in "Ann's.", "1980s.", "90 K."."""
    if word == first:
        return True
    if buffer[word - 1] == 32:
        return word - 1 == first or not 48 <= buffer[word - 2] <= 57
    return buffer[word - 1] in (34, 40, 45, 91, 0x98, 0x9C)  # " ( - [ ‘ “


@numba.njit(cache=True, nogil=True)
def _is_attributed(buffer: Bytes, head: int, stop: int) -> bool:
    """True if a name and a verb of speech follow a quoted question or shout: '"Go!" Mary said'."""
    at = head
    for index in range(4):
        end = _word_end(buffer, at, stop)
        flags = _flags(buffer, at, end)
        if flags & SPOKEN:
            return index > 0
        if _class_at(buffer, at, stop)[0] != UPPER:
            return False
        if index == 0 and flags & STARTER and buffer[at] != 73:  # "She said", but not "I said"
            return False
        end += end < stop and buffer[end] == 46
        if end + 1 >= stop or buffer[end] != 32:
            return False
        at = end + 1
    return False


@numba.njit(cache=True, nogil=True)
def _shape(buffer: Bytes, start: int, end: int) -> tuple[bool, bool, bool]:
    """True each if a word is a Roman numeral, is dotted like "U.S", has a capital inside."""
    roman, dotted, inner = end > start, end >= start + 3, False
    for at in range(start, end):
        byte = buffer[at]
        roman = roman and byte in (73, 86, 88, 76, 67)  # I V X L C
        dotted = dotted and (byte == 46) == ((at - start) % 2 == 1)
        inner = inner or (at > start and 65 <= byte <= 90)
    return roman, dotted, inner


@numba.njit(cache=True, nogil=True)
def _word_start(buffer: Bytes, end: int, first: int) -> int:
    """Start of the letters and inner periods that end at `end`."""
    start = end
    while start > first:
        before = start - 1
        while before > first and buffer[before] & 0xC0 == 0x80:
            before -= 1
        if _class_at(buffer, before, end)[0] not in (LOWER, UPPER, DOT):
            break
        start = before
    return start


@numba.njit(cache=True, nogil=True)
def _word_end(buffer: Bytes, start: int, stop: int) -> int:
    """End of the letters that start at `start`, or of the first few of them."""
    end = start
    while end < stop and end - start < _LONGEST:
        kind, length = _class_at(buffer, end, stop)
        if kind not in (LOWER, UPPER):
            break
        end += length
    return end


@numba.njit(cache=True, nogil=True)
def _flags(buffer: Bytes, start: int, end: int) -> int:
    """The word lists with buffer[start:end], as bits; only the first letter's case matters."""
    key = np.uint64(_FNV_BASIS)
    for at in range(start, min(end, start + _LONGEST)):
        byte = np.uint64(buffer[at])
        lowered = byte + np.uint64(32) if at > start and 65 <= byte <= 90 else byte
        key = (key ^ lowered) * np.uint64(_FNV_PRIME)
    if not _SEEN[key & np.uint64((1 << 14) - 1)]:
        return 0
    slot = np.searchsorted(_HASHES, key)
    found = slot < len(_HASHES) and _HASHES[slot] == key
    return np.int64(_FLAGS[slot]) if found else 0


@numba.njit(cache=True, nogil=True)
def _class_at(buffer: Bytes, at: int, stop: int) -> tuple[int, int]:
    """Class and length in bytes of the character at `at`."""
    byte = np.int64(buffer[at])
    if byte < 0x80:
        return np.int64(_CLASSES[byte]), 1
    if byte < 0xE0 and at + 1 < stop:
        return np.int64(_CLASSES[(byte & 31) << 6 | buffer[at + 1] & 63]), 2
    if byte < 0xF0 and at + 2 < stop:
        point = (byte & 15) << 12 | np.int64(buffer[at + 1] & 63) << 6 | buffer[at + 2] & 63
        return np.int64(_CLASSES[point]), 3
    return OTHER, min(4, stop - at)
