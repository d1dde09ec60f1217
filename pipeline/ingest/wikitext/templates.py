"""Templates that stand for words in a sentence, and the words.

A dump of articles does not contain the definitions of templates, so only these are expanded:
most of them are of the English Wikipedia.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from pipeline.ingest.wikitext.holes import HOLE

RAISED = str.maketrans("+−-0123456789", "⁺⁻⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
"""Raised figures for plain ones."""

_UNITS = {
    "km2": "km²", "m2": "m²", "sqmi": "sq mi", "sqft": "sq ft", "C": "°C", "F": "°F", "m3": "m³",
    "km3": "km³", "ft2": "sq ft", "cuft": "cu ft", "kg/m3": "kg/m³", "mi2": "sq mi", "-": "–",
    "m/s2": "m/s²", "in2": "sq in", "x": "×", "acre": "acres",
}  # fmt: skip
"""Unit codes that `convert` does not write unchanged."""
_JOINING = frozenset({"to", "and", "-", "–", "x", "by", "or", "+/-", "×", "to(-)"})
_NUMBER = re.compile(r"[−-]?[\d.,/+]+(?:e[+-]?\d+)?$")

_CONSTANTS = {
    "·": "·", "•": "•", "ndash": "–", "en dash": "–", "spaced ndash": " – ", "snd": " – ",
    "spnd": " – ", "mdash": "—", "em dash": "—", "'": "'", "'s": "'s", '"': '"', "nbsp": " ",
    "mdashb": "—", "' \"": "'\"", "\" '": "\"'",
    "spaces": " ", "space": " ", "pipe": "|", "!": "|", "=": "=", "shy": "", "zwj": "\u200d",
    "dot": "·", "bullet": "•", "times": "×", "plus-minus": "±", "thinsp": " ", "hair space": " ",
}  # fmt: skip
_FIRST = frozenset(
    {
        "nowrap", "nobr", "small", "smaller", "big", "larger", "sc", "smallcaps", "nobold", "em",
        "strong", "vanchor", "visible anchor", "abbr", "tooltip", "keypress", "key", "angbr",
        "flag", "flagcountry", "flagu", "dts", "nts", "quote", "blockquote", "cquote", "bquote",
        "quotation", "nihongo", "sic", "not a typo", "proper name", "noitalic", "ill",
        "interlanguage link", "link-interwiki", "ship", "script", "unicode", "polytonic", "tq",
        "xt", "ipa", "mvar", "math", "linktext", "wikt-lang", "oldstyledate", "underline", "italic",
        "ussfooter", "hlist", "plainlist", "longitem", "native name", "asiantitle", "wdl", "bigger",
        "sup", "sub",
    }
)  # fmt: skip
"""Templates that show their first argument."""
_QUOTED = ("text", "quote", "content")
"""Names of the quoted argument, if it is named."""
_LAST = frozenset(
    {
        "lang", "transl", "transliteration", "rtl-lang", "color", "font color", "fontcolor",
        "columns-list",
    }
)  # fmt: skip
"""Templates that show their last argument."""


def constant(name: str) -> str | None:
    """The text of a template that always shows the same; None if it is another."""
    return _CONSTANTS.get(name)


def shows_words(name: str) -> bool:
    """True if a template, named in lower case, shows its arguments."""
    return (
        name in _FIRST
        or name in _LAST
        or name in TEMPLATES
        or name == "val"
        or name.startswith("lang-")
    )


def expand_template(name: str, named: dict[str, str]) -> str:
    """The text that such a template shows. named: its arguments' text, by name or number."""
    values = [named[str(n)] for n in range(1, len(named) + 1) if str(n) in named]
    values = values or [named[key] for key in _QUOTED if key in named]  # {{quote|text=...}}
    if not values:
        return ""
    if name == "val" or name in TEMPLATES:  # these look at what they are given
        values = [value.replace(HOLE, "").strip() for value in values]
        return _value(values, named) if name == "val" else TEMPLATES[name](values)
    return values[-1] if name in _LAST else values[0]


def _pick_given(values: list[str]) -> str:
    """The given measure, not the converted one: 5 km; 5 to 10 km; 6 ft 2 in."""
    words = [values[0]]
    index = 1
    while index + 1 < len(values) and values[index] in _JOINING:
        words += [values[index].removesuffix("(-)"), values[index + 1]]
        index += 2
    if index < len(values):
        words.append(_UNITS.get(values[index], values[index]))
        index += 1
    # A second measure of the same length, as in {{convert|6|ft|2|in}}.
    if index + 1 < len(values) and _NUMBER.match(values[index]) and index == 2:
        words += [values[index], _UNITS.get(values[index + 1], values[index + 1])]
    return " ".join(words)


_MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September",
           "October", "November", "December")  # fmt: skip


def _as_of(values: list[str]) -> str:
    year, *rest = values
    month = int(rest[0]) if rest and rest[0].isdecimal() and 1 <= int(rest[0]) <= 12 else 0
    if not month:
        return f"As of {year}"
    day = f"{rest[1]} " if rest[1:] and rest[1].isdecimal() else ""
    return f"As of {day}{_MONTHS[month - 1]} {year}"


def _value(values: list[str], named: dict[str, str]) -> str:
    """A number with its error, power of ten and unit: 6.24 ± 0.01 ×10¹⁸ C."""
    power = named.get("e", "")
    words = [" ± ".join(values[:2]) + (f"×10{power.translate(RAISED)}" if power else "")]
    return " ".join([*words, *filter(None, (named.get(key) for key in ("u", "ul", "up")))])


def _fraction(values: list[str]) -> str:
    if len(values) == 1:
        return f"1/{values[0]}"
    return "/".join(values[-2:]) if len(values) == 2 else f"{values[0]} {values[1]}/{values[2]}"


TEMPLATES: dict[str, Callable[[list[str]], str]] = {
    "convert": _pick_given,
    "cvt": _pick_given,
    "as of": _as_of,
    "c.": lambda values: f"c. {'–'.join(values[:2])}",
    "circa": lambda values: f"c. {'–'.join(values[:2])}",
    "fl.": lambda values: f"fl. {'–'.join(values[:2])}",
    "reign": lambda values: f"r. {'–'.join(values[:2])}",
    "frac": _fraction,
    "sfrac": _fraction,
    "chem": "".join,
    "chem2": "".join,
    "unbulleted list": "\n\n".join,
    "ordered list": "\n\n".join,
    "hms": lambda values: f"HMS {values[0]}",
    "uss": lambda values: f"USS {values[0]}",
}
"""Templates that do not simply show one of their arguments."""
