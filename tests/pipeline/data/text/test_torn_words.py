"""Words split at line ends."""

import pytest

from pipeline.data.text.cleaning import clean

LINE = "It was the best of times, it was the worst of times, it was the age"
TEARS = "He con-\ntemplated the Bath-\nroom, an ob-\nserver with-\nout pro-\nfit; "
TEARS += "dif-\n\nferently, too."
SEEN = "Contemplated observer without profit differently bath room."


def in_wrapped_text(text: str) -> str:
    """What becomes of it in a hard-wrapped document."""
    lines = "\n".join([LINE] * 60)
    [found] = clean([f"{lines}\n\n{text}\n\n{lines}"]).texts()
    joined = lines.replace("\n", " ")
    return found.removeprefix(f"{joined}\n").removesuffix(f"\n{joined}")


def test_split_words_are_joined_if_the_text_has_them_joined() -> None:
    """Fragments only in a text with split words; compounds never."""
    whole = "He contemplated the Bath-room, an observer without profit; differently, too."
    for hyphen in "-\u2010":
        text = f"{TEARS} {SEEN}".replace("-", hyphen)
        assert in_wrapped_text(text) == f"{whole} {SEEN}".replace("-", hyphen)
    assert in_wrapped_text("CON-\nTEMPLATED, contemplated") == "CONTEMPLATED, contemplated"
    torn = " a quag-\nmire and a moun-\ntain"
    assert in_wrapped_text(f"{TEARS} {SEEN}{torn}").endswith(" a quagmire and a mountain")
    assert in_wrapped_text(f"{TEARS} {SEEN}{torn} moun").endswith(" moun-tain moun")
    russian = "Пол-\nитика это политика, человек-\nамфибия и человек-амфибия"
    expected = "Политика это политика, человек-амфибия и человек-амфибия"
    assert in_wrapped_text(russian) == expected


@pytest.mark.parametrize(
    "text",
    [
        "a quag-\nmire and a moun-\ntain",
        "the well-\nknown man is well-known, wellknown not",
        "mother-in-\nlaw; inlaw",
        "a matter-\nof-fact way; matterof",
    ],
)
def test_compounds_keep_their_hyphens(text: str) -> None:
    assert in_wrapped_text(text) == text.replace("\n", "")


@pytest.mark.parametrize("text", ["Anglo-\nSaxons; anglosaxons", "said--\nand; saidand", "12-\n14"])
def test_short_lines_that_do_not_end_inside_words_stay(text: str) -> None:
    assert in_wrapped_text(text) == text


def test_a_soft_hyphen_at_the_end_of_a_line_joins_in_any_text() -> None:
    for end in ("\n", "\r\n", " \n  ", "\u00ad\n"):
        assert clean([f"Die Po\u00ad{end}litik ist\nda."]).texts() == ["Die Politik ist\nda."]
    for text in ("Po\u00ad\n\nlitik", "Po \u00ad\nlitik", "1\u00ad\n2"):
        assert clean([text]).texts() == ["\n".join(text.replace("\u00ad", "").split())]


def test_words_are_whole_in_text_that_keeps_its_lines() -> None:
    for text, expected in (
        (
            TEARS + SEEN.lower(),
            "He contemplated\nthe Bath-\nroom, an observer\nwithout\nprofit;\ndifferently,\ntoo."
            + SEEN.lower(),
        ),
        ("con-\ntemplate; contemplate", "contemplate;\ncontemplate"),
        ("con-\ntemplate it", "con-\ntemplate it"),
    ):
        assert clean([text]).texts() == [expected]
        assert clean([expected]).texts() == [expected]
