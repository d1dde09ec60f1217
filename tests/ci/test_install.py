"""`make venv` refuses a file with another hash than its lock pins, in one line."""

import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.scripts import load_script

ROOT = Path(__file__).parents[2]
INSTALL = ROOT / ".ci" / "install.py"
install = load_script(INSTALL)
OTHER = "0" * 64
BOTH = pytest.mark.parametrize("tool", ["pip", "uv"])


def make_wheel(folder: Path, version: str) -> str:
    """The hash of a wheel of `small` that is now in `folder`."""
    wheel = folder / f"small-{version}-py3-none-any.whl"
    facts = f"small-{version}.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("small.py", f"version = {version!r}\n")
        archive.writestr(
            f"{facts}/METADATA", f"Metadata-Version: 2.1\nName: small\nVersion: {version}\n"
        )
        archive.writestr(
            f"{facts}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{facts}/RECORD", "")
    return hashlib.sha256(wheel.read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("wheels")


@pytest.fixture(scope="module")
def hashes(wheels: Path) -> dict[str, str]:
    """By version."""
    return {version: make_wheel(wheels, version) for version in ("1.0", "2.0+cpu")}


@pytest.fixture
def target(tmp_path: Path, wheels: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where both tools install, from `wheels` alone."""
    alone = ("--no-index", "--find-links", str(wheels), "--target", str(tmp_path / "target"))
    monkeypatch.setattr(install, "PIP", (*install.PIP, *alone))
    monkeypatch.setattr(install, "UV", (*install.UV, *alone))
    return tmp_path / "target"


def write_lock(folder: Path, version: str, digest: str, name: str = "some.lock") -> Path:
    lock = folder / name
    lock.write_text(f"small=={version} \\\n    --hash=sha256:{digest}\n    # via the project\n")
    return lock


def command(tool: str) -> tuple[str, ...]:
    found: tuple[str, ...] = install.UV if tool == "uv" else install.PIP
    return found


@BOTH
def test_installs_what_has_the_hash(
    tool: str, target: Path, tmp_path: Path, hashes: dict[str, str]
) -> None:
    assert not install.attempt(write_lock(tmp_path, "1.0", hashes["1.0"]), *command(tool))
    assert (target / "small.py").read_text() == "version = '1.0'\n"


@BOTH
def test_another_hash_is_refused_in_one_line(
    tool: str, target: Path, tmp_path: Path, hashes: dict[str, str]
) -> None:
    lock = write_lock(tmp_path, "1.0", OTHER)
    with pytest.raises(install.HashError) as caught:
        install.attempt(lock, *command(tool))
    line = str(caught.value)
    assert line.startswith(f"small==1.0 has the sha256 {hashes['1.0']}, which is not in some.lock;")
    assert "\n" not in line
    assert not (target / "small.py").exists()


@BOTH
def test_a_package_without_a_hash_is_refused(
    tool: str, target: Path, tmp_path: Path, hashes: dict[str, str]
) -> None:
    (tmp_path / "bare.lock").write_text("small==1.0\n")
    assert "require-hashes" in install.attempt(tmp_path / "bare.lock", *command(tool))
    assert not (target / "small.py").exists()


def test_pip_does_what_uv_cannot(
    target: Path, tmp_path: Path, hashes: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where only pip's configuration names the index."""
    monkeypatch.setattr(install, "UV", (*install.UV, "--no-such-option"))
    assert not install.install_packages(write_lock(tmp_path, "1.0", hashes["1.0"]))
    assert (target / "small.py").exists()


def test_pip_is_not_asked_for_what_uv_refuses(
    target: Path, tmp_path: Path, hashes: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(install, "PIP", ("no-such-command",))
    with pytest.raises(install.HashError):
        install.install_packages(write_lock(tmp_path, "1.0", OTHER))


def test_torch_without_cuda_comes_first(
    target: Path, tmp_path: Path, hashes: dict[str, str]
) -> None:
    cpu = write_lock(tmp_path, "2.0+cpu", hashes["2.0+cpu"], "torch-cpu.lock")
    cuda = write_lock(tmp_path, "1.0", hashes["1.0"], "torch-cuda.lock")
    assert not install.install_torch(cpu, cuda)
    assert (target / "small.py").read_text() == "version = '2.0+cpu'\n"


@pytest.mark.parametrize(
    ("version", "warned"), [("3.0+cpu", ""), ("2.0+cpu", "warning: small==2.0+cpu has the sha256")]
)
def test_else_the_package_index_has_torch(
    version: str,
    warned: str,
    target: Path,
    tmp_path: Path,
    hashes: dict[str, str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """If there is no build without CUDA, and, with a warning, if there is another than ours."""
    cpu = write_lock(tmp_path, version, OTHER, "torch-cpu.lock")
    cuda = write_lock(tmp_path, "1.0", hashes["1.0"], "torch-cuda.lock")
    assert not install.install_torch(cpu, cuda)
    assert (target / "small.py").read_text() == "version = '1.0'\n"
    lines = capsys.readouterr().err.splitlines()
    assert lines == [] if not warned else len(lines) == 1 and lines[0].startswith(warned)


@pytest.mark.parametrize(
    ("options", "version"), [([], "2.0+cpu"), (["--cuda"], "1.0")], ids=["usual", "cuda"]
)
def test_torch_with_cuda_if_it_is_asked_for(
    options: list[str],
    version: str,
    target: Path,
    tmp_path: Path,
    hashes: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """For the null GPU, also where there is a build without CUDA."""
    write_lock(tmp_path, "2.0+cpu", hashes["2.0+cpu"], "torch-cpu.lock")
    write_lock(tmp_path, "1.0", hashes["1.0"], "torch-cuda.lock")
    for name in ("build", "packages"):
        (tmp_path / f"{name}.lock").write_text("")
    monkeypatch.setattr(install, "FOLDER", tmp_path)
    monkeypatch.setattr(sys, "argv", ["install.py", *options])
    with pytest.raises(SystemExit):  # there is no checkout beside these locks
        install.main()
    assert (target / "small.py").read_text() == f"version = {version!r}\n"


def test_the_whole_script_ends_in_one_line(
    tmp_path: Path, wheels: Path, hashes: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where its first lock pins another hash."""
    (tmp_path / "install.py").write_text(INSTALL.read_text())
    write_lock(tmp_path, "1.0", OTHER, "build.lock")
    for name, value in (("NO_INDEX", "1"), ("FIND_LINKS", str(wheels)), ("TARGET", str(tmp_path))):
        monkeypatch.setenv(f"PIP_{name}", value)
    result = subprocess.run(
        [sys.executable, tmp_path / "install.py"], capture_output=True, text=True, check=False
    )
    assert result.returncode == 2
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith("error: small==1.0 has the sha256 ")
    assert not (tmp_path / "small.py").exists()
