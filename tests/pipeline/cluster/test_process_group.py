"""How ranks meet; pipeline/training/optimizer/test_engine.py checks that they train correctly."""

import os
import socket
import sys

import pytest

from pipeline.base.errors import ConfigError
from pipeline.cluster.process_group import LAUNCHER_VARIABLES, init_distributed, timeout
from tests.launching import process


def test_an_incomplete_launcher_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in LAUNCHER_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match="but not LOCAL_RANK, MASTER_PORT"):
        init_distributed()


def test_a_batch_script_may_shorten_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TENFOLD_TIMEOUT_SECONDS", raising=False)
    assert timeout().total_seconds() == 1800
    monkeypatch.setenv("TENFOLD_TIMEOUT_SECONDS", "90")
    assert timeout().total_seconds() == 90
    for wrong in ("soon", "0", "inf", ""):
        monkeypatch.setenv("TENFOLD_TIMEOUT_SECONDS", wrong)
        with pytest.raises(ConfigError, match=f"TENFOLD_TIMEOUT_SECONDS='{wrong}'"):
            timeout()


def test_a_missing_rank_is_waited_for_only_until_the_timeout() -> None:
    """The other rank gives up after the configured time instead of half an hour."""
    code = (
        "from pipeline.cluster.process_group import init_distributed\n"
        "try:\n    init_distributed()\n"
        "except RuntimeError as error:\n    print(error)\n"
    )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    launched = {
        "RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port), "TENFOLD_TIMEOUT_SECONDS": "1",
    }  # fmt: skip
    result = process.run([sys.executable, "-c", code], env=os.environ | launched)
    assert result.stdout.startswith("rank(s) 1 of 2 did not start within 1 s"), result.stderr
