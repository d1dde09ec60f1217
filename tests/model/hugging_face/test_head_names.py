"""Every head of every family has words."""

from model.hugging_face.families import BOUNDARY_HEAD, ELECTRA, FAMILIES
from model.hugging_face.head_names import HEADS


def test_every_head_is_named() -> None:
    tables = [BOUNDARY_HEAD, *(family.modules for family in (*FAMILIES, ELECTRA))]
    parts = {module.partition(".")[0] for table in tables for module in table}
    assert parts == HEADS.keys() | {"encoder", "generator"}
    assert len({*HEADS.values()}) == len(HEADS)
