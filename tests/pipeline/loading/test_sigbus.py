from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from pipeline.loading.sigbus import MESSAGE

CODE = """
import os, sys
from pathlib import Path
import numpy as np
from pipeline.loading.sigbus import announce_bus_errors
from pipeline.loading.dataset import Dataset
announce_bus_errors()
announce_bus_errors()
dataset = Dataset.open(Path(sys.argv[1]))
rows = np.arange(int(dataset.shard_rows.sum()))
dataset.records(rows, 0)
print("read", flush=True)
for shard in dataset.shards:
    os.truncate(dataset.directory / shard.masks[0].file, 1000)
dataset.records(rows, 0)
print("read again")
"""


def test_a_file_that_gets_shorter_while_mapped_is_one_line(prepared: Path, tmp_path: Path) -> None:
    data = shutil.copytree(prepared, tmp_path / "data")
    result = subprocess.run(
        [sys.executable, "-c", CODE, str(data)], capture_output=True, timeout=120, check=False
    )
    assert (result.returncode, result.stdout) == (2, b"read\n")
    assert result.stderr == MESSAGE and MESSAGE.count(b"\n") == 1
