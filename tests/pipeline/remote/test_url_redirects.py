"""Redirects of URLs that fsspec reads, from a server with a certificate of its own."""

import datetime
import ipaddress
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.base.errors import DataError
from pipeline.remote.urls import local_inputs
from tests.pipeline.remote.publishers import Answering, served

connector = pytest.importorskip("aiohttp.connector", reason="pip install '.[s3]' brings aiohttp")
x509 = pytest.importorskip("cryptography.x509", reason="pip install '.[dev]' brings cryptography")

LINE = b'{"text": "It rained all day."}\n'


class Moved(Answering):
    """/same.jsonl leads to a page of the same server, /open.jsonl to one without encryption."""

    def answer(self) -> None:
        places = {"/same.jsonl": "/page.jsonl", "/open.jsonl": "http://127.0.0.1:9/page.jsonl"}
        if self.path in places:
            self.reply(302, Location=places[self.path])
        else:
            self.reply(200, LINE)


@pytest.fixture
def secure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of an https server that clients here trust."""
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    write_certificate(certificate, key)
    trusting = ssl.create_default_context(cafile=certificate)
    monkeypatch.setattr(connector, "_SSL_CONTEXT_VERIFIED", trusting)  # made at import
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with served(Moved, context) as address:
        yield address


def write_certificate(certificate: Path, key: Path) -> None:
    """For 127.0.0.1, valid today."""
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    private = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a test")])
    now = datetime.datetime.now(datetime.timezone.utc)
    here = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    day = datetime.timedelta(days=1)
    made = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).serial_number(1)
        .public_key(private.public_key()).not_valid_before(now - day).not_valid_after(now + day)
        .add_extension(here, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(private, hashes.SHA256())
    )  # fmt: skip
    pem = serialization.Encoding.PEM
    certificate.write_bytes(made.public_bytes(pem))
    pkcs8, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    key.write_bytes(private.private_bytes(pem, pkcs8, plain))


def test_a_redirect_leaves_no_secure_connection(secure: str, tmp_path: Path) -> None:
    [path] = local_inputs([f"{secure}/same.jsonl"], tmp_path / "downloads")
    assert Path(path).read_bytes() == LINE
    with pytest.raises(DataError, match="redirected from https to http, which is not followed"):
        local_inputs([f"{secure}/open.jsonl"], tmp_path / "downloads")
