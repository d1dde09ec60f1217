"""Kill `pipeline.prepare` at every point of every write, sync and rename, then run it again.

    python crash_points.py INPUT TOKENIZER WORK_DIRECTORY STRIDE

A child of this process counts the points; then one child dies at every STRIDE-th point. After each
death there must be either no manifest or a complete directory, and a second run must give the bytes
of an undisturbed run. Prints the number of points tried.
"""

import os
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from pipeline import prepare
from pipeline.data.shards.manifest import MANIFEST
from tests.pipeline.preparing import contents
from tests.pipeline.training.points import Points

INPUT, TOKENIZER, WORK = (Path(argument) for argument in sys.argv[1:4])
STRIDE = int(sys.argv[4])


def prepare_into(output: Path) -> None:
    sys.argv = [
        "prepare", "--corpus", str(INPUT), "--recipe", "roberta_tiny", "--workers", "1",
        "--tokenizer", str(TOKENIZER), "--output", str(output), "--set", "data.duplicates=2",
    ]  # fmt: skip
    prepare.main()


def in_child(output: Path, die_at: int) -> int:
    """Prepare into `output` in a forked child; its exit code, or minus the points it passed."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.fsync = lambda fd: None  # processes die here, disks do not
        points = Points(die_at)
        points.install()
        prepare_into(output)
        os.write(write_end, str(points.passed).encode())
        os._exit(0)
    os.close(write_end)
    text = os.read(read_end, 100)
    os.close(read_end)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return -int(text) if code == 0 else code


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
        assert (output / ".inputs.json").exists(), f"point {number}: times of inputs are lost"
        shutil.rmtree(output)
    print(len(range(0, points, STRIDE)), "points")


if __name__ == "__main__":
    main()
