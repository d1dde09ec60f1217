"""The same page in any encoding, under any label, is the same text."""

import itertools

import pytest

from pipeline.ingest.encodings.decoding import Decoded, decode_page

TEXTS = {
    "ja": "市議会は火曜日、冬の間は橋を閉鎖することを決めた。住民は誰も意見を聞かれていない。",
    "zh": "市议会星期二决定，冬天关闭这座桥，没有一位居民被征求过意见。",
    "zh-tw": "市議會星期二決定，冬天關閉這座橋，沒有一位居民被徵求過意見。",
    "ko": "시의회는 화요일에 겨울 동안 다리를 폐쇄하기로 결정했으며, 주민들의 의견은 듣지 않았다.",
    "ru": "Совет города решил во вторник закрыть мост на зиму, и никто из жителей не был опрошен.",
    "el": "Το συμβούλιο της πόλης αποφάσισε την Τρίτη να κλείσει τη γέφυρα για τον χειμώνα.",
    "fr": "Le conseil a décidé mardi de fermer le pont pour l’hiver ; à Nîmes, pas d’été.",
    "de": "Der Rat hat beschlossen, die Brücke über den Winter zu schließen – „niemand“ rief.",
}
ENCODINGS = {
    # Python's name -> what the page calls it
    "ja": {"cp932": "Shift_JIS", "euc_jp": "x-euc-jp", "iso2022_jp": "ISO-2022-JP"},
    "zh": {"gb18030": "gb2312", "gbk": "cp936"},
    "zh-tw": {"big5hkscs": "Big5"},
    "ko": {"cp949": "ks_c_5601-1987"},
    "ru": {"cp1251": "windows-1251", "koi8_r": "KOI8-R", "iso8859_5": "iso-8859-5"},
    "el": {"cp1253": "windows-1253"},
    "fr": {"cp1252": "latin1"},
    "de": {"cp1252": "iso-8859-1"},
}
WIDE = {"utf-8": "utf8", "utf-16": "utf-16", "utf-16-le": "utf-16", "utf-16-be": "utf-16be"}


def page(text: str, label: str = "") -> str:
    meta = f'<meta charset="{label}">' if label else ""
    return f"<!DOCTYPE html><html><head>{meta}<title>x</title></head><body><p>{text}</p></body>"


def decoded(body: bytes, header: str) -> Decoded:
    found = decode_page(body, f"text/html; charset={header}" if header else "text/html")
    assert found is not None
    return found


@pytest.mark.parametrize("language", TEXTS)
def test_wrong_and_missing_labels(language: str) -> None:
    """By the bytes alone; by the page's own label; and whatever of both is wrong."""
    for encoding, label in (ENCODINGS[language] | WIDE).items():
        wrong = ("ISO-8859-1", "windows-1252", "utf-8", "none-such")
        labels = ("", label, f' "{label.upper()}" ', *wrong)
        for header, own in itertools.product(labels, (label, "", "utf-8", "iso-8859-1")):
            markup = page(TEXTS[language], own)
            found = decoded(markup.encode(encoding), header)
            assert found.text == markup, (encoding, header, own)
    # one bad byte of UTF-8
    headers = ("utf-8", "ISO-8859-1", "Shift_JIS", "")
    for header, own in itertools.product(headers, ("utf-8", "ISO-8859-1", "")):
        before, after = page(TEXTS[language], own), "<p>end</p>"
        found = decoded(before.encode() + b" \xe9 " + after.encode(), header)
        assert found.text == f"{before} \ufffd {after}", (header, own)


def test_ways_to_declare() -> None:
    """Of text that is too short to tell by itself."""
    for declared in (
        '<meta charset={}>', "<META  CHARSET = '{}' />", '<meta name=x charset=" {} ">',
        '<meta http-equiv="Content-Type" content="text/html; charset={}">',
        '<?xml version="1.0" encoding="{}"?>', "<?xml version='1.0' encoding='{}' ?>",
    ):  # fmt: skip
        for label, encoding, text in (("EUC-KR", "cp949", "다리와"), ("KOI8-R", "koi8_r", "Мост")):
            markup = f"{declared.format(label)}<p>{text}</p>"
            for header in ("", "ISO-8859-1", "utf-8"):
                assert decoded(markup.encode(encoding), header) == Decoded(markup, bool(header))


def test_labels_are_what_browsers_take_them_for() -> None:
    """Latin-1 is Windows-1252, GB 2312 is GB 18030, and Shift_JIS has the characters of NEC."""
    for label, encoding, text in (
        ("latin-1", "cp1252", "« L’été » – 3 €"), ("gb2312", "gb18030", "朱镕基㐀"),
        ("x-sjis", "cp932", "①市議会は"), ("tis-620", "cp874", "สะพาน…"),
        ("iso-8859-9", "cp1254", "Köprü “kapalı”"), ("euc-kr", "cp949", "똠방각하"),
    ):  # fmt: skip
        assert decoded(text.encode(encoding), label) == Decoded(text, False)
    # the server is believed where nothing is damaged
    text = "Le pont de Nîmes est fermé."
    for own in ("windows-1251", "Shift_JIS", "utf-8"):
        markup = page(text, own)
        assert decoded(markup.encode("cp1252"), "windows-1252") == Decoded(markup, False)
    # one byte that Windows-1252 does not have is no reason to guess
    assert decoded(text.encode("cp1252") + b" \x81", "latin-1").text == f"{text} \ufffd"
    assert decoded("Ñandú ÀÉÈÙ".encode("cp1252"), "latin-1").text == "Ñandú ÀÉÈÙ"
    # overruled labels are told from right and missing ones
    russian, plain = TEXTS["ru"], "Nothing beyond ASCII."
    for text, encoding, header, own, expected in (
        (russian, "utf-8", "utf-8", "", False), (russian, "utf-8", "", "", False),
        (russian, "utf-8", "latin-1", "utf-8", True), (russian, "cp1251", "utf-8", "", True),
        (russian, "cp1251", "", "utf-8", True), (russian, "cp1251", "no-such", "cp1251", False),
        (russian, "utf-8-sig", "utf-8", "", False), (russian, "utf-16", "utf-16", "", False),
        (plain, "ascii", "shift_jis", "utf-8", False), (plain, "ascii", "", "", False),
    ):  # fmt: skip
        found = decoded(page(text, own).encode(encoding), header)
        assert found == Decoded(page(text, own), expected), (encoding, header, own)
    # binary data is no text
    assert decode_page(bytes(range(64)) * 32, "text/html") is None
    assert decode_page(b"<p>" + b"\0" * 100, "text/html; charset=utf-8") is None
