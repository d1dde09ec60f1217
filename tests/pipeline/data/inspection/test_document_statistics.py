"""Statistics of documents, compared with simple slow code."""

import json
import random
import statistics as slow
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from pipeline.data.inspection import document_statistics
from pipeline.data.inspection.document_statistics import KEPT, DocumentStatistics, Found, find
from pipeline.ingest.documents.read import cut
from pipeline.ingest.documents.sniff import sniff
from tests.pipeline.ingest.dump import small_dump
from tests.pipeline.ingest.files import put
from tests.pipeline.ingest.tars import extracted


def found(number: int, text: str, reason: str = KEPT, site: str = "") -> Found:
    return Found("news", f"x@{number}", "x", "", text, reason, False, "", site)


def measure(records: Iterable[Found], samples: int = 0) -> DocumentStatistics:
    measured = DocumentStatistics(samples)
    for record in records:
        measured.add(record)
    return measured


def test_lengths_and_quantiles() -> None:
    rng = random.Random(0)
    texts = ["x" * max(1, int(rng.lognormvariate(6, 1.5))) + str(n) for n in range(5000)]
    measured = measure(found(number, text) for number, text in enumerate(texts))
    lengths = sorted(map(len, texts))
    assert measured.characters == sum(lengths)
    for share in (0.05, 0.5, 0.95):
        exact = lengths[int(share * len(lengths))]
        assert abs(measured.quantile(share) - exact) <= exact / 12 + 1
    assert measured.quantile(0.5) == pytest.approx(slow.median(lengths), rel=1 / 12)
    octaves = measured.octaves()
    for fewest, count in octaves:
        assert count == sum(fewest <= length < 2 * fewest for length in lengths)
    assert sum(count for _, count in octaves) == len(lengths)


def test_every_record_is_counted(tmp_path: Path) -> None:
    lines = [
        json.dumps({"text": f"News {n}.", "url": f"http://www.a{n % 3}.org/x"}) for n in range(9)
    ]
    lines[4], lines[5] = "{broken", json.dumps({"text": None})
    path = tmp_path / "in.jsonl"
    path.write_text("\n".join(lines))
    pieces = cut(sniff(path, "news", path.name), 100)
    measured = measure((record for piece in pieces for record in find(piece)), 2)
    assert (measured.records(), measured.documents()) == (9, 7)
    assert measured.bad.total() == 2 and not measured.dropped()
    assert measured.sites == {"a0.org": 3, "a1.org": 2, "a2.org": 2}
    assert [len(measured.samples_of(reason)) for reason in ("", *measured.bad)] == [2, 1, 1]


def test_extracted_documents_keep_title_reason_and_site(tmp_path: Path) -> None:
    path = put(tmp_path / "small.xml", small_dump())
    [piece] = cut(extracted(path, tmp_path / "documents"), 1 << 20)
    records = list(find(piece))
    assert Counter(record.reason for record in records) == Counter(
        [KEPT, "redirect", "disambiguation", "not an article", "no prose"]
    )
    assert [record.title for record in records][:2] == ["Arve", "Arve river"]
    assert {record.site for record in records} == {"en.wikipedia.org"}


def test_samples_do_not_depend_on_the_order() -> None:
    records = [found(n, f"text {n}", "redirect" if n % 3 else KEPT) for n in range(300)]
    chosen = []
    for seed in range(3):
        random.Random(seed).shuffle(records)
        measured = measure(records, 5)
        chosen.append([measured.samples_of(KEPT), measured.samples_of("redirect")])
    assert chosen[0] == chosen[1] == chosen[2]
    assert [len(samples) for samples in chosen[0]] == [5, 5]


def test_copies_and_sites_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies are counted of all documents, or of a share."""
    texts = [f"text {n % 8000}" for n in range(10_000)]  # a fifth are copies
    for most, tolerance in ((1 << 20, 0.0), (500, 0.05)):
        monkeypatch.setattr(document_statistics, "MOST_HASHES", most)
        measured = measure(found(number, text) for number, text in enumerate(texts))
        assert measured.copied_share() == pytest.approx(0.2, abs=tolerance)
        assert len(measured.hashes) <= most and bool(measured.hash_bits) == (most == 500)
    monkeypatch.setattr(document_statistics, "MOST_SITES", 10)
    measured = measure(found(number, "x", site=f"{number % 20}.org") for number in range(100))
    assert len(measured.sites) == 11 and measured.sites.total() == 100
