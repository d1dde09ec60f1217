"""The image's kernels serve any user who runs it, in a directory of their own."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CODE = Path(__file__).parents[2]
IMAGE_MODULE = CODE / "docker" / "tenfold_kernels.py"
PROGRAM = """
import numba
import pipeline.kernels.cache
@numba.njit(cache=True)
def double(x): return 2 * x
print(double(21))
"""


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory like the image's: the module, a program, and its kernels compiled in advance."""
    folder = tmp_path_factory.mktemp("image")
    shutil.copy(IMAGE_MODULE, folder)
    (folder / "program.py").write_text(PROGRAM)
    start(folder, NUMBA_CACHE_DIR=str(folder / "kernels"), NUMBA_CACHE_LOCATOR_CLASSES="")
    assert list((folder / "kernels").glob("*/*.nbc"))
    return folder


def start(image: Path, **environment: str) -> str:
    settings = os.environ | {"NUMBA_CACHE_LOCATOR_CLASSES": "tenfold_kernels.Kernels"}
    result = subprocess.run(
        [sys.executable, image / "program.py"], text=True, capture_output=True, check=False,
        env=settings | {"NUMBA_DEBUG_CACHE": "1", "PYTHONPATH": f"{image}:{CODE}"} | environment,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert "42" in result.stdout
    return result.stdout


def test_are_copied_to_where_the_user_may_write(image: Path, tmp_path: Path) -> None:
    said = start(image, NUMBA_CACHE_DIR=str(tmp_path / "cache"))
    assert "data loaded" in said and "data saved" not in said
    assert not list((tmp_path / "cache").glob(".kernels-*")), "a copy was left half-way"


def test_serve_where_nothing_but_temporary_files_can_be_written(
    image: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "tmp").mkdir()
    cache = tmp_path / "file" / "cache"  # below a file: not writable, even for root
    said = start(image, NUMBA_CACHE_DIR=str(cache), TMPDIR=str(tmp_path / "tmp"))
    assert "data loaded" in said and "data saved" not in said
    private = tmp_path / "tmp" / f"tenfold-cache-{os.getuid()}"
    assert private.stat().st_mode & 0o777 == 0o700


def test_of_another_cpu_are_compiled_again(image: Path, tmp_path: Path) -> None:
    said = start(image, NUMBA_CACHE_DIR=str(tmp_path / "cache"), NUMBA_CPU_NAME="generic")
    assert "data saved" in said
    again = start(image, NUMBA_CACHE_DIR=str(tmp_path / "cache"), NUMBA_CPU_NAME="generic")
    assert "data loaded" in again and "data saved" not in again
