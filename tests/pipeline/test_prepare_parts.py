"""`--part i/n`: independent processes take tasks, as in a job array."""

import errno
import fcntl
import random
import sys
import time
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from pipeline.base.files import one_at_a_time
from pipeline.execution.ledger import lock_of
from pipeline.ingest.corpora.shared_list import ENDING
from tests.benchmarks.file_system_calls import FileSystemCalls
from tests.launching.process import ROOT
from tests.pipeline import preparing
from tests.pipeline.ingest.dump import large_dump
from tests.pipeline.preparing import Prepare, at_once, contents, finish, started, tiny

SMALL_UNITS = preparing.SMALL_SPLITS.with_name("small_units.py")
UNPUBLISHED = ROOT / "tests" / "benchmarks" / "unpublished_splits.py"
PREPARE = (sys.executable, "-m", "pipeline.prepare", "--corpus", "sample", "--workers", 1)


def test_parts_at_the_same_time(prepared: Path, tiny_tokenizer: Path, tmp_path: Path) -> None:
    """Three processes, of which exactly one publishes."""
    arguments = tiny(tiny_tokenizer, tmp_path / "out")
    found = at_once(*[(*PREPARE, "--part", f"{part}/3", *arguments) for part in (1, 2, 3)])
    assert [code for code, *_ in found] == [0, 0, 0], found
    out = "".join(text for _, text, _ in found)
    assert out.count("prepared 344 documents") == 1
    assert out.count("the last to finish publishes") + out.count("is complete already") == 2
    assert contents(tmp_path / "out") == contents(prepared)


def test_a_part_alone_does_everything_and_repeating_it_is_harmless(
    prepared: Path, tiny_tokenizer: Path, tmp_path: Path
) -> None:
    """With one element of an array at a time, the first does what all would do together."""
    arguments = tiny(tiny_tokenizer, tmp_path / "out")
    said = [finish(*PREPARE, "--part", part, *arguments).stdout for part in ("2/3", "2/3", "1/3")]
    assert "prepared 344 documents" in said[0]
    assert "complete already" in said[1] and "complete already" in said[2]
    assert contents(tmp_path / "out") == contents(prepared)


def test_a_part_leaves_what_a_living_one_does_and_the_plain_command_does_the_rest(
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
    assert "prepared 344 documents" in make("--corpus", "sample")
    assert contents(tmp_path / "out") == contents(prepared)


def test_another_part_asks_nothing_about_files_that_it_does_not_read(
    tiny_tokenizer: Path, tmp_path: Path
) -> None:
    """The first has found and extracted them; it has died, or is at the last split that is left."""
    root, folder, files = tmp_path / "root", tmp_path / "in", 100
    folder.mkdir()
    for number in range(files):
        (folder / f"{number:02d}.txt").write_text(f"Text {number} begins. It has an end. " * 40)
    calls = FileSystemCalls.below(folder, tmp_path / "counter")
    work = root / "out" / ".work"
    work.mkdir(parents=True)
    found = list[Counter[str]]()
    with ExitStack() as other:
        other.enter_context(one_at_a_time(work / ".task-000000.lock"))
        fcntl.flock(other.enter_context((work / "lock").open("w")), fcntl.LOCK_SH)
        for number in (1, 2):
            before = calls.read()
            command = [
                sys.executable, "-m", "pipeline.prepare", "--corpus", "mine", "--plain-text",
                "file", "--input", folder, "--workers", 1, "--part", f"{number}/2",
                *tiny(tiny_tokenizer, root / "out"),
            ]  # fmt: skip
            part = finish(*command, **calls.environment(), TENFOLD_ROOT=str(root))
            assert part.returncode == 0, part.stderr
            found.append(calls.read() - before)
            [listed] = (root / "documents").glob(f".*{ENDING}")
            fcntl.flock(other.enter_context(lock_of(listed).open("r+b")), fcntl.LOCK_SH)
    first, second = found
    assert min(first["open"], first["stat"], first["read"]) >= files
    del second["bytes"]
    assert max(second.values()) < files / 2, f"more than a look at a few: {second}"


def test_others_do_the_work_of_a_killed_part(tiny_tokenizer: Path, tmp_path: Path) -> None:
    """They keep what it has finished, and so does a part that is killed and run again."""
    corpus = preparing.many_documents(tmp_path / "in.jsonl")
    small = (sys.executable, preparing.SMALL_SPLITS, "--corpus", corpus, "--workers", 1)
    assert finish(*small, *tiny(tiny_tokenizer, tmp_path / "whole")).returncode == 0
    arguments = tiny(tiny_tokenizer, tmp_path / "out")
    work = tmp_path / "out" / ".work"
    kept: dict[Path, int] = {}
    for more in (5, 3):
        with started(*small, "--part", "1/2", *arguments) as killed:
            enough = len(kept) + more
            preparing.wait_until(lambda: len([*work.glob("part-*.json")]) >= enough, killed)  # noqa: B023
            killed.kill()
        assert {marker: marker.stat().st_mtime_ns for marker in kept} == kept, "done twice"
        kept = {marker: marker.stat().st_mtime_ns for marker in work.glob("part-*.json")}
    unpublished = (sys.executable, UNPUBLISHED, *small[2:])
    with (
        started(*small, "--part", "1/2", *arguments) as killed,
        started(*unpublished, "--part", "2/2", *arguments) as other,
    ):
        killed.kill()
        killed.communicate()
        _, error = other.communicate(timeout=120)
    assert other.returncode == 0, error
    assert {marker: marker.stat().st_mtime_ns for marker in kept} == kept, "done twice"
    last = finish(*small, "--part", "2/2", *arguments)
    assert "prepared 700 documents" in last.stdout, last.stderr
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def mixed_corpus(folder: Path) -> list[Path]:
    """Inputs that become packs, an extracted file with several units, and files that are read."""
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


def test_parts_that_all_need_a_tokenizer_train_one(tmp_path: Path) -> None:
    command = (*PREPARE, "--recipe", "roberta_tiny", "--set", "data.duplicates=1")
    parts = [(*command, "--part", f"{number}/2") for number in (1, 2)]
    found = at_once(*parts, TENFOLD_ROOT=str(tmp_path))
    assert [code for code, *_ in found] == [0, 0], found
    out = "".join(text for _, text, _ in found)
    assert out.count("training it on this corpus") == 1 and out.count("(trained on") == 1
    assert out.count("prepared 344 documents") == 1
    assert len([*tmp_path.glob("shards/*/manifest.json")]) == 1


def test_without_locks_the_user_publishes(
    prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Prepare
) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    for more in (["--part", "1/1"], []):
        out = make("--corpus", "sample", *more)
        assert ("run the command without --part" in out) == bool(more)
        assert ("prepared 344 documents" in out) == (not more)
    assert contents(tmp_path / "out") == contents(prepared)
