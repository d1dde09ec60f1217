"""No part of a URL that could be a secret is shown."""

from __future__ import annotations

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


@pytest.mark.parametrize("url", SHOWN)
def test_a_url_is_rebuilt(url: str) -> None:
    assert show_url(url) == SHOWN[url]


def test_messages_have_no_secrets() -> None:
    url = "https://me:s3cret@host/a;version=2secret/b?sig=3secret&x=1"
    text = (
        f"GET '{url}', (https://you:pass@host/c) for me with s3cret, 2secret and 3secret: 1 error"
    )
    assert show_text(text, url) == (
        "GET 'https://host/a/b', (https://host/c) for me with ..., ... and ...: 1 error"
    )
    assert show_text("a message: 12://x @ home", "") == "a message: 12://x @ home"


@pytest.mark.parametrize("url", [url for url in SHOWN if "://" in url])
def test_what_is_recorded_has_no_secrets(url: str) -> None:
    found = recorded_url(url)
    assert found.startswith(f"{SHOWN[url]} (object ") and recorded_url(found) == found


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("s3://AKIA:s3cret@bucket/a", "s3://bucket/a"),
        (
            "https://h/a?X-Amz-Date=1&X-Amz-Signature=2",
            "https://h/a?x-amz-date=3&x-amz-signature=4",
        ),
        ("https://h/a?id=7&Expires=1&Signature=2", "https://h/a?id=7&Expires=3&Signature=4"),
        ("https://h/a?sv=1&se=2&sig=3#x", "https://h/a?sv=4&se=5&sig=6"),
        ("news=https://h/a?token=1", "news=https://h/a"),
        ("zip://b::https://me:s3cret@h/a?X-Goog-Signature=1", "zip://b::https://h/a"),
    ],
)
def test_a_renewed_signature_is_of_the_same_object(one: str, other: str) -> None:
    assert recorded_url(one) == recorded_url(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("https://h/a?id=7&sig=1", "https://h/a?id=8&sig=1"),
        ("https://h/a?se=1", "https://h/a?se=2"),
        ("https://h/a;version=1", "https://h/a;version=2"),
        (
            "https://u:p@h/a?mail=b@c",
            "https://u:p@h/d?mail=b@c",
        ),  # where the secret ends is unclear
        ("s3://bucket/a", "s3://bucket/b"),
        ("news=s3://bucket/a", "stories=s3://bucket/a"),
    ],
)
def test_other_objects_are_recorded_otherwise(one: str, other: str) -> None:
    assert recorded_url(one) != recorded_url(other)


@pytest.mark.parametrize("text", ["news/a.jsonl", "--input", "a b", ""])
def test_what_is_not_a_url_is_recorded_as_it_is(text: str) -> None:
    assert recorded_url(text) == text


def test_a_path_made_of_a_url_has_no_secrets() -> None:
    path = Path("s3://AKIA:s3cret@bucket/a")
    assert (
        show_text(f"{path} is not a folder; give one") == "s3:/bucket/a is not a folder; give one"
    )


def test_a_long_word_is_read_in_linear_time() -> None:
    assert show_text(f"://{'a' * 300_000} is damaged") == f"://{'a' * 300_000} is damaged"
