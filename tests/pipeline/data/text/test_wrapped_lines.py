"""Hard-wrapped lines: the same text wrapped and not wrapped."""

import random
import textwrap
import unicodedata
from collections.abc import Iterator

import pytest

from pipeline.data.text.cleaning import clean
from pipeline.data.text.sentences import sentence_starts

# The first article of the Universal Declaration of Human Rights.
WITH_SPACES = {
    "English": "All human beings are born free and equal in dignity and rights. They are endowed "
    "with reason and conscience and should act towards one another in a spirit of brotherhood.",
    "Russian": "Все люди рождаются свободными и равными в своём достоинстве и правах. Они "
    "наделены разумом и совестью и должны поступать в отношении друг друга в духе братства.",
    "Greek": "Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια και τα δικαιώματα. "
    "Είναι προικισμένοι με λογική και συνείδηση, και οφείλουν να συμπεριφέρονται καλά.",
    "Hebrew": "כל בני האדם נולדו בני חורין ושווים בערכם ובזכויותיהם. כולם חוננו בתבונה ובמצפון, "
    "לפיכך חובה עליהם לנהוג איש ברעהו ברוח של אחווה.",
    "Arabic": "يولد جميع الناس أحرارًا متساوين في الكرامة والحقوق. وقد وهبوا عقلاً وضميرًا وعليهم "
    "أن يعامل بعضهم بعضًا بروح الإخاء.",
    "Hindi": "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता और समानता प्राप्त है। "
    "उन्हें बुद्धि और अन्तरात्मा की देन प्राप्त है और परस्पर उन्हें भाईचारे के भाव से बर्ताव करना चाहिए।",
    "Korean": "모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다. 인간은 "
    "천부적으로 이성과 양심을 부여받았으며 서로 형제애의 정신으로 행동하여야 한다.",
}
WIDE = {
    "Chinese": "人人生而自由，在尊严和权利上一律平等。"
    "他们赋有理性和良心，并应以兄弟关系的精神相对待。",
    "Japanese": "すべての人間は、生まれながらにして自由であり、かつ、尊厳と権利とについて"
    "平等である。人間は、理性と良心とを授けられており、互いに同胞の精神をもって行動しなければならない。",
}
NARROW = {
    "Thai": "มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ ต่างมีเหตุผลและมโนธรรม "
    "และควรปฏิบัติต่อกันด้วยเจตนารมณ์แห่งภราดรภาพ ",
    "Lao": "ມະນຸດເກີດມາມີສິດເສລີພາບ ແລະ ສະເໝີໜ້າກັນໃນທາງກຽດຕິສັກ ແລະ ທາງສິດດ້ວຍມະນຸດມີສະຕິສຳປັດຊັນຍະ"
    "ແລະຕ້ອງປະພຶດຕໍ່ກັນໃນທາງພີ່ນ້ອງ ",
    "Khmer": "មនុស្សទាំងអស់ កើតមកមានសេរីភាព និងសមភាព ក្នុងផ្នែកសេចក្ដីថ្លៃថ្នូរនិងសិទ្ធិ។ មនុស្ស "
    "មានវិចារណញ្ញាណនិងសតិសម្បជញ្ញៈជាប់ពីកំណើត ហើយគប្បីប្រព្រឹត្ដចំពោះគ្នាទៅវិញទៅមក។ ",
    "Burmese": "လူတိုင်းသည် တူညီလွတ်လပ်သော ဂုဏ်သိက္ခာဖြင့် လည်းကောင်း၊ တူညီလွတ်လပ်သော "
    "အခွင့်အရေးများဖြင့် လည်းကောင်း၊ မွေးဖွားလာသူများဖြစ်သည်။ ",
    "Tibetan": "འགྲོ་བ་མིའི་རིགས་རྒྱུད་ཡོངས་ལ་སྐྱེས་ཙམ་ཉིད་ནས་ཆེ་མཐོངས་དང་། ཐོབ་ཐང་གི་རང་དབང་འདྲ་མཉམ་དུ་ཡོད་ལ། "
    "ཁོང་ཚོར་རང་བྱུང་གི་བློ་རྩལ་དང་བསམ་ཚུལ་བཟང་པོ་འདོན་པའི་འོས་བབས་ཀྱང་ཡོད། ",
}


def columns(text: str) -> int:
    """Columns that a terminal needs."""
    return sum(
        0
        if unicodedata.category(character) in ("Mn", "Me")
        else 1 + (unicodedata.east_asian_width(character) in "WF")
        for character in text
    )


def wrapped_at_spaces(text: str, width: int) -> str:
    lines = [""]
    for word in text.split(" "):
        if lines[-1] and columns(f"{lines[-1]} {word}") > width:
            lines.append(word)
        else:
            lines[-1] += f" {word}" if lines[-1] else word
    return "\n".join(lines)


def wrapped_anywhere(text: str, width: int, keep_marks: str = "") -> str:
    """Cut between characters, but not before a combining mark or one of `keep_marks`."""
    lines = [""]
    for character in text:
        is_mark = unicodedata.category(character)[0] == "M" or character in keep_marks
        if columns(lines[-1] + character) > width and not is_mark:
            lines.append("")
        lines[-1] += character
    return "\n".join(lines)


def layouts(script: str) -> Iterator[tuple[str, list[str], str]]:
    """Name, paragraphs, and these wrapped."""
    if script in WITH_SPACES:
        paragraphs = [" ".join([WITH_SPACES[script]] * size) for size in (5, 3, 4)]
        for width in (60, 66, 72, 78):
            yield (
                f"{width} columns",
                paragraphs,
                "\n\n".join(wrapped_at_spaces(one, width) for one in paragraphs),
            )
            yield (
                f"{width} characters",
                paragraphs,
                "\n\n".join(
                    textwrap.fill(one, width, break_on_hyphens=False) for one in paragraphs
                ),
            )
            whole = " ".join(paragraphs * 2)
            yield f"{width}, no blank line", [whole], wrapped_at_spaces(whole, width)
    else:
        text = (WIDE | NARROW)[script]
        paragraphs = [(text * size).strip() for size in (5, 3, 4)]
        for width in range(26, 81, 2) if script in WIDE else (60, 61, 66, 72, 78):
            yield (
                f"{width} columns",
                paragraphs,
                "\n\n".join(wrapped_anywhere(one, width) for one in paragraphs),
            )
            yield (
                f"{width} with hanging marks",
                paragraphs,
                "\n\n".join(wrapped_anywhere(one, width, "，、。") for one in paragraphs),
            )
            yield (
                f"{width}, indented",
                paragraphs,
                "\n".join("\u3000\u3000" + wrapped_anywhere(one, width) for one in paragraphs),
            )
            yield f"{width}, no blank line", [text * 9], wrapped_anywhere((text * 9).strip(), width)


@pytest.mark.parametrize("script", [*WITH_SPACES, *WIDE, *NARROW])
def test_wrapped_and_not_wrapped_text_are_the_same(script: str) -> None:
    """Also their sentences."""
    for name, paragraphs, wrapped in layouts(script):
        plain, joined = clean(["\n\n".join(paragraphs)]), clean([wrapped])
        assert joined.texts() == plain.texts(), name
        found = [sentence_starts(one.buffer, one.offsets).tolist() for one in (plain, joined)]
        assert found[0] == found[1], name
        assert clean(joined.texts()).texts() == joined.texts()


def test_thai_that_is_wrapped_at_its_spaces_keeps_them() -> None:
    rng = random.Random(0)
    words = [word for word in NARROW["Thai"].split() for _ in range(9)]
    paragraph = " ".join(rng.sample(words, len(words)))
    wrapped = "\n\n".join([wrapped_at_spaces(paragraph, 70)] * 3)
    assert clean([wrapped]).texts() == ["\n".join([paragraph] * 3)]


def test_short_paragraphs_without_spaces_are_not_joined() -> None:
    """Dialogue, headlines, verse of lines of one length; also Cyrillic verse in stanzas."""
    rng = random.Random(0)
    han = [chr(code) for code in range(0x4E00, 0x4F00)]

    def line(shortest: int, longest: int) -> str:
        return "".join(rng.choices(han, k=rng.randint(shortest, longest)))

    for lines in (
        [f"“{line(4, 40)}。”" for _ in range(60)],
        [line(8, 24) for _ in range(60)],
        [f"{line(7, 7)}，{line(7, 7)}。" for _ in range(60)],
        [line(7, 7) for _ in range(60)],
        [line(9, 9) for _ in range(8)] + [f"{line(50, 90)}。" for _ in range(4)],
    ):
        for ending in ("\n", "\n\n"):
            text = "\n".join(lines[:10]) + ending + "\n".join(lines[10:])
            assert clean([text]).texts() == ["\n".join(lines)]
    verse = "\n\n".join(["Мой дядя самых честных правил,\nКогда не в шутку занемог,"] * 9)
    assert clean([verse]).texts() == [verse.replace("\n\n", "\n")]


@pytest.mark.parametrize("width", [90, 97, 100])
def test_lines_much_longer_than_the_widest_that_are_joined(width: int) -> None:
    """They are paragraphs, so the other lines are, too."""
    rng = random.Random(0)
    thai = [chr(code) for code in range(0x0E01, 0x0E2F)]
    sizes = [width] * 12 + [width + 5] * 4
    lines = ["".join(rng.choices(thai, k=size - 1)) + "\u0e01."[size > width] for size in sizes]
    assert clean(["\n".join(lines)]).texts() == ["\n".join(lines)]
    wrapped = lines[:12]
    assert clean(["\n".join(wrapped)]).texts() == ["".join(wrapped)]


def test_where_a_line_break_is_a_space() -> None:
    """Between Latin and Han it is, beside wide punctuation it is not."""
    text = WIDE["Chinese"] * 3
    for end, start, joined in (
        ("语", "word", "语 word"),
        ("word", "语", "word 语"),
        ("语，", "word", "语，word"),
        ("word", "（语", "word（语"),
        ("“语”", "语", "“语”语"),
        ("2020", "年", "2020 年"),
    ):
        filler = text[: 40 - len(end)]
        wrapped = f"{wrapped_anywhere(text, 80)[:82]}\n{filler}{end}\n{start}{text[:30]}\n\n"
        [found] = clean([wrapped + wrapped_anywhere(text * 2, 80)]).texts()
        assert f"{filler}{joined}{text[:30]}" in found, (end, start)


def test_text_wrapped_without_blank_lines_is_joined_where_lines_are_full() -> None:
    rng = random.Random(1)
    words = ["a" * rng.randint(1, 9) for _ in range(600)]
    paragraphs = [" ".join(words[start : start + 200]) for start in (0, 200, 400)]
    text = "\n".join(textwrap.fill(paragraph, 70) for paragraph in paragraphs)
    assert len(text.split("\n")) > 45
    assert clean([text]).texts()[0].split("\n") == paragraphs
