"""Kill `pipeline.prepare` at every point of every write, sync and rename, then run it again.

    python crash_points.py INPUT TOKENIZER WORK_DIRECTORY STRIDE

A child of this process counts the points; then one child dies at every STRIDE-th point. After each
death there must be either no manifest or a complete directory, and a second run must give the bytes
of an undisturbed run. Prints the number of points tried.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import xxhash

from pipeline import prepare
from pipeline.data.shards.manifest import MANIFEST

INPUT, TOKENIZER, WORK = (Path(argument) for argument in sys.argv[1:4])
STRIDE = int(sys.argv[4])
POINT = -1
passed = 0


def point(before_dying: Callable[[], object] = lambda: None) -> None:
    """A point at which the process may die."""
    global passed
    if passed == POINT:
        before_dying()
        os._exit(137)
    passed += 1


def around(function: Callable[..., Any]) -> Callable[..., Any]:
    def wrapped(*arguments: Any, **options: Any) -> Any:
        point()
        result = function(*arguments, **options)
        point()
        return result

    return wrapped


class Dying:
    """A file whose process can die before a write, or with half of it on disk."""

    def __init__(self, file: Any) -> None:
        self.file = file

    def write(self, data: bytes) -> int:
        point()

        def half() -> None:
            self.file.write(bytes(data)[: len(data) // 2])
            self.file.flush()

        point(half)
        return int(self.file.write(data))

    def __enter__(self) -> Dying:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)


def prepare_into(output: Path) -> None:
    sys.argv = [
        "prepare", "--corpus", str(INPUT), "--recipe", "roberta_tiny", "--workers", "1",
        "--tokenizer", str(TOKENIZER), "--output", str(output), "--set", "data.duplicates=2",
    ]  # fmt: skip
    prepare.main()


def in_child(output: Path, die_at: int) -> int:
    """Prepare into `output` in a forked child; its exit code, or minus the points it passed."""
    global POINT
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        POINT = die_at
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.fsync = around(lambda descriptor: None)  # processes die here, disks do not
        os.replace = around(os.replace)
        original = Path.open
        Path.open = lambda self, mode="r", *a, **o: (  # type: ignore[method-assign, assignment]
            Dying(original(self, mode, *a, **o)) if mode == "wb" else original(self, mode, *a, **o)
        )
        prepare_into(output)
        os.write(write_end, str(passed).encode())
        os._exit(0)
    os.close(write_end)
    text = os.read(read_end, 100)
    os.close(read_end)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return -int(text) if code == 0 else code


def contents(directory: Path) -> dict[str, str]:
    return {
        file.relative_to(directory).as_posix(): xxhash.xxh3_64_hexdigest(file.read_bytes())
        for file in sorted(directory.rglob("*"))
        if file.is_file()
    }


def main() -> None:
    prepare_into(WORK / "undisturbed")  # in this process, so that children find all code compiled
    expected = contents(WORK / "undisturbed")
    points = -in_child(WORK / "counted", -1)
    assert contents(WORK / "counted") == expected
    output = WORK / "killed"
    for number in range(0, points, STRIDE):
        code = in_child(output, number)
        assert code == 137, f"point {number}: exit code {code}"
        if (output / MANIFEST).exists():
            found = {k: v for k, v in contents(output).items() if not k.startswith(".work/")}
            assert found == expected, f"point {number}: published before it was whole"
        assert in_child(output, -1) <= 0, f"point {number}: the second run failed"
        assert contents(output) == expected, f"point {number}: other bytes after a crash"
        shutil.rmtree(output)
    print(len(range(0, points, STRIDE)), "points")


if __name__ == "__main__":
    main()
