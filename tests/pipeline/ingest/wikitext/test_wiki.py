"""Names of namespaces: the dump's own, English ones, and former ones of its language."""

from pipeline.ingest.wikitext.wiki import CATEGORY, FILE, MEDIA, Wiki


def test_namespaces() -> None:
    russian, own = Wiki(language="ru"), ((6, "Qil"), (14, "Qat egory"))
    for wiki, title, namespace in (
        (russian, "Категория:Города", CATEGORY), (russian, "категория :Города", CATEGORY),
        (russian, "Изображение:X.jpg", FILE), (russian, "category:X", CATEGORY),
        (russian, "Image:X.jpg", FILE), (russian, "Datei:X.jpg", 0), (russian, "Категория", 0),
        (Wiki(language="vi"), "Tập_tin:X.jpg", FILE), (Wiki(language="de"), "Bild: a story", FILE),
        (Wiki(language="en"), "Bild: a story", 0), (Wiki(language="en"), "CSI: Miami", 0),
        (Wiki(language="sr"), "Slika:X.jpg", FILE),
        (Wiki(language="zh-hans"), "分类:城市", CATEGORY),
        (Wiki(), "Категория:Города", CATEGORY), (Wiki(), "\u200eDatei:X.jpg", FILE),
        (Wiki(language="qq", own_names=own), "qil:X", FILE),
        (Wiki(language="qq", own_names=own), "QAT_egory:X", CATEGORY),
        (Wiki(language="qq", own_names=((0, ""), (-2, "Qedia"))), "Qedia:X", MEDIA),
        (Wiki(language="qq", own_names=((0, ""),)), ": X", 0),
        (Wiki(language="en", own_names=((4, "Image"),)), "Image:X", 4),
    ):  # fmt: skip
        assert wiki.namespace(title) == namespace, (wiki, title)
