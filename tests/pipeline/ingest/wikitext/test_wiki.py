"""Names of namespaces: the dump's own, English ones, and former ones of its language."""

from __future__ import annotations

import pytest

from pipeline.ingest.wikitext.wiki import CATEGORY, FILE, MEDIA, Wiki


@pytest.mark.parametrize(
    ("wiki", "title", "namespace"),
    [
        (Wiki(language="ru"), "Категория:Города", CATEGORY),
        (Wiki(language="ru"), "категория :Города", CATEGORY),
        (Wiki(language="ru"), "Изображение:X.jpg", FILE),
        (Wiki(language="ru"), "category:X", CATEGORY),
        (Wiki(language="ru"), "Image:X.jpg", FILE),
        (Wiki(language="ru"), "Datei:X.jpg", 0),
        (Wiki(language="ru"), "Категория", 0),
        (Wiki(language="vi"), "Tập_tin:X.jpg", FILE),
        (Wiki(language="de"), "Bild: a story", FILE),
        (Wiki(language="en"), "Bild: a story", 0),
        (Wiki(language="en"), "CSI: Miami", 0),
        (Wiki(language="sr"), "Slika:X.jpg", FILE),
        (Wiki(language="zh-hans"), "分类:城市", CATEGORY),
        (Wiki(), "Категория:Города", CATEGORY),
        (Wiki(), "\u200eDatei:X.jpg", FILE),
        (Wiki(language="qq", own_names=((6, "Qil"), (14, "Qat egory"))), "qil:X", FILE),
        (Wiki(language="qq", own_names=((6, "Qil"), (14, "Qat egory"))), "QAT_egory:X", CATEGORY),
        (Wiki(language="qq", own_names=((0, ""), (-2, "Qedia"))), "Qedia:X", MEDIA),
        (Wiki(language="qq", own_names=((0, ""),)), ": X", 0),
        (Wiki(language="en", own_names=((4, "Image"),)), "Image:X", 4),
    ],
)  # fmt: skip
def test_namespaces(wiki: Wiki, title: str, namespace: int) -> None:
    assert wiki.namespace(title) == namespace
