"""No part of a URL that could be a secret is shown."""

from pathlib import Path

import pytest

from pipeline.base.shown_urls import recorded_url, show_text, show_url

SHOWN = {
    "https://host/a/b.jsonl": "https://host/a/b.jsonl",
    "https://host:8080/a@b/c": "https://host:8080/a@b/c",
    "http://[::1]:80/a": "http://[::1]:80/a",
    "s3://bucket/key": "s3://bucket/key",
    "hdfs:///user/a": "hdfs:///user/a",
    "https://user@host/a": "https://host/a",
    "https://user:s3cret@host:80/a": "https://host:80/a",
    "https://user:s3@cret@host/a": "https://host/a",
    "s3://AKIA:s3/cret@bucket/a": "s3://bucket/a",
    "s3://AKIA:s3?cret@bucket/a": "s3://bucket/a",
    "s3://AKIA:s3#cret@bucket/a": "s3://bucket/a",
    "s3://AKIA:s3'cr)et@bucket/a": "s3://bucket/a",
    "https://user:s3@c/ret@host/a": "https://...",
    "https://user:s3cret@host/a?mail=b@c": "https://...",
    "s3://AKIA:s3cret": "s3://...",
    "https://host/a;token=s3cret/b;s3cret": "https://host/a/b",
    "https://host/a?sig=s3cret#s3cret": "https://host/a",
    "https://host?sig=s3cret": "https://host",
    "simplecache::s3://AKIA:s3::cret@bucket/a": "simplecache::s3://bucket/a",
    "zip://*.jsonl::https://me:s3cret@host/a.zip?s3cret": "zip://*.jsonl::https://host/a.zip",
    "books=https://me:s3cret@host/a": "books=https://host/a",
    "no URL": "no URL",
}


def test_a_url_is_rebuilt() -> None:
    for url, shown in SHOWN.items():
        assert show_url(url) == shown
        if "://" in url:
            recorded = recorded_url(url)
            assert recorded.startswith(f"{shown} (object "), url
            assert recorded_url(recorded) == recorded, url
    for text in ("news/a.jsonl", "--input", "a b", ""):
        assert recorded_url(text) == text


def test_messages_have_no_secrets() -> None:
    url = "https://me:s3cret@host/a;version=2secret/b?sig=3secret&x=1"
    text = f"GET '{url}', (https://you:pass@host/c) for me with s3cret, 2secret and 3secret: 1"
    shown = "GET 'https://host/a/b', (https://host/c) for me with ..., ... and ...: 1"
    assert show_text(text, url) == shown
    assert show_text("a message: 12://x @ home", "") == "a message: 12://x @ home"
    path = Path("s3://AKIA:s3cret@bucket/a")
    assert show_text(f"{path} is no folder; give one") == "s3:/bucket/a is no folder; give one"


PAIRS = [
    ("s3://AKIA:s3cret@bucket/a", True, "s3://bucket/a"),
    ("https://h/a?X-Amz-Date=1&X-Amz-Signature=2", True,
     "https://h/a?x-amz-date=3&x-amz-signature=4"),
    ("https://h/a?id=7&Expires=1&Signature=2", True, "https://h/a?id=7&Expires=3&Signature=4"),
    ("https://h/a?sv=1&se=2&sig=3#x", True, "https://h/a?sv=4&se=5&sig=6"),
    ("news=https://h/a?token=1", True, "news=https://h/a"),
    ("zip://b::https://me:s3cret@h/a?X-Goog-Signature=1", True, "zip://b::https://h/a"),
    ("https://h/a?id=7&sig=1", False, "https://h/a?id=8&sig=1"),
    ("https://h/a?se=1", False, "https://h/a?se=2"),
    ("https://h/a;version=1", False, "https://h/a;version=2"),
    ("https://u:p@h/a?mail=b@c", False, "https://u:p@h/d?mail=b@c"),  # the secret's end is unclear
    ("s3://bucket/a", False, "s3://bucket/b"),
    ("news=s3://bucket/a", False, "stories=s3://bucket/a"),
]  # fmt: skip


@pytest.mark.parametrize(("one", "is_same", "other"), PAIRS)
def test_a_renewed_signature_is_of_the_same_object(one: str, is_same: bool, other: str) -> None:
    assert (recorded_url(one) == recorded_url(other)) == is_same


def test_a_long_word_is_read_in_linear_time() -> None:
    assert show_text(f"://{'a' * 300_000} is damaged") == f"://{'a' * 300_000} is damaged"
