"""No part of a URL that could be a secret is shown."""

from __future__ import annotations

import pytest

from pipeline.data.fetching.shown_urls import shown_text, shown_url

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
    assert shown_url(url) == SHOWN[url]


def test_messages_have_no_secrets() -> None:
    url = "https://me:s3cret@host/a;version=2secret/b?sig=3secret&x=1"
    text = (
        f"GET '{url}', (https://you:pass@host/c) for me with s3cret, 2secret and 3secret: 1 error"
    )
    assert shown_text(text, url) == (
        "GET 'https://host/a/b (https://host/c) for me with ..., ... and ...: 1 error"
    )
    assert shown_text("a message: 12://x @ home", "") == "a message: 12://x @ home"
