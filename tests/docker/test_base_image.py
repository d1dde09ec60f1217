"""The base image gets its digest from a registry, here one on the loopback."""

import json
import time
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.pipeline.remote.publishers import Answering, served
from tests.scripts import load_script

ROOT = Path(__file__).parents[2]
base_image = load_script(ROOT / "docker" / "base_image.py")
DIGEST = "sha256:" + "5a" * 32
TOKEN = "a.token-of_this=registry"
BEFORE = "FROM nothing\n# a comment\nARG BASE_IMAGE={}\nARG FLAVOUR=cuda\n"


class Registry(Answering):
    """Has some/debian:slim, for those who ask for a token first; one attribute is one fault."""

    digest = DIGEST
    token: object = {"token": TOKEN}
    realm = ""
    is_silent = False
    asked: list[str]

    def do_HEAD(self) -> None:
        self.asked.append(f"HEAD {self.path}")
        if self.is_silent:
            time.sleep(1)
            return
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            here = self.realm or f"http://{self.headers['Host']}/token"
            scope = 'service="the registry",scope="repository:some/debian:pull"'
            self.reply(401, WWW_Authenticate=f'Bearer realm="{here}",{scope}')
        elif self.path != "/v2/some/debian/manifests/slim":
            self.reply(404)
        else:
            assert "application/vnd.oci.image.index.v1+json" in self.headers["Accept"]
            self.reply(200, **{"Docker-Content-Digest": self.digest} if self.digest else {})

    def do_GET(self) -> None:
        self.asked.append(f"GET {urllib.parse.unquote_plus(self.path)}")
        self.reply(200, json.dumps(self.token).encode())


Serve = Callable[..., str]


@pytest.fixture
def asked() -> list[str]:
    """The requests so far."""
    return []


@pytest.fixture
def serve(asked: list[str]) -> Iterator[Serve]:
    """Starts a registry and returns the image that it has."""
    with ExitStack() as servers:

        def start(**fault: object) -> str:
            kind = type("OneRegistry", (Registry,), {"asked": asked} | fault)
            address = servers.enter_context(served(kind))
            return f"{address.removeprefix('http://')}/some/debian:slim"

        yield start


@pytest.mark.parametrize(
    ("image", "url"),
    [
        ("debian", "https://registry-1.docker.io/v2/library/debian/manifests/latest"),
        ("some/debian:12", "https://registry-1.docker.io/v2/some/debian/manifests/12"),
        ("ours.example/a/debian:12", "https://ours.example/v2/a/debian/manifests/12"),
        ("ours.example:5000/debian", "https://ours.example:5000/v2/debian/manifests/latest"),
        ("localhost/debian:slim", "http://localhost/v2/debian/manifests/slim"),
        ("localhost:5000/debian:slim", "http://localhost:5000/v2/debian/manifests/slim"),
    ],
)
def test_finds_the_manifest_as_docker_does(image: str, url: str) -> None:
    assert base_image.manifest_url(image) == url


def test_gets_a_token_and_then_the_digest(serve: Serve, asked: list[str]) -> None:
    assert base_image.digest(serve()) == DIGEST
    manifest = "HEAD /v2/some/debian/manifests/slim"
    token = "GET /token?service=the registry&scope=repository:some/debian:pull"
    assert asked == [manifest, token, manifest]


def test_a_registry_may_call_it_an_access_token(serve: Serve) -> None:
    assert base_image.digest(serve(token={"access_token": TOKEN})) == DIGEST


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ({"digest": ""}, "its answer has no digest"),
        ({"digest": "sha256:5a\\nRUN evil"}, "its answer has no digest"),
        ({"token": {}}, "gave no token"),
        ({"token": ["a"]}, "gave no token"),
        ({"token": {"token": "two\r\nlines"}}, "gave no token"),
        ({"realm": "http://tokens.example/token"}, "asks for Bearer credentials"),
        ({"realm": "file:///etc/passwd"}, "asks for Bearer credentials"),
    ],
)
def test_an_unusable_answer_is_none(fault: dict[str, object], reason: str, serve: Serve) -> None:
    with pytest.raises(base_image.NoDigestError, match=reason):
        base_image.digest(serve(**fault))


def test_waits_for_a_bounded_time(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base_image, "SECONDS", 0.2)
    with pytest.raises(base_image.NoDigestError, match="timed out"):
        base_image.digest(serve(is_silent=True))


def test_pins_the_digest_and_keeps_the_tag(serve: Serve) -> None:
    image = serve()
    text, said = base_image.pin(BEFORE.format(image), upgrade=False)
    assert text == (
        "FROM nothing\n# a comment\n"
        "# BASE_IMAGE is pinned by digest; `make lock UPGRADE=--upgrade` takes the newest.\n"
        f"ARG BASE_IMAGE={image}@{DIGEST}\nARG FLAVOUR=cuda\n"
    )
    assert said == f"{image} is {DIGEST}"


def test_a_digest_stays_until_an_upgrade(serve: Serve, asked: list[str]) -> None:
    image = serve()
    old = f"{image}@sha256:{'00' * 32}"
    text, _ = base_image.pin(BEFORE.format(old), upgrade=False)
    assert text == BEFORE.format(old) and not asked
    text, _ = base_image.pin(text, upgrade=True)
    assert f"={image}@{DIGEST}\n" in text


def test_says_in_the_dockerfile_that_no_registry_answered(serve: Serve) -> None:
    image = serve().replace("slim", "no-such-tag")
    text, said = base_image.pin(BEFORE.format(image), upgrade=False)
    line = "# BASE_IMAGE is not pinned: no registry answered `make lock`, so this is a tag, "
    assert f"# a comment\n{line}which can move.\nARG BASE_IMAGE={image}\nARG" in text
    assert "no registry answered" in said and "404" in said
    assert base_image.pin(text, upgrade=False)[0] == text
    served = text.replace("no-such-tag", "slim")
    assert "not pinned" not in base_image.pin(served, upgrade=False)[0]


def test_a_digest_outlives_a_registry_that_does_not_answer(serve: Serve) -> None:
    image = f"{serve(digest='')}@{DIGEST}"
    text, said = base_image.pin(BEFORE.format(image), upgrade=True)
    assert f"ARG BASE_IMAGE={image}\n" in text and "is pinned" in text
    assert f"{image} stays" in said


def test_the_dockerfile_says_which_it_is() -> None:
    """One of the two lines that `make lock` writes."""
    dockerfile = (ROOT / "docker" / "Dockerfile").read_text()
    found = base_image.LINES.search(dockerfile)
    assert found
    assert ("is pinned by digest" in found[0]) == ("@sha256:" in found[1])
    assert ("is not pinned" in found[0]) != ("@sha256:" in found[1])
