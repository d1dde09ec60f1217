"""Language variants: `-{zh-hans:计算机;zh-hant:電腦}-` in wikis that show one text in two scripts.

A reader sees the text of one variant; here it is the first that is written. As in MediaWiki's
ConverterRule:

1. `-{A}-` is A as it is; so is `-{R|A}-`, and `-{zh-hans;zh-hant|A}-`.
2. `-{zh-hans:A;zh-hant:B}-` is A, also with the flags A, S and D. Of D, which describes the rule,
   the text remains and the names of the variants are lost.
3. A rule in one direction, `-{A=>zh-cn:B}-`, is B.
4. Flags H, - and T without others show nothing, and neither does N, the name of a variant.
5. Text that is not a list of rules is shown as it is.

Only wikis of the languages in `VARIANTS` know this markup; in others it is text.
"""

from __future__ import annotations

import re
from functools import cache

from pipeline.ingest.wikitext.holes import HOLE

VARIANTS: dict[str, str] = {
    "ban": "ban ban-bali ban-x-dharma ban-x-palmleaf ban-x-pku",
    "crh": "crh crh-cyrl crh-latn crh-ro",
    "gan": "gan gan-hans gan-hant",
    "iu": "iu ike-cans ike-latn",
    "kk": "kk kk-cyrl kk-latn kk-arab kk-kz kk-tr kk-cn",
    "ku": "ku ku-arab ku-latn",
    "mni": "mni mni-beng",
    "sh": "sh sh-latn sh-cyrl",
    "shi": "shi shi-tfng shi-latn",
    "sr": "sr sr-ec sr-el sr-cyrl sr-latn",
    "tg": "tg tg-latn",
    "tly": "tly tly-cyrl",
    "uz": "uz uz-latn uz-cyrl",
    "wuu": "wuu wuu-hans wuu-hant",
    "yue": "yue yue-hans yue-hant",
    "zgh": "zgh zgh-latn",
    "zh": "zh zh-hans zh-hant zh-cn zh-hk zh-mo zh-my zh-sg zh-tw",
}
"""Variants of the languages that MediaWiki converts (includes/language/converters)."""

_FLAGS = frozenset("ATRD-HNSW") | {"писмо", "pismo", "реч", "reč", "ријеч", "riječ"}
# A template ends before a rule does: "}}}-". "-{{" is a hyphen and a template.
_MARK = re.compile(r"<(nowiki|pre)\b[^<>]*(?<!/)>|-\{(?!\{)|\{\{|\}\}|\}-", re.IGNORECASE)
_ENDS = {name: re.compile(rf"</{name}\s*>", re.IGNORECASE) for name in ("nowiki", "pre")}
_ENTITY = re.compile(r"&#?\w{1,31}\Z")
_MOST_NESTED = 10  # LanguageConverter::$mMaxDepth


def first_variants(wikitext: str, language: str) -> str:
    """The wikitext with its first variant in place of each rule; takes linear time.

    A rule that shows nothing leaves a mark for `close_holes`.
    """
    variants = _variants(language)
    if not variants or "-{" not in wikitext:
        return wikitext
    pieces: list[str] = []
    stack: list[tuple[str, int]] = []  # open marks, and the number of each one's piece
    depth = at = 0
    endless: set[str] = set()
    while found := _MARK.search(wikitext, at):
        mark, open_mark = found[0], stack[-1][0] if stack else ""
        pieces.append(wikitext[at : found.start()])
        at = found.end()
        if found[1]:
            name = found[1].lower()
            end = None if name in endless else _ENDS[name].search(wikitext, at)
            # The rest of the page was searched in vain: once per element, or time is quadratic.
            if end is None:
                endless.add(name)
            at = end.end() if end else at
            mark = wikitext[found.start() : at]
        elif mark == "{{" or (mark == "-{" and depth < _MOST_NESTED):
            stack.append((mark, len(pieces)))
            depth += mark == "-{"
        elif mark == "}}" and open_mark != "{{":
            mark, at = "}", at - 1  # the second brace may end a rule
        elif mark == "}}":
            stack.pop()
        elif mark == "}-" and open_mark == "-{":
            _, start = stack.pop()
            depth -= 1
            mark = _show("".join(pieces[start + 1 :]), variants) or HOLE
            del pieces[start:]
        pieces.append(mark)
    return "".join([*pieces, wikitext[at:]])


@cache
def _variants(language: str) -> frozenset[str]:
    code = language.lower()
    lists = (codes.split() for codes in VARIANTS.values())
    return next((frozenset(codes) for codes in lists if code in codes), frozenset())


def _show(rule: str, variants: frozenset[str]) -> str:
    """The text that a reader sees of the content of a rule."""
    before, bar, after = rule.partition("|")
    flags = {flag.strip() for flag in before.split(";")} - {""}
    if not bar or not all(flag in _FLAGS or flag.lower() in variants for flag in flags):
        flags, after = set(), rule  # 5. the bar was part of the text
    if "R" in flags:  # 1.
        return after
    if flags & {"N", "-"} or flags == {"T"} or ("H" in flags and "D" not in flags):  # 4.
        return ""
    return after if flags - _FLAGS else _first_of(after, variants)


def _first_of(text: str, variants: frozenset[str]) -> str:
    """The first text of a list of rules; the text itself if it is not such a list."""
    rules: list[list[str]] = []
    for piece in text.replace("=&gt;", "=>").split(";"):
        is_rule = not piece.strip() or _target(piece)[1] in variants
        if not rules or (is_rule and not _ENTITY.search(rules[-1][-1])):
            rules.append([piece])
        else:
            rules[-1].append(piece)  # a semicolon of the text or of an entity
    both_ways: list[str] = []
    one_way: list[str] = []
    for rule in rules:
        _, colon, shown = ";".join(rule).partition(":")
        is_one_way, variant = _target(rule[0])
        if not colon:
            continue
        if variant not in variants:
            return text  # 5.
        (one_way if is_one_way else both_ways).append(shown.strip())
    texts = both_ways + one_way  # 2. before 3.
    return next(filter(None, texts), "") if texts else text


def _target(rule: str) -> tuple[bool, str]:
    """True if a rule is in one direction, and its variant; empty if it is not a rule."""
    name, colon, _ = rule.partition(":")
    _, arrow, target = name.rpartition("=>")
    return bool(arrow), target.strip().lower() if colon else ""
