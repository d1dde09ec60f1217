"""The device that computes nothing, on which tests run the GPU's path (tests/null_gpu).

Weights and scores made there look like any others. So files name this device, readers of weights or
scores refuse them, and its rates are those of no GPU.
"""

from __future__ import annotations

from pipeline.base.errors import CheckpointError

NULL = "null"
"""Stands in files for a device's name."""
KEY = "tenfold_device"
"""Entry of a folder's config.json, which is another library's file; only there if it is NULL."""
_NAME = "Tenfold null GPU"
"""Start of the device's name, as its driver reports it."""


def recorded_device(name: str) -> str:
    """The name of a device as files record it: itself, or NULL."""
    return NULL if name.startswith(_NAME) else name


def null_entry(device: str) -> dict[str, str]:
    """The entry of a file that names no device unless it is the null one; device: as recorded."""
    return {"device": NULL} if device == NULL else {}


def refuse_null(device: object, what: object) -> None:
    """Raises CheckpointError for a file that is recorded to be from the null device.

    device: the file's entry, of any type; what: the file's name.
    """
    if device == NULL:
        raise CheckpointError(
            f"{what} was made on a null GPU, which computes nothing; make it again on a real device"
        )


def check_same_device(before: str, now: str, what: object) -> None:
    """Raises CheckpointError if weights would go from the null device to a real one or back.

    before: the recorded device of the weights `what`; now: this run's.
    """
    if now != NULL:
        refuse_null(before, what)
    elif before != NULL:
        raise CheckpointError(
            f"{what} holds weights of a real run, and this device computes nothing; name another "
            "--output"
        )
