"""URLs as messages, labels and files show them: without anything that could be a secret.

A URL may be pasted with a user and password, or with a signature that expires. Neither is printed
or written. What is written to recognize a URL later is `recorded_url`.
"""

from __future__ import annotations

import hashlib
import re

_CHAIN = re.compile(r"::(?=[a-zA-Z]\w*(?:::|://))")  # fsspec's, as in simplecache::s3://
# One slash: as a path has it that was made of a URL.
_LINK = re.compile(r"((?:[\w-]+=)?[a-zA-Z][\w+.-]*://?)(.*)", re.DOTALL)
# The bound keeps a text linear in its length; the punctuation is the sentence's.
_IN_TEXT = re.compile(r"([a-zA-Z][\w+.-]{0,30}://?\S+?)([;:,.!'\")\]]*(?=\s|$))")
_HOST = re.compile(r"[^:]*(?::\d*)?|\[[\da-fA-F:.]*\](?::\d*)?")
_VALUE = re.compile(r"[;?#&=]([^;/?#&=]+)(?=[;/?#&]|$)")  # not the name of one
_HIDDEN = "..."
_SIGNED = {
    "": r"x-amz-.*|x-goog-.*|(?:access_|auth_)?token|api_?key|signature|sig|hdnts?",
    "signature": "awsaccesskeyid|googleaccessid|key-pair-id|policy|expires",
    "sig": "s[eiprtv]|srt?|ss|spr|sip|skoid|sktid|skt|ske|sks|skv|sdd|saoid|suoid|scid",
}
"""Parameters of a signed query, of Amazon, Google and Azure; those of "signature" and "sig" have
common names and belong to one only next to these."""
_RECORDED = re.compile(r" \(object [0-9a-f]{16}\)$")
_SHORTEST = 4  # shorter parts stand in any message


def show_url(url: str) -> str:
    """The URL rebuilt from its scheme, host, port and path (RFC 3986, section 3).

    User, password, query, fragment and the parameters of a path's segments may be secrets. Keys are
    pasted into URLs as they are, with `/` and `@` in them: all up to the last `@` counts as the
    password, and if it is not clear where that ends, only the scheme is shown.
    """
    return "::".join(_shown_link(link) for link in _CHAIN.split(url))


def recorded_url(text: str) -> str:
    """A URL as files keep it: as shown, and a hash of what identifies its object.

    The hash leaves out user, password, fragment and the signature in the query, so that a renewed
    signature gives the same. A text without a URL, or one that is recorded already, stays as it is.
    """
    if not any(map(_LINK.fullmatch, _CHAIN.split(text))) or _RECORDED.search(text):
        return text
    found = hashlib.sha256(object_url(text).encode(errors="surrogateescape")).hexdigest()[:16]
    return f"{show_url(text)} (object {found})"


def object_url(url: str) -> str:
    """The URL of the same object without credentials; may hold secrets under unknown names."""
    return "::".join(_object_link(link) for link in _CHAIN.split(url))


def show_text(text: str, url: str = "") -> str:
    """A message in which each URL is as `show_url` gives it, and no secret of `url` is left."""
    text = _IN_TEXT.sub(lambda found: show_url(found[1]) + found[2], text)
    for secret in _secrets(url):
        text = text.replace(secret, _HIDDEN)
    return text


def _shown_link(link: str) -> str:
    found = _LINK.fullmatch(link)
    if not found:
        return link
    scheme, rest = found.groups()
    secret, _, place = _split_login(rest)
    if secret and re.search("[/?#]", rest[rest.index("@") : rest.rindex("@")]):
        return scheme + _HIDDEN
    place = re.split("[?#]", place, maxsplit=1)[0]
    return scheme + re.sub(";[^/]*", "", place)


def _object_link(link: str) -> str:
    found = _LINK.fullmatch(link)
    if not found or _shown_link(link).endswith(_HIDDEN):
        return link  # what is the object and what is secret is not clear
    address, query, asked = _split_login(found[2])[2].partition("#")[0].partition("?")
    names = [part.partition("=")[0].lower() for part in asked.split("&")]
    signed = re.compile("|".join(of for mark, of in _SIGNED.items() if not mark or mark in names))
    kept = [part for part, name in zip(asked.split("&"), names) if not signed.fullmatch(name)]
    return found[1] + address + (query + "&".join(kept) if any(kept) else "")


def _split_login(rest: str) -> tuple[str, str, str]:
    """User and password, the @ after them, and the rest of what follows a scheme."""
    authority = re.split("[/?#]", rest, maxsplit=1)[0]
    if "@" in authority or not _HOST.fullmatch(authority):
        return rest.rpartition("@") if "@" in rest else ("", "", _HIDDEN)
    return "", "", rest


def _secrets(url: str) -> list[str]:
    """The parts of a URL that `show_url` drops, as services quote them, longest first."""
    found: set[str] = set()
    for link in _CHAIN.split(url):
        if given := _LINK.fullmatch(link):
            user, _, place = _split_login(given[2])
            found |= {user, *re.split("[:/?#@]", user), *_VALUE.findall(place)}
    return sorted((part for part in found if len(part) >= _SHORTEST), key=len, reverse=True)
