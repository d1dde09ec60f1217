"""The base image in the Dockerfile: a tag -> the same tag with the digest that its registry has.

A tag moves when its owner publishes again; a digest does not. Only the digest is requested, as the
OCI distribution specification describes ("Pulling manifests", "Checking if content exists in the
registry"): HEAD of the manifest, after an anonymous token if the registry wants one. No image is
downloaded.
"""

from __future__ import annotations

import http.client
import json
import re
import urllib.error
import urllib.parse
import urllib.request

SECONDS = 10
"""Limit for each of three requests."""
KINDS = ", ".join(
    f"application/vnd.{kind}+json"
    for kind in (
        "oci.image.index.v1", "docker.distribution.manifest.list.v2",
        "oci.image.manifest.v1", "docker.distribution.manifest.v2",
    )
)  # fmt: skip
"""An image for several processors first: its digest holds on all of them."""
LONGEST_ANSWER = 1 << 20
"""Bytes of an answer with a token, at most."""
LINES = re.compile(r"^(?:# BASE_IMAGE .*\n)*ARG BASE_IMAGE=(\S+)$", re.M)


class NoDigestError(Exception):
    """The registry does not answer, or not with a digest; the message gives the reason."""


def manifest_url(image: str) -> str:
    """URL of an image's manifest. Names are short for Docker Hub's, as for Docker.

    >>> manifest_url("debian:bookworm-slim")
    'https://registry-1.docker.io/v2/library/debian/manifests/bookworm-slim'
    """
    host, _, path = image.partition("/")
    # as for Docker: without a dot or a port the first part is a user of Docker Hub, not a host
    if not path or not ("." in host or ":" in host or host == "localhost"):
        host, path = "registry-1.docker.io", image if path else f"library/{image}"
    name, _, tag = path.partition(":")
    return f"{_scheme(host)}://{host}/v2/{name}/manifests/{tag or 'latest'}"


def digest(image: str) -> str:
    """The digest of a tag, `sha256:` and 64 hexadecimal digits.

    Raises NoDigestError.
    """
    url = manifest_url(image)
    try:
        try:
            answer = _ask(url, "HEAD", {"Accept": KINDS})
        except urllib.error.HTTPError as refused:
            # Docker Hub wants a token for public images, too; its refusal says from where
            if refused.code != http.HTTPStatus.UNAUTHORIZED:
                raise
            token = _token(refused.headers.get("WWW-Authenticate", ""))
            answer = _ask(url, "HEAD", {"Accept": KINDS, "Authorization": f"Bearer {token}"})
        found = answer.headers.get("Docker-Content-Digest", "")
    # ValueError: an answer that is not the JSON, or a URL, that it should be
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise NoDigestError(" ".join(str(error).split()) or type(error).__name__) from error
    if not re.fullmatch("sha256:[0-9a-f]{64}", found):
        raise NoDigestError("its answer has no digest")
    return str(found)


def pin(dockerfile: str, *, upgrade: bool) -> tuple[str, str]:
    """The Dockerfile with the digest of BASE_IMAGE, and one line that says what was done.

    A digest stays unless `upgrade` is set. If the registry does not answer, what is there stays: a
    digest, or the tag, and then the Dockerfile says so.
    """
    found = LINES.search(dockerfile)
    if not found:
        raise SystemExit("error: the Dockerfile has no line ARG BASE_IMAGE=IMAGE:TAG; add it")
    tag, _, pinned = found[1].partition("@")
    if pinned and not upgrade:
        return dockerfile, f"{found[1]} stays"
    try:
        pinned = digest(tag)
        said = f"{tag} is {pinned}"
    except NoDigestError as error:
        said = f"{tag}: no registry answered ({error}); {found[1]} stays"
    if pinned:
        note = "# BASE_IMAGE is pinned by digest; `make lock UPGRADE=--upgrade` takes the newest."
        line = f"ARG BASE_IMAGE={tag}@{pinned}"
    else:
        note = (
            "# BASE_IMAGE is not pinned: no registry answered `make lock`, so this is a tag, "
            "which can move."
        )
        line = f"ARG BASE_IMAGE={tag}"
    return f"{dockerfile[: found.start()]}{note}\n{line}{dockerfile[found.end() :]}", said


def _scheme(host: str) -> str:
    """Plain HTTP on this machine only, as for Docker."""
    name = urllib.parse.urlsplit(f"//{host}").hostname
    return "http" if name in ("localhost", "127.0.0.1", "::1") else "https"


def _ask(url: str, method: str, headers: dict[str, str]) -> http.client.HTTPResponse:
    request = urllib.request.Request(url, method=method, headers=headers)
    answer: http.client.HTTPResponse = urllib.request.urlopen(request, timeout=SECONDS)
    return answer


def _token(challenge: str) -> str:
    """An anonymous token from the place that a registry's `WWW-Authenticate: Bearer ...` names."""
    fields = dict(re.findall(r'(\w+)="([^"]*)"', challenge))
    realm = fields.pop("realm", "")
    place = urllib.parse.urlsplit(realm)
    # a token must not come over a connection plainer than the registry's
    if not challenge.startswith("Bearer ") or place.scheme != _scheme(place.netloc):
        raise ValueError(f"it asks for {challenge.partition(' ')[0] or 'no known'} credentials")
    asked = {name: fields[name] for name in ("service", "scope") if name in fields}
    url = f"{realm}?{urllib.parse.urlencode(asked)}"
    answer = json.loads(_ask(url, "GET", {}).read(LONGEST_ANSWER))
    token = answer.get("token") or answer.get("access_token") if isinstance(answer, dict) else None
    # it goes into a header, which a line end would leave
    if not isinstance(token, str) or not re.fullmatch(r"[!-~]+", token):
        raise ValueError(f"{place.netloc} gave no token")
    return token
