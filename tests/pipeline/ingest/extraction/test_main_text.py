"""The main text of pages, without what surrounds it."""

from pipeline.ingest.extraction.main_text import read_page, read_plain
from tests.pipeline.ingest.web_archive import NAVIGATION, SENTENCES, page


def blocks(markup: str) -> list[str]:
    return read_page(markup).text.split("\n\n")


def test_a_sentence_is_prose_and_a_menu_is_not_in_every_script() -> None:
    for sentence in (
        "สภาเมืองลงมติเมื่อวันอังคารให้ปิดสะพานในช่วงฤดูหนาว และไม่มีใครถามคนที่อยู่ริมฝั่งซ้ายเลย",
        "ສະພາເມືອງໄດ້ລົງມະຕິໃນວັນອັງຄານໃຫ້ປິດຂົວໃນລະດູໜາວ ແລະບໍ່ມີໃຜຖາມຄົນທີ່ຢູ່ຝັ່ງຊ້າຍເລີຍໃນມື້ນັ້ນ",
        "ក្រុមប្រឹក្សាក្រុងបានបោះឆ្នោតនៅថ្ងៃអង្គារឱ្យបិទស្ពាន។",
        "မြို့တော်ကောင်စီသည် အင်္ဂါနေ့တွင် တံတားကို ပိတ်ရန် ဆုံးဖြတ်ခဲ့သည်။",
        "གྲོང་ཁྱེར་གྱི་ལྷན་ཚོགས་ཀྱིས་གཟའ་མིག་དམར་ལ་ཟམ་པ་བརྒྱབ་པར་ཐག་བཅད།",
        "የከተማው ምክር ቤት ማክሰኞ ድልድዩን ለክረምት ለመዝጋት ወሰነ።",
        "Քաղաքի խորհուրդը երեքշաբթի որոշեց ձմռանը փակել կամուրջը։",
        "شہر کی کونسل نے منگل کو سردیوں کے لیے پل بند کرنے کا فیصلہ کیا۔",
        "नगर परिषद ने मंगलवार को सर्दियों के लिए पुल बंद करने का निर्णय लिया।",
    ):
        found = blocks(f"<ul>{NAVIGATION}</ul><p>{sentence}</p><p>{sentence * 2}</p>")
        assert found == [sentence, sentence * 2]
    for menu in ("หน้าแรก ข่าว กีฬา บันเทิง การเมือง เศรษฐกิจ ติดต่อเรา", "ទំព័រដើម ព័ត៌មាន កីឡា"):
        assert blocks(f"<ul>{NAVIGATION}</ul><p>{menu}</p>") == [""]
    thai = "สภาเมืองลงมติเมื่อวันอังคารให้ปิดสะพานในช่วงฤดูหนาว " * 4
    assert blocks(f"<ul>{NAVIGATION}</ul><p>{thai}</p>") == [thai.strip()], "without full stops"
    chinese = "市议会周二投票决定冬季关闭这座桥，六月份有两位工程师警告说桥拱可能撑不过下一次洪水。"
    markup = f"<p>{chinese}</p><script>no();</script><p>Caf&eacute; &lt;b&gt; &amp; more{'.' * 40}"
    assert blocks(markup) == [chinese, f"Café <b> & more{'.' * 40}"]


def test_an_article_loses_its_surroundings() -> None:
    found = read_page(page("A bridge closes"))
    assert found.text.split("\n\n") == ["A bridge closes", *SENTENCES]
    assert (found.title, found.language, found.dropped) == ("A bridge closes - The Paper", "en", "")
    # plain text of WET files does, too
    lines = ["Home", "World", "Sport", *SENTENCES, "Share this", "Contact", "Imprint"]
    assert read_plain("\r\n".join(lines)).text.split("\n\n") == [*SENTENCES]
    assert read_plain("\n".join(["Home", "World"] * 20)).dropped == "no main text"


def test_lists_headings_and_repeats_stay_where_they_are_text() -> None:
    more = (
        "<h2>A heading of nothing</h2>"
        "<h2>The plan</h2><ul><li>Close the bridge</li><li>Run the <a href=x>ferry</a></li></ul>"
        "<p>It will be put to the vote in March, or so the mayor says.</p>"
        "<h2>Most read</h2><h2>Top stories</h2><ul><li><a href=1>A long title of another story, "
        "told elsewhere.</a></li><li>2 May</li><li><a href=2>And one more of them, too.</a></li>"
        "</ul><p>This sentence is the last of the article, and it stays where it is.</p>"
        "<p>Tags: bridges</p><p>© The Paper</p><p>12 May</p>"
    )
    assert blocks(page("A bridge closes", more=more))[5:] == [
        "The plan", "Close the bridge", "Run the ferry",
        "It will be put to the vote in March, or so the mayor says.",
        "This sentence is the last of the article, and it stays where it is.",
    ]  # fmt: skip
    # repeated blocks are dropped unless they are prose
    refrain = "The ferry is late again, sing the people who are waiting for it."
    more = f"<p>Photo: A. Person</p><p>{refrain}</p>" * 3
    found = blocks(page("Ferries", more=more))
    assert found.count(refrain) == 3 and "Photo: A. Person" not in found
    # blocks above the headline are dropped unless they are the text
    box = "<p>Get the most out of this paper, with access to all that it has to offer to you.</p>"
    body = page("A bridge closes")
    found = blocks(body.replace("<nav>", f"{box}<h3>And more</h3><nav>"))
    assert found == ["A bridge closes", *SENTENCES]
    text = read_page(body.replace("<nav>", f"{box * 30}<nav>")).text
    assert text.startswith("Get the most") and text.endswith(SENTENCES[-1])


def test_pages_that_are_not_documents() -> None:
    one, two, three, _ = SENTENCES
    items = "".join(f"<p>Item {number} of the list</p>" for number in range(60))
    for markup, reason in (
        (f"<nav><ul>{NAVIGATION}</ul></nav>", "no main text"),
        (f"<div><ul>{NAVIGATION * 30}</ul></div>", "no main text"),
        ("<h1>Shop</h1>" + "<p>Bag, blue</p><p>9.99</p><p>Hat</p>" * 40, "no main text"),
        ("<p>A single sentence that is about as long as this one is.</p>", "too short"),
        (f"<p>Please enable JavaScript to view this page.</p><p>{one}{two}",
         "cookie or paywall stub"),
        (f"<p>{one}</p><p>Subscribe to continue reading this story, which only our subscribers "
         "can.</p>", "cookie or paywall stub"),
        (f"<p>{one} {two}</p>{items}<p>{three}</p>", "mostly lists"),
        ("", "no main text"), ("<" * 1000, "no main text"),
    ):  # fmt: skip
        found = read_page(markup)
        assert (found.dropped, found.text) == (reason, ""), markup


def test_hostile_pages_terminate() -> None:
    """Nesting deeper than the stack does not crash the process. The parser takes quadratic time for
    attributes: 20,000 took seconds; long values are harmless."""
    for markup in (
        "<div>" * 100_000, "<b>" * 20_000, "<table><tr><td>" * 20_000, "<a><p>" * 5_000,
        "<p " + "a=b " * 100_000, "&amp;" * 100_000, "<p>" + "word " * 200_000,
        "<p>" + "<a href=x>y</a>" * 20_000, "<h1>x</h1>" * 20_000,
    ):  # fmt: skip
        assert read_page(markup).title == ""
    prose = "".join(f"<p>{sentence}</p>" for sentence in SENTENCES)
    many = " ".join(f"a{number}=1" for number in range(20_000))
    for markup in (f"<p {many}>x</p>{prose}", f"{prose}<p {many}", f"<p\n{many}/>"):
        assert read_page(markup).dropped == "a tag with thousands of attributes"
    words, data = "word " * 20_000, "x" * 90_000
    for tag in (f'<p title="{words}">', f"<img src='data:{data}'>", f"<p>{words} < {words}</p>"):
        assert read_page(tag + prose).dropped == ""
