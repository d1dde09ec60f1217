"""A few damaged bytes leave UTF-8 what it is; other encodings are not taken for it."""

from pipeline.ingest.encodings.utf import nearly_utf8, wide_encoding


def test_wide_encodings_without_a_mark() -> None:
    """Greek is written characters in the wrong order of bytes, too."""
    text = "Η πόλη κλείνει τη γέφυρα ως το 2026."
    for encoding in ("UTF-16-LE", "UTF-16-BE", "UTF-32-LE", "UTF-32-BE"):
        assert wide_encoding(text.encode(encoding)) == encoding


def test_damaged_bytes_cost_themselves_alone_and_other_encodings_are_not_nearly_utf8() -> None:
    whole = "Le garçon a mangé à Nîmes, là où l’été est très sec."
    assert nearly_utf8(whole.encode()) == whole
    assert nearly_utf8(whole.encode() + b" \xe9 \xff") == whole + " \ufffd \ufffd"
    assert nearly_utf8(b"plain") == "plain"
    for encoding, text in (
        ("latin-1", "Le garçon a mangé à Nîmes."),
        ("latin-1", "In Latin-1, “é” of UTF-8 is shown as Ã©, and that is what a garçon saw."),
        ("gbk", "联通市议会星期二决定，冬天关闭这座桥。"),
        ("tis-620", "สภาเมืองมีมติเมื่อวันอังคารให้ปิดสะพานในช่วงฤดูหนาว"),
        ("euc-jp", "ハンカクカタカナのテキストです。市議会は火曜日に決めた。"),
        ("koi8-r", "Совет города решил закрыть мост."),
    ):
        assert nearly_utf8(text.encode(encoding, "replace")) is None, encoding
