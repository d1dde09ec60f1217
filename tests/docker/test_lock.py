"""The locks satisfy pyproject.toml; a forgotten `make lock` fails here."""

import re
from itertools import chain
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.scripts import load_script

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10; pytest depends on tomli
    import tomli as tomllib  # type: ignore[no-redef]

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
lock = load_script(ROOT / "docker" / "lock.py")
LOCKS = sorted([*lock.FOLDER.glob("*.lock"), *lock.CI.glob("*.lock")])
VENV = ("build", "packages", "torch-cuda")


def locked(flavour: str) -> dict[str, str]:
    """Text by package of everything that this flavour of the image installs."""
    files = [ROOT / "docker" / f"{name}.lock" for name in (flavour, "source")]
    return {name: text for file in files for name, text in lock.blocks(file.read_text()).items()}


def version(block: str) -> Version:
    found = re.match(r"[\w.-]+==([\w.+!]+)", block)
    assert found, f"not an exact version: {block.splitlines()[0]}"
    return Version(found[1])


def is_for(requirement: Requirement, python: str) -> bool:
    """Whether Linux with this Python needs it."""
    machine = {
        "python_version": python, "python_full_version": f"{python}.1", "sys_platform": "linux",
        "platform_system": "Linux", "platform_machine": "x86_64",
        "implementation_name": "cpython", "platform_python_implementation": "CPython",
    }  # fmt: skip
    return requirement.marker is None or requirement.marker.evaluate(machine)


def check(wanted: list[str], found: dict[str, Version], where: str, python: str) -> None:
    """The packages that are found are what the project wants."""
    for requirement in map(Requirement, wanted):
        name = canonicalize_name(requirement.name)
        if name == PROJECT["name"] or not is_for(requirement, python):
            continue
        assert name in found, f"{where} lacks {requirement}: make lock"
        assert requirement.specifier.contains(found[name], prereleases=True), (
            f"{where} has {name} {found[name]}, the project asks {requirement}: make lock"
        )


@pytest.mark.parametrize("flavour", ["cuda", "cpu"])
def test_holds_what_the_project_asks_for(flavour: str) -> None:
    packages = {name: version(block) for name, block in locked(flavour).items()}
    extras = (PROJECT["optional-dependencies"][extra] for extra in lock.EXTRAS)
    wanted = [*PROJECT["dependencies"], *lock.ALSO, *chain.from_iterable(extras)]
    check(wanted, packages, f"docker/{flavour}.lock", "3.11")


@pytest.mark.parametrize("file", LOCKS, ids=lambda file: file.relative_to(ROOT).as_posix())
def test_every_version_is_exact_and_hashed(file: Path) -> None:
    assert lock.blocks(file.read_text())
    for name, text in lock.blocks(file.read_text()).items():
        for block in re.split(rf"^(?={name}==)", text, flags=re.M)[1:]:
            version(block)
            assert re.search(r"--hash=sha256:[0-9a-f]{64}\b", block), f"{name} has no hash"
            assert "://" not in block, f"{name} names a host"


def test_flavours_differ_in_torch_and_cuda_alone() -> None:
    cuda, cpu = ({n: version(b) for n, b in locked(f).items()} for f in ("cuda", "cpu"))
    assert cpu.pop("torch").local == "cpu"
    assert cpu.items() <= cuda.items()
    assert all(re.match("torch|triton|cuda-|nvidia-", name) for name in cuda.keys() - cpu.keys())


def installed(python: str) -> dict[str, Version]:
    """What `make venv` installs with this Python on Linux, with the torch of the package index."""
    found: dict[str, Version] = {}
    for file in VENV:
        text = (lock.CI / f"{file}.lock").read_text()
        for line in re.findall(r"^([A-Za-z0-9][^\\\n]*)", text, re.M):
            requirement = Requirement(line)
            if is_for(requirement, python):
                assert requirement.name not in found, f"{requirement.name} twice for {python}"
                found[requirement.name] = version(line)
    return found


@pytest.mark.parametrize("python", ["3.10", "3.11", "3.12", "3.13", "3.14"])
def test_make_venv_installs_what_the_project_asks_for(python: str) -> None:
    """For every Python, also what builds us; the wanted extras are all there are but wandb.

    Its test installs it into an environment of its own: other libraries behave differently beside.
    """
    extras = PROJECT["optional-dependencies"] | {"wandb": []}
    wanted = [
        *PROJECT["dependencies"], *chain.from_iterable(extras.values()),
        *PYPROJECT["build-system"]["requires"], *lock.BUILD,
    ]  # fmt: skip
    check(wanted, installed(python), f".ci for Python {python}", python)


def test_make_venv_serves_every_python_that_the_project_supports() -> None:
    assert PROJECT["requires-python"] == f">={lock.OLDEST_PYTHON}"


def test_a_package_has_one_lock_of_make_venv() -> None:
    """torch alone has two: the build without CUDA is of the same version, and has no packages."""
    packages = [lock.blocks((lock.CI / f"{name}.lock").read_text()) for name in VENV]
    names = [name for found in packages for name in found]
    assert len(names) == len(set(names))
    assert all(name == "torch" or lock.CUDA.match(name) for name in packages[2])
    without = lock.blocks((lock.CI / "torch-cpu.lock").read_text())
    assert list(without) == ["torch"]
    assert version(without["torch"]) == Version(f"{version(packages[2]['torch'])}+cpu")
    assert without["torch"] == locked("cpu")["torch"]


def test_torch_is_the_one_of_make_venv() -> None:
    pinned = re.search(r"^TORCH := torch==(.+)$", (ROOT / "Makefile").read_text(), re.M)
    assert pinned
    for flavour in ("cuda", "cpu"):
        assert version(locked(flavour)["torch"]).public == pinned[1]


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that is the page of torch's wheels."""
    file = tmp_path / "page.html"
    monkeypatch.setenv("TORCH_WHEELS", file.as_uri())
    return file


def test_reads_the_hashes_of_this_torch_for_every_machine(page: Path) -> None:
    digests = {
        "torch-9.1.0%2Bcpu-cp311-cp311-manylinux_2_28_x86_64.whl": "a" * 64,
        "torch-9.1.0%2Bcpu-cp313-cp313t-manylinux_2_28_aarch64.whl": "b" * 64,
        "torch-9.1.0%2Bcpu-cp311-cp311-win_amd64.whl": "c" * 64,
        "torch-9.1.0-cp312-none-macosx_11_0_arm64.whl": "d" * 64,
        "torch-9.1.01%2Bcpu-cp311-cp311-manylinux_2_28_x86_64.whl": "e" * 64,
    }
    page.write_text(
        "".join(f'<a href="{name}#sha256={digest}">x</a>' for name, digest in digests.items())
    )
    block = lock.torch_without_cuda("torch==9.1.0+cpu", "")
    assert re.findall(r"sha256:(\w)", block) == ["a", "b", "c"]
    with pytest.raises(SystemExit, match=r"has no wheel of torch==9\.2"):
        lock.torch_without_cuda("torch==9.2+cpu", "")


def test_hashes_of_the_same_torch_stay_if_its_page_does_not_answer(
    page: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = f"torch==9.1.0+cpu \\\n    --hash=sha256:{'a' * 64}\n"
    assert lock.torch_without_cuda("torch==9.1.0+cpu", kept) == kept
    assert "the hashes of torch==9.1.0+cpu stay" in capsys.readouterr().err
    with pytest.raises(SystemExit, match=r"no lock has hashes of torch==9\.1\+cpu"):
        lock.torch_without_cuda("torch==9.1+cpu", kept)
