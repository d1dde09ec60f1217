"""Prints what files of wandb's offline mode hold, as JSON; for a python that has wandb.

    python wandb_worker.py RUN.wandb...

A file is a LevelDB log after 7 bytes (":W&B", magic, version): blocks of 32 KiB with records of a
checksum (4 bytes), length (2) and type (1: whole, 2, 3, 4: first, middle, last part). Its messages
are those of wandb's own protocol.
"""

import json
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

BLOCK, HEADER = 32768, 7


def messages(content: bytes) -> Iterator[bytes]:
    assert content[:4] == b":W&B"
    place, parts = HEADER, b""
    while place + HEADER <= len(content):
        if BLOCK - place % BLOCK < HEADER:  # the rest of a block is padding
            place += BLOCK - place % BLOCK
            continue
        _, length, kind = struct.unpack("<IHB", content[place : place + HEADER])
        if kind == 0:
            return
        place += HEADER
        parts += content[place : place + length]
        place += length
        if kind in (1, 4):
            yield parts
            parts = b""


def read(path: Path) -> dict[str, Any]:
    from wandb.proto import wandb_internal_pb2

    found: dict[str, Any] = {"id": "", "config": {}, "history": []}
    for message in messages(path.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(message)
        kind = record.WhichOneof("record_type")
        if kind == "run":
            found["id"] = record.run.run_id
            found["config"] |= {i.key: json.loads(i.value_json) for i in record.run.config.update}
        elif kind == "config":
            found["config"] |= {i.key: json.loads(i.value_json) for i in record.config.update}
        elif kind == "history":
            items = record.history.item
            line = {i.key or "/".join(i.nested_key): json.loads(i.value_json) for i in items}
            found["history"].append(line)
    return found


if __name__ == "__main__":
    print(json.dumps([read(Path(path)) for path in sys.argv[1:]]))
