"""Work is done once, by one process, with the same settings."""

import json
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pipeline.base.errors import ConfigError, DataError
from pipeline.base.files import one_at_a_time, remove_temporaries
from pipeline.execution.ledger import check_same_work, hold_lock, lock_of, only_once, record_once
from tests.pipeline.conftest import started
from tests.pipeline.test_train import wait_for


def test_a_file_is_written_by_one_while_the_others_wait(tmp_path: Path) -> None:
    target = tmp_path / "a.parquet"
    written: list[int] = []

    def make(number: int) -> None:
        with only_once(target) as temporary:
            if temporary is not None:
                time.sleep(0.02)
                temporary.write_text(str(number))
                written.append(number)
        assert target.exists()

    with ThreadPoolExecutor(8) as pool:
        assert len([*pool.map(make, range(8))]) == 8
    assert target.read_text() == str(written[0]) and len(written) == 1
    with only_once(tmp_path / "b", instead=target) as temporary:
        assert temporary is None


def test_a_kill_leaves_no_half_of_a_file_and_no_lock(tmp_path: Path) -> None:
    """And the next process makes it; what the killed one left is removed."""
    target, ready = tmp_path / "a", tmp_path / "ready"
    code = (
        "import time; from pathlib import Path; from pipeline.execution.ledger import only_once\n"
        f"with only_once(Path({str(target)!r})) as temporary:\n"
        f"    temporary.write_text('half'); Path({str(ready)!r}).touch(); time.sleep(60)"
    )
    with started(sys.executable, "-c", code) as process:
        wait_for(ready, process)
        remove_temporaries(tmp_path)
        assert len([*tmp_path.glob(".a.*.tmp")]) == 1  # in use
    assert not target.exists()
    remove_temporaries(tmp_path)
    assert not [*tmp_path.glob(".a.*.tmp")]
    with only_once(target) as temporary:
        assert temporary is not None
        temporary.write_text("whole")
    assert target.read_text() == "whole"


def test_work_is_taken_by_one(tmp_path: Path) -> None:
    lock_of(tmp_path / "a").symlink_to(tmp_path / "mine")
    with pytest.raises(DataError, match=r"/\.a\.lock is a link"), only_once(tmp_path / "a"):
        pass
    assert not (tmp_path / "mine").exists()
    lock = tmp_path / "runs" / ".a.lock"
    with hold_lock(lock) as first, hold_lock(lock) as second:
        assert first is not None and second is None
    with hold_lock(lock) as again:
        assert again is not None


@pytest.mark.usefixtures("no_locks")
def test_where_there_are_no_locks_work_is_done_and_no_file_removed(tmp_path: Path) -> None:
    with only_once(tmp_path / "made") as mine, only_once(tmp_path / "made") as theirs:
        assert mine is not None and theirs is not None
        mine.write_text("second")
        theirs.write_text("first")
    assert (tmp_path / "made").read_text() == "first", "a process may be reading it"
    with hold_lock(tmp_path / ".a.lock") as lock:
        assert lock is not None
    with only_once(tmp_path / "a") as temporary:
        assert temporary is not None
        temporary.touch()
        remove_temporaries(tmp_path)
        assert temporary.exists(), "it is in use"


def test_the_settings_of_the_first_process_stay(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    first = {"task": "sst2", "seeds": [1, 2]}
    assert record_once(path, first, "start over") == first
    assert record_once(path, {"task": "rte"}, "start over") == first
    check_same_work(tmp_path, first, json.loads(path.read_text()))
    with pytest.raises(ConfigError, match=r"was made with seeds \[1, 2\], not None; repeat that"):
        check_same_work(tmp_path, first, {"task": "sst2"})
    path.write_text("")
    with pytest.raises(DataError, match=r"settings\.json is damaged: it is empty; start over$"):
        record_once(path, first, "start over")
    path.unlink()  # settings wait for their writer
    with one_at_a_time(lock_of(path)):
        thread = threading.Thread(target=record_once, args=(path, {"a": 2}, "start over"))
        thread.start()
        path.write_text('{"a": 1}')
    thread.join(timeout=30)
    assert path.read_text() == '{"a": 1}'
