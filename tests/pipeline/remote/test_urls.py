"""URLs against local servers: S3 through moto, HTTP, and HTTPS with a certificate of its own."""

import datetime
import gzip
import ipaddress
import socket
import ssl
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pipeline import prepare
from pipeline.base.errors import ConfigError, DataError
from pipeline.base.files import whole_file
from pipeline.ingest.corpora.sources import corpus_sources
from pipeline.remote import urls
from pipeline.remote.urls import is_url, local_inputs
from tests.pipeline.preparing import Prepare, contents, tiny
from tests.pipeline.remote.publishers import Answering, served

moto_server = pytest.importorskip("moto.server", reason="pip install '.[dev]' brings moto")
x509 = pytest.importorskip("cryptography.x509", reason="pip install '.[dev]' brings cryptography")
s3fs = pytest.importorskip("s3fs", reason="pip install '.[s3]' brings s3fs")

Put = Callable[[str, bytes], None]
SECRETS = ("topsecret", "deadbeef")
LINE = b'{"text": "It rained all day. Nobody went out."}\n'
PACKED = gzip.compress(LINE * 100_000)


@pytest.fixture(scope="module")
def bucket() -> Iterator[Put]:
    """put(key, content) writes to s3://texts on a server that the environment names."""
    server = moto_server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        patch.setenv("AWS_ACCESS_KEY_ID", "me")
        patch.setenv("AWS_SECRET_ACCESS_KEY", SECRETS[0])
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        system = s3fs.S3FileSystem()
        system.mkdir("texts")

        def put(key: str, content: bytes) -> None:
            system.pipe(f"texts/{key}", content)
            system.invalidate_cache()

        yield put
        s3fs.S3FileSystem.clear_instance_cache()
    server.stop()


class Pages(Answering):
    """/name?sig=deadbeef[&se=...] returns a line of text; other queries are refused."""

    def answer(self) -> None:
        path, _, query = self.path.partition("?")
        if path == "/missing.jsonl":
            self.send_error(404)
        elif path == "/packed.jsonl":
            self.reply(200, PACKED, Content_Encoding="gzip")
        elif query.partition("&se=")[0] != f"sig={SECRETS[1]}":
            self.send_error(403)
        else:
            self.reply(200, LINE, Content_Length=len(LINE) + (path == "/short.jsonl"))


@pytest.fixture
def web() -> Iterator[str]:
    """HOST:PORT."""
    with served(Pages) as address:
        yield address.removeprefix("http://")


def test_urls_and_paths() -> None:
    prefixes = ("s3://", "https://", "hdfs://", "wikipedia=s3://", "simplecache::s3://")
    assert all(is_url(f"{prefix}a/b") for prefix in prefixes)
    for given in ("a/b", "/a:b", "wikipedia=a/b", "*.jsonl", "a::b", "a//b"):
        assert not is_url(given)
    assert local_inputs(["a", "wikipedia=b/*"], Path("nowhere")) == ["a", "wikipedia=b/*"]


def test_globs_and_directories_on_s3(
    bucket: Put, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("b.jsonl", "a.jsonl", "c.txt"):
        bucket(f"glob/{name}", LINE + name.encode())
    paths = local_inputs(["news=s3://texts/glob/*.jsonl", "local.jsonl"], tmp_path)
    assert paths[-1] == "local.jsonl"
    copies = [Path(path.removeprefix("news=")) for path in paths[:-1]]
    assert [copy.name for copy in copies] == ["a.jsonl", "b.jsonl"]
    assert [copy.read_bytes() for copy in copies] == [LINE + b"a.jsonl", LINE + b"b.jsonl"]
    for name in ("AA/wiki_00", "AB/wiki_00", "AB/.hidden", "AB/empty", "_temporary/0/wiki_00"):
        bucket(f"wiki/{name}", LINE if "wiki_00" in name else b"x" * ("hidden" in name))
    [tree] = local_inputs(["s3://texts/wiki"], tmp_path / "downloads")
    _, sources = corpus_sources("own", [tree])
    assert [source.name for source in sources] == ["AA/wiki_00", "AB/wiki_00"]
    assert "s3://texts/wiki: 2 file(s) and folder(s) are skipped" in capsys.readouterr().out
    assert local_inputs(["s3://texts/wiki/"], tmp_path / "downloads") == [tree]


def test_a_copy_is_reused_until_the_version_changes(
    bucket: Put, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """A job of Slurm reads the last one, without any request."""
    inputs, downloads = ["s3://texts/new.jsonl"], tmp_path / "downloads"
    bucket("new.jsonl", LINE)
    with pytest.raises(ConfigError, match=r"1 of 1 files .* 0\.0 MB"):
        local_inputs(inputs, downloads, copying=False)
    assert not downloads.exists()
    [first] = local_inputs(inputs, downloads)
    assert "fetching 1 of 1 files" in capsys.readouterr().out
    written = Path(first).stat().st_mtime_ns
    for copying in (True, False):
        assert local_inputs(inputs, downloads, copying=copying) == [first]
    with monkeypatch.context() as job:
        job.delenv("TENFOLD_FETCH", raising=False)
        job.setenv("SLURM_JOB_ID", "7")
        job.setattr(urls, "_listed", None)
        assert local_inputs(inputs, downloads) == [first]
        with pytest.raises(
            ConfigError, match=r"^s3://texts/other is not in TENFOLD_ROOT, .*--fetch"
        ):
            local_inputs(["s3://texts/other"], downloads)
    assert Path(first).stat().st_mtime_ns == written
    assert capsys.readouterr().out == ""
    bucket("new.jsonl", LINE.replace(b"rain", b"snow"))
    [second] = local_inputs(inputs, downloads)
    assert second != first and b"snow" in Path(second).read_bytes()
    assert Path(first).read_bytes() == LINE


def test_a_restart_continues(bucket: Put, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(6):
        bucket(f"many/{number}.jsonl", LINE * (number + 1))
    copied: list[str] = []

    @contextmanager
    def dies(target: Path) -> Iterator[Path]:
        with whole_file(target) as temporary:
            if len(copied) >= 4:
                temporary.write_bytes(b"half")
                raise KeyboardInterrupt
            yield temporary
            copied.append(target.name)

    monkeypatch.setattr(urls, "_AT_ONCE", 1)
    with monkeypatch.context() as killed:
        killed.setattr(urls, "whole_file", dies)
        with pytest.raises(KeyboardInterrupt):
            local_inputs(["s3://texts/many/*"], tmp_path)
    assert len(list(tmp_path.glob("*/*.jsonl"))) == 4 and not list(tmp_path.glob("*/.*.tmp"))
    written = {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("*/*.jsonl")}
    paths = [Path(path) for path in local_inputs(["s3://texts/many/*"], tmp_path)]
    assert [path.read_bytes() for path in paths] == [LINE * (n + 1) for n in range(6)]
    assert written.items() <= {path.name: path.stat().st_mtime_ns for path in paths}.items()


def test_a_renewed_signature_finds_the_same_copy(web: str, tmp_path: Path) -> None:
    """The service reports no version, so the URL stands for it."""
    signed = f"http://{web}/page.jsonl?sig={SECRETS[1]}"
    [path] = local_inputs([signed], tmp_path)
    assert Path(path).read_bytes() == LINE and Path(path).name == "page.jsonl"
    assert not [name for name in tmp_path.rglob("*") if SECRETS[1] in str(name)]
    assert local_inputs([f"{signed}&se=2030"], tmp_path, copying=False) == [path]


def test_errors_are_one_line_without_secrets(web: str, bucket: Put, tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        closed = f"127.0.0.1:{unused.getsockname()[1]}"
        signed = f"?sig={SECRETS[1]}"
        user = f"me:{SECRETS[0]}@"
        for url, message in (
            (f"http://{web}/missing.jsonl{signed}", f"http://{web}/missing.jsonl cannot be"),
            (
                f"http://{user}{web}/x?sig=no{SECRETS[1]}",
                f"http://{web}/x cannot be fetched (HTTP 403",
            ),
            (f"http://{user}{closed}/x{signed}", f"http://{closed}/x cannot be fetched"),
            (f"http://{web}/short.jsonl{signed}", f"http://{web}/short.jsonl cannot be fetched"),
            ("s3://texts/nothing.jsonl", "s3://texts/nothing.jsonl does not exist"),
            ("s3://texts/nothing/*.jsonl", "s3://texts/nothing/*.jsonl has no files"),
            ("s3://no-such-bucket/x", "s3://no-such-bucket/x cannot be fetched (An error"),
            (f"s3://AKIA:{SECRETS[0]}/{SECRETS[1]}@texts/x", "s3://texts/x "),
            (f"http://me:{SECRETS[0]}@{SECRETS[1]}@{web}/x", f"http://{web}/x "),
            (f"http://{web}/missing.jsonl;key={SECRETS[0]}", f"http://{web}/missing.jsonl "),
        ):
            with pytest.raises(DataError) as caught:
                local_inputs([url], tmp_path)
            said = str(caught.value)
            assert said.startswith(message) and "\n" not in said, said
            assert not any(secret in said for secret in SECRETS), said
    assert not [*tmp_path.rglob("*.jsonl"), *tmp_path.rglob("*.tmp")]


def test_an_encoded_answer_takes_no_more_than_was_sent(web: str, tmp_path: Path) -> None:
    """Unpacked it could fill the disk; compressed files are read as they are."""
    [path] = local_inputs([f"http://{web}/packed.jsonl"], tmp_path)
    assert Path(path).read_bytes() == PACKED


def test_missing_drivers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the real fsspec and Arrow, whose error lists every path searched for Java."""
    with pytest.raises(ConfigError, match=r"sss3://a/b is not a URL that fsspec supports"):
        local_inputs(["sss3://a/b"], tmp_path)
    for name in ("JAVA_HOME", "HADOOP_HOME", "ARROW_LIBHDFS_DIR"):
        monkeypatch.setenv(name, str(tmp_path))
    with pytest.raises((ConfigError, DataError)) as caught:
        local_inputs(["hdfs://nowhere.invalid/a?x=1"], tmp_path)
    said = str(caught.value)
    assert said.startswith("hdfs://nowhere.invalid/a") and "?x" not in said
    assert len(said) < 400 and "\n" not in said
    if isinstance(caught.value, ConfigError):
        assert "set JAVA_HOME, HADOOP_HOME" in said

    def refuse(url: str, **options: object) -> None:
        raise OSError("no " * 1000)

    monkeypatch.setattr("fsspec.core.url_to_fs", refuse)
    with pytest.raises(DataError, match=r"^s3://a/b cannot be fetched .no no no") as caught:
        local_inputs(["s3://a/b"], tmp_path)
    assert len(str(caught.value)) < 400, "long messages of services are shortened"


def test_urls_and_files_give_the_same_shards_without_secrets(
    web: str, bucket: Put, tiny_tokenizer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    (tmp_path / "page.jsonl").write_bytes(LINE)
    (tmp_path / "more.jsonl").write_bytes(LINE.replace(b"rain", b"snow") * 30)
    bucket("end/more.jsonl", (tmp_path / "more.jsonl").read_bytes())
    addresses = [f"http://{web}/page.jsonl?sig={SECRETS[1]}", "s3://texts/end/*"]
    for name, inputs in (("local", [*tmp_path.glob("*.jsonl")]), ("urls", addresses)):
        output = tiny(tiny_tokenizer, tmp_path / name / "out")
        words = ["prepare", "--corpus", "own", "--workers", 1, *output, "--input", *inputs]
        monkeypatch.setattr(sys, "argv", [*map(str, words)])
        monkeypatch.setenv("TENFOLD_ROOT", str(tmp_path / name))
        prepare.main()
    assert contents(tmp_path / "urls" / "out") == contents(tmp_path / "local" / "out")
    files = [path for path in (tmp_path / "urls").rglob("*") if path.is_file()]
    said = "".join([*capfd.readouterr(), *map(str, files)])
    found = said.encode() + b"".join(path.read_bytes() for path in files)
    assert found.count(b"fetching 1 of 1 files") == 2
    assert not any(secret.encode() in found for secret in SECRETS)


def test_fetch_only_copies(
    web: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Prepare
) -> None:
    monkeypatch.setenv("TENFOLD_ROOT", str(tmp_path))
    url = f"http://{web}/page.jsonl?sig={SECRETS[1]}"
    said = [run("--corpus", corpus, "--input", url, "--fetch") for corpus in ("cc-news", "own")]
    assert ["fetching 1 of 1 files" in each for each in said] == [True, False]
    assert [path.name for path in tmp_path.iterdir()] == ["downloads"]


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
    monkeypatch.setattr(ssl, "_create_default_https_context", lambda: trusting)
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
    with pytest.raises(DataError, match=r"redirected to http\)"):
        local_inputs([f"{secure}/open.jsonl"], tmp_path / "downloads")
