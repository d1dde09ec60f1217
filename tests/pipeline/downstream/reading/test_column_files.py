"""A word and its tags per line: CoNLL-2003, CoNLL-U, CoNLL-U Plus and what people write."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest

from pipeline.base.errors import DataError
from pipeline.downstream.reading.column_files import is_column_file, read_conll

CONLL = "-DOCSTART- -X- O O\n\nEU NNP I-NP I-ORG\nrejects VBZ I-VP O\n\n\n@a\tO\r\n \n"
CONLL_U = """# newdoc id = n1
# text = They don't.
1\tThey\tthey\tPRON\tPRP\tCase=Nom\t2\tnsubj\t_\t_
2-3\tdon't\t_\t_\t_\t_\t_\t_\t_\tSpaceAfter=No
2\tdo\tdo\tAUX\tVBP\t_\t0\troot\t_\t_
3\tn't\tnot\tPART\tRB\t_\t2\tadvmod\t_\t_
3.1\tgo\tgo\tVERB\tVB\t_\t_\t_\t_\t_

# sent_id = 2
1\tNo\tno\tINTJ\tUH\t_\t0\troot\t_\t_
"""
CONLL_2012 = """#begin document (bc/cctv/00/cctv_0000); part 000
bc/cctv/00/cctv_0000 0 0 In IN (TOP* - - - - * (0
bc/cctv/00/cctv_0000 0 1 Paris NNP *) - - - - (GPE) 0)

#end document
#begin document (bc/cctv/00/cctv_0001); part 000
bc/cctv/00/cctv_0001 0 0 Rain NN (TOP*) - - - - * -
#end document
"""
PLUS = "# global.columns = FORM NER\n# text = EU\nEU\tB-ORG\nsays\tO\n"


def test_conll(tmp_path: Path) -> None:
    path = tmp_path / "c.txt"
    path.write_text(CONLL)
    found = read_conll(path)
    assert [(e.texts, e.gold) for e in found.examples] == [
        (("EU", "rejects"), ("I-ORG", "O")), (("@a",), ("O",)),
    ]  # fmt: skip
    assert found.taken == "a word per line; text 1; target 4 of 4"
    path.write_text(CONLL.partition("\n\n\n")[0])
    (one,) = read_conll(path, tag="2").examples
    assert one.gold == ("NNP", "VBZ")
    path.write_text("# sent_id = 3\n# id 7\tdomain=en\n# O\nEU I-ORG\n")
    assert [e.texts for e in read_conll(path).examples] == [("#", "EU")]


def test_conll_2012(tmp_path: Path) -> None:
    path = tmp_path / "c.v4_gold_conll"
    path.write_text(CONLL_2012)
    found = read_conll(path, "4", "5").examples
    assert [(e.texts, e.gold) for e in found] == [
        (("In", "Paris"), ("IN", "NNP")),
        (("Rain",), ("NN",)),
    ]
    for word, tag, message in (
        ("", "", "has the columns of CoNLL-2012; name those of the words and of their tags"),
        ("4", "11", "line 3: the tag '(GPE)' is in CoNLL-2012's brackets; convert the column"),
    ):
        with pytest.raises(DataError, match=re.escape(message)):
            read_conll(path, word, tag)
    path.write_text("#begin document (a); part 000\nEU I-ORG\n\n#end document\n")
    assert [e.texts for e in read_conll(path).examples] == [("EU",)]
    path.write_bytes(b"EU I-ORG\rsays O\r\rRain O\r")
    assert [e.texts for e in read_conll(path).examples] == [("EU", "says"), ("Rain",)]


def test_a_header_is_no_sentence(tmp_path: Path) -> None:
    path = tmp_path / "c.tsv"
    path.write_text("word\tner_tag\nEU\tB-ORG\n\nsays\tO\n")
    assert [e.texts for e in read_conll(path).examples] == [("EU",), ("says",)]
    path.write_text("[\tO\nEU\tB-ORG\n")
    assert is_column_file(path, ("text", "label"))


def test_conll_u(tmp_path: Path) -> None:
    path = tmp_path / "x.conllu.gz"
    path.write_bytes(gzip.compress(CONLL_U.encode()))
    found = read_conll(path, tag="UPOS")
    assert [(e.texts, e.gold) for e in found.examples] == [
        (("They", "do", "n't"), ("PRON", "AUX", "PART")), (("No",), ("INTJ",)),
    ]  # fmt: skip
    assert found.taken == "a word per line; text FORM; target UPOS of 10"
    numbered = read_conll(path, "3", "5").examples
    assert (numbered[0].texts[2], numbered[0].gold) == ("not", ("PRP", "VBP", "RB"))
    with pytest.raises(DataError, match=r"has the columns ID, FORM, .*; name that of the tags"):
        read_conll(path)


def test_conll_u_plus(tmp_path: Path) -> None:
    path = tmp_path / "x.conllup"
    path.write_text(PLUS)
    (one,) = read_conll(path, "FORM", "NER").examples
    assert (one.texts, one.gold) == (("EU", "says"), ("B-ORG", "O"))


@pytest.mark.parametrize(
    ("content", "tag", "message"),
    [
        ("word\n", "", "line 1: 'word' is not a word and its tag"),
        ("a O\nb\tB-X\t\n", "", r"line 2: 'b\\tB-X\\t' is not a word and its tag"),
        ("a X O\nb O\n", "3", "line 2: 'b O' is not a word and its tag"),
        ("a X O\n", "4", "no column '4'; its columns are 1 to 3, 'a', 'X', 'O' in its first line"),
        ("a X O\n", "9" * 5000, "its columns are 1 to 3"),
        (PLUS, "POS", "no column 'POS'; its columns are FORM, NER; name others with --text and"),
        ("\n\n", "", "has no examples"),
    ],
)
def test_what_is_wrong(tmp_path: Path, content: str, tag: str, message: str) -> None:
    (tmp_path / "x").write_text(content)
    with pytest.raises(DataError, match=message):
        read_conll(tmp_path / "x", tag=tag)


def test_what_is_a_column_file(tmp_path: Path) -> None:
    for name, content, wanted, expected in (
        ("a.conll", CONLL, (), True),
        ("a.tsv", "EU\tB-ORG\n", (), True),
        ("a.conllu", CONLL_U, ("FORM", "UPOS"), True),
        ("a.tsv", "words\ttags\na b\tO O\n", ("words", "tags"), False),
        ("a.csv", "words,tags\na b,O O\n", (), False),
        ("a", '{"t": ["a"], "l": ["O"]}\n', (), False),
        ("a.jsonl", "", (), False),
        ("a", "{\tO\n", (), True),
    ):
        (tmp_path / name).write_text(content)
        assert is_column_file(tmp_path / name, wanted) == expected, (name, content)
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    assert not is_column_file(tmp_path / "a.parquet", ())
