"""`--part i/n`: independent processes take tasks, as in a job array."""

import fcntl
import random
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from pipeline.base.files import one_at_a_time
from tests.pipeline import preparing
from tests.pipeline.ingest.dump import large_dump
from tests.pipeline.preparing import Prepare, contents, finish, started, tiny

SMALL_UNITS = preparing.SMALL_SPLITS.with_name("small_units.py")


def test_a_part_leaves_what_a_living_one_does_and_another_does_the_rest(
    prepared: Path, tmp_path: Path, make: Prepare
) -> None:
    """The other part has taken one split when it is stopped, as by a node that has hung."""
    work = tmp_path / "out" / ".work"
    work.mkdir(parents=True)
    with (work / "lock").open("w") as other, one_at_a_time(work / ".task-000003.lock"):
        fcntl.flock(other, fcntl.LOCK_SH)
        said = make("--corpus", "sample", "--part", "1/2")
    assert "part 1/2 is finished; other parts are running" in said
    done = {path.name for path in work.glob("task-*.json")}
    assert done == {f"task-{number:06d}.json" for number in (0, 1, 2, 4)}
    assert "prepared 344 documents" in make("--corpus", "sample", "--part", "2/3")
    assert "complete already" in make("--corpus", "sample", "--part", "1/3")
    assert contents(tmp_path / "out") == contents(prepared)


def mixed_corpus(folder: Path) -> list[Path]:
    """Inputs that become packs, an extracted file, and files that are read."""
    small = folder / "small"
    small.mkdir(parents=True)
    for number in range(80):
        (small / f"{number:02d}.txt").write_text(f"Text {number} begins. It has an end. " * 40)
    lines = preparing.many_documents(folder / "in.jsonl", 300)
    return [small, large_dump(folder / "pages.xml", 60), lines]


def finished(root: Path) -> set[tuple[int, int]]:
    """Inode and time of what finished tasks wrote: extracted files, and markers of parts and
    shards, also after all is published."""
    paths = [*(root / "documents").glob("[!.]*.parquet")]
    for place in (root / "out" / ".work", root / "markers"):
        paths += [*place.glob("part-*.json"), *place.glob("shard-*.json")]
    found = set()
    for path in paths:
        with suppress(FileNotFoundError):  # published just now
            found.add((path.stat().st_ino, path.stat().st_mtime_ns))
    return found


@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_parts_killed_at_random_moments(kills: int, tiny_tokenizer: Path, tmp_path: Path) -> None:
    """One or both of two parts: what tasks have finished is kept, and the bytes are the same."""
    inputs = mixed_corpus(tmp_path / "in")

    def part(number: int, root: Path) -> list[object]:
        return [
            sys.executable, SMALL_UNITS, "--corpus", "mine", "--input", *inputs, "--workers", 1,
            "--part", f"{number}/2", *tiny(tiny_tokenizer, root / "out"),
            "--set", "data.duplicates=1",
        ]  # fmt: skip

    def places(root: Path) -> dict[str, str]:
        return {"TENFOLD_ROOT": str(root), "MARKERS": str(root / "markers")}

    def made(root: Path) -> list[dict[str, str]]:
        documents = contents(root / "documents")
        kept = {name: documents[name] for name in documents if not name.startswith(".")}
        return [contents(root / "out"), kept]

    def run_both(root: Path, until: int, victims: tuple[int, ...] = ()) -> set[tuple[int, int]]:
        """Kill the victims when so many files are finished; returns what was finished then."""
        with ExitStack() as stack:
            parts = {
                number: stack.enter_context(started(*part(number, root), **places(root)))
                for number in (1, 2)
            }
            while len(finished(root)) < until and None in [p.poll() for p in parts.values()]:
                time.sleep(0.005)
            time.sleep(chance.uniform(0, 0.1))
            for victim in victims:
                parts[victim].kill()
            kept = finished(root)
            for number, process in parts.items():
                out, error = process.communicate(timeout=120)
                assert process.returncode == 0 or number in victims, out + error
        return kept

    chance = random.Random(0)
    run_both(tmp_path / "whole", 0)
    expected, total = made(tmp_path / "whole"), len(finished(tmp_path / "whole"))
    assert total > 20
    for kill in range(kills):
        root = tmp_path / f"kill-{kill}"
        victims = chance.choice([(1,), (2,), (1, 2)])
        kept = run_both(root, chance.randrange(total), victims)
        for number in (1, 2):
            result = finish(*part(number, root), **places(root))
            assert result.returncode == 0, result.stderr
        assert kept <= finished(root), f"{kill}: finished work was done again"
        assert made(root) == expected, f"{kill}: {victims}"
