"""A word and its tags per line: CoNLL-2003, CoNLL-U, CoNLL-U Plus and what people write."""

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


def test_words_and_tags(tmp_path: Path) -> None:
    path = tmp_path / "x.gz"
    for content, word, tag, expected, taken in (
        (CONLL, "", "", {("EU", "rejects"): ("I-ORG", "O"), ("@a",): ("O",)},
         "a word per line; text 1; target 4 of 4"),
        (CONLL.partition("\n\n\n")[0], "", "2", {("EU", "rejects"): ("NNP", "VBZ")}, ""),
        ("# sent_id = 3\n# id 7\tdomain=en\n# O\nEU I-ORG\n", "", "",
         {("#", "EU"): ("O", "I-ORG")}, ""),
        (CONLL_2012, "4", "5", {("In", "Paris"): ("IN", "NNP"), ("Rain",): ("NN",)}, ""),
        ("#begin document (a); part 000\nEU I-ORG\n\n#end document\n", "", "",
         {("EU",): ("I-ORG",)}, ""),
        ("EU I-ORG\rsays O\r\rRain O\r", "", "",
         {("EU", "says"): ("I-ORG", "O"), ("Rain",): ("O",)}, ""),
        ("word\tner_tag\nEU\tB-ORG\n\nsays\tO\n", "", "", {("EU",): ("B-ORG",), ("says",): ("O",)},
         ""),
        (CONLL_U, "", "UPOS", {("They", "do", "n't"): ("PRON", "AUX", "PART"), ("No",): ("INTJ",)},
         "a word per line; text FORM; target UPOS of 10"),
        (CONLL_U, "3", "5", {("they", "do", "not"): ("PRP", "VBP", "RB"), ("no",): ("UH",)}, ""),
        (PLUS, "FORM", "NER", {("EU", "says"): ("B-ORG", "O")}, ""),
    ):  # fmt: skip
        path.write_bytes(gzip.compress(content.encode()))
        found = read_conll(path, word, tag)
        assert {e.texts: e.gold for e in found.examples} == expected
        assert len(found.examples) == len(expected)
        assert found.taken.startswith(taken)


def test_what_is_wrong(tmp_path: Path) -> None:
    for content, tag, message in (
        ("word\n", "", "line 1: 'word' is not"),
        ("a O\nb\tB-X\t\n", "", r"line 2: 'b\tB-X\t' is not"),
        ("a X O\nb O\n", "3", "line 2: 'b O' is not"),
        ("a X O\n", "4", "no column '4'; its columns are 1 to 3, 'a', 'X', 'O' in"),
        ("a X O\n", "9" * 5000, "its columns are 1 to 3"),
        (PLUS, "POS", "no column 'POS'; its columns are FORM, NER;"),
        (CONLL_U, "", "has the columns ID, FORM, "),
        (CONLL_2012, "", "columns of CoNLL-2012;"),
        (CONLL_2012, "11", "line 3: the tag '(GPE)'"),
        ("\n\n", "", "has no examples"),
    ):
        (tmp_path / "x").write_text(content)
        with pytest.raises(DataError, match=re.escape(message)):
            read_conll(tmp_path / "x", "4" if tag == "11" else "", tag)


def test_what_is_a_column_file(tmp_path: Path) -> None:
    for name, content, wanted, expected in (
        ("a.conll", CONLL, (), True),
        ("a.tsv", "EU\tB-ORG\n", (), True),
        ("a.conllu", CONLL_U, ("FORM", "UPOS"), True),
        ("a.tsv", "[\tO\nEU\tB-ORG\n", ("text", "label"), True),
        ("a.tsv", "words\ttags\na b\tO O\n", ("words", "tags"), False),
        ("a.csv", "words,tags\na b,O O\n", (), False),
        ("a", '{"t": ["a"], "l": ["O"]}\n', (), False),
        ("a.jsonl", "", (), False),
        ("a", "{\tO\n", (), True),
        ("a.parquet", "PAR1", (), False),
    ):
        (tmp_path / name).write_text(content)
        assert is_column_file(tmp_path / name, wanted) == expected, (name, content)
