"""The locks satisfy pyproject.toml; a forgotten `make lock` fails here."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10; pytest depends on tomli
    import tomli as tomllib  # type: ignore[no-redef]

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
MACHINE = {"python_version": "3.11", "sys_platform": "linux", "platform_system": "Linux"}


def load_lock() -> ModuleType:
    specification = importlib.util.spec_from_file_location("lock", ROOT / "docker" / "lock.py")
    assert specification and specification.loader
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


lock = load_lock()


def locked(flavour: str) -> dict[str, str]:
    """Text by package of everything that this flavour of the image installs."""
    files = [ROOT / "docker" / f"{name}.lock" for name in (flavour, "source")]
    return {name: text for file in files for name, text in lock.blocks(file.read_text()).items()}


def version(block: str) -> Version:
    found = re.match(r"[\w.-]+==([\w.+!]+)", block)
    assert found, f"not an exact version: {block.splitlines()[0]}"
    return Version(found[1])


@pytest.mark.parametrize("flavour", ["cuda", "cpu"])
def test_holds_what_the_project_asks_for(flavour: str) -> None:
    packages = locked(flavour)
    wanted = [*PROJECT["dependencies"], *lock.ALSO]
    for extra in lock.EXTRAS:
        wanted += PROJECT["optional-dependencies"][extra]
    for requirement in map(Requirement, wanted):
        if requirement.marker and not requirement.marker.evaluate(MACHINE):
            continue
        name = canonicalize_name(requirement.name)
        assert name in packages, f"docker/{flavour}.lock lacks {requirement}: make lock"
        found = version(packages[name])
        assert requirement.specifier.contains(found, prereleases=True), (
            f"docker/{flavour}.lock has {name} {found}, the project asks {requirement}: make lock"
        )


@pytest.mark.parametrize("flavour", ["cuda", "cpu"])
def test_every_version_is_exact_and_hashed(flavour: str) -> None:
    for name, block in locked(flavour).items():
        version(block)
        assert re.search(r"--hash=sha256:[0-9a-f]{64}\b", block), f"{name} has no hash"
        assert "://" not in block, f"{name} names a host"


def test_flavours_differ_in_torch_and_cuda_alone() -> None:
    cuda, cpu = ({n: version(b) for n, b in locked(f).items()} for f in ("cuda", "cpu"))
    assert cpu.pop("torch").local == "cpu"
    assert cpu.items() <= cuda.items()
    assert all(re.match("torch|triton|cuda-|nvidia-", name) for name in cuda.keys() - cpu.keys())


def test_what_make_venv_installs_is_constrained() -> None:
    """All except torch, which the Makefile pins, have the versions that the tests passed with."""
    lines = (ROOT / ".ci" / "constraints.txt").read_text().splitlines()
    constrained: dict[str, list[Version]] = {}
    for requirement in (Requirement(line) for line in lines if not line.startswith("#")):
        (exact,) = requirement.specifier
        assert exact.operator == "=="
        constrained.setdefault(canonicalize_name(requirement.name), []).append(
            Version(exact.version)
        )
    extras = PROJECT["optional-dependencies"].values()
    for wanted in map(Requirement, [*PROJECT["dependencies"], *(r for e in extras for r in e)]):
        if wanted.name not in ("tenfold", "torch"):
            found = constrained.get(canonicalize_name(wanted.name))
            assert found, f".ci/constraints.txt lacks {wanted}: make lock"
            assert all(map(wanted.specifier.contains, found)), f"{wanted}, not {found}: make lock"
    assert not any(re.match("torch$|triton|cuda-|nvidia-", name) for name in constrained)


def test_torch_is_the_one_of_make_venv() -> None:
    pinned = re.search(r"^TORCH := torch==(.+)$", (ROOT / "Makefile").read_text(), re.M)
    assert pinned
    for flavour in ("cuda", "cpu"):
        assert version(locked(flavour)["torch"]).public == pinned[1]


def test_reads_hashes_of_this_python_on_linux(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digests = {
        "torch-9.1.0%2Bcpu-cp311-cp311-manylinux_2_28_x86_64.whl": "a" * 64,
        "torch-9.1.0%2Bcpu-cp311-cp311-manylinux_2_28_aarch64.whl": "b" * 64,
        "torch-9.1.0%2Bcpu-cp311-cp311-win_amd64.whl": "c" * 64,
        "torch-9.1.0%2Bcpu-cp312-cp312-manylinux_2_28_x86_64.whl": "d" * 64,
        "torch-9.1.01%2Bcpu-cp311-cp311-manylinux_2_28_x86_64.whl": "e" * 64,
    }
    page = "".join(f'<a href="{name}#sha256={digest}">x</a>' for name, digest in digests.items())
    (tmp_path / "page.html").write_text(page)
    monkeypatch.setenv("TORCH_WHEELS", (tmp_path / "page.html").as_uri())
    block = lock.torch_hashes("torch==9.1.0+cpu")
    assert re.findall(r"sha256:(\w)", block) == ["a", "b"]
    with pytest.raises(SystemExit, match=r"has no wheel torch==9\.2"):
        lock.torch_hashes("torch==9.2+cpu")
