"""URLs as messages, labels and manifests show them: without anything that could be a secret."""

from __future__ import annotations

import re

_CHAIN = re.compile(r"::(?=[a-zA-Z]\w*(?:::|://))")  # fsspec's, as in simplecache::s3://
_LINK = re.compile(r"((?:[\w-]+=)?[a-zA-Z][\w+.-]*://)(.*)", re.DOTALL)
_IN_TEXT = re.compile(r"[a-zA-Z][\w+.-]*://\S+")
_HOST = re.compile(r"[^:]*(?::\d*)?|\[[\da-fA-F:.]*\](?::\d*)?")
_VALUE = re.compile(r"[;?#&=]([^;/?#&=]+)(?=[;/?#&]|$)")  # not the name of one
_HIDDEN = "..."
_SHORTEST = 4  # shorter parts stand in any message


def shown_url(url: str) -> str:
    """The URL rebuilt from its scheme, host, port and path (RFC 3986, section 3).

    User, password, query, fragment and the parameters of a path's segments may be secrets. Keys are
    pasted into URLs as they are, with `/` and `@` in them: all up to the last `@` counts as the
    password, and if it is not clear where that ends, only the scheme is shown.
    """
    return "::".join(_shown_link(link) for link in _CHAIN.split(url))


def shown_text(text: str, url: str = "") -> str:
    """A message in which each URL is as `shown_url` gives it, and no secret of `url` is left."""
    text = _IN_TEXT.sub(lambda found: shown_url(found[0]), text)
    for secret in _secrets(url):
        text = text.replace(secret, _HIDDEN)
    return text


def _shown_link(link: str) -> str:
    found = _LINK.fullmatch(link)
    if not found:
        return link
    scheme, rest = found.groups()
    secret, _, place = _parted(rest)
    if secret and re.search("[/?#]", rest[rest.index("@") : rest.rindex("@")]):
        return scheme + _HIDDEN
    place = re.split("[?#]", place, maxsplit=1)[0]
    return scheme + re.sub(";[^/]*", "", place)


def _parted(rest: str) -> tuple[str, str, str]:
    """User and password, the @ behind them, and the rest of what follows a scheme."""
    authority = re.split("[/?#]", rest, maxsplit=1)[0]
    if "@" in authority or not _HOST.fullmatch(authority):
        return rest.rpartition("@") if "@" in rest else ("", "", _HIDDEN)
    return "", "", rest


def _secrets(url: str) -> list[str]:
    """What `shown_url` leaves out of a URL, in parts as services quote them, longest first."""
    found: set[str] = set()
    for link in _CHAIN.split(url):
        if given := _LINK.fullmatch(link):
            user, _, place = _parted(given[2])
            found |= {user, *re.split("[:/?#@]", user), *_VALUE.findall(place)}
    return sorted((part for part in found if len(part) >= _SHORTEST), key=len, reverse=True)
