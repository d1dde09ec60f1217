"""Where a run's metrics are shown besides metrics.jsonl: names for boards, and Weights & Biases.

RUN/wandb holds what wandb writes, and the run's `id`, so that a resumed run continues it.
wandb reads the project, the mode and the key where it always does: WANDB_PROJECT (here `tenfold` if
it is not set), WANDB_MODE=offline, WANDB_API_KEY.
"""

from __future__ import annotations

import importlib
import os
import queue
import re
import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pipeline.base.errors import ConfigError
from pipeline.base.files import make_directory, write_whole
from pipeline.config.run import Run
from pipeline.config.settings import to_dict

Line = Mapping[str, float | str]

TENSORBOARD, WANDB = "tensorboard", "wandb"
ID = "id"
BOARD_GROUPS = {
    "train": ("loss", "mlm_", "pair_", "sbo_", "rtd_", "words_", "mask_loss"),
    "optimizer": (
        "learning_rate", "grad_norm", "clip_", "trust_ratio", "relative_step", "update_rms",
        "skipped_updates",
    ),
    "speed": (
        "step_seconds", "data_seconds", "tokens_per_second", "slowest_", "model_flops_", "memory_",
    ),
}  # fmt: skip
"""Groups of tags by how the names of their fields start; others are in `run`."""
MOST_WAITING = 10_000
"""Lines that wait for wandb; more than it takes in a stall of hours are dropped."""
FINISH_SECONDS, CLOSE_SECONDS = 30.0, 45.0
"""How long the end of a run waits for uploads, and for wandb as a whole."""


def board_tag(name: str) -> str:
    """The tag of a field on a board: its group, which is a section of the page, and its name."""
    for group in ("validation", "general"):
        if name.startswith(f"{group}_"):
            return f"{group}/{name.removeprefix(f'{group}_')}"
    groups = (group for group, names in BOARD_GROUPS.items() if name.startswith(names))
    return f"{next(groups, 'run')}/{name}"


def check_boards(to: Sequence[str]) -> None:
    """Raises ConfigError if logging.to names wandb and it is not installed."""
    found = find_spec(WANDB) if WANDB in to else None
    if WANDB in to and (found is None or found.origin is None):  # a folder called wandb has none
        raise ConfigError(
            f"logging.to={list(to)} needs the wandb package: pip install '.[wandb]', or add "
            "--set 'logging.to=[\"tensorboard\"]'"
        )


class WeightsAndBiases:
    """Shows the lines of a run in Weights & Biases, from a thread of its own.

    Whatever wandb does, training does not wait for it: if it fails or stalls, there is one warning
    and later lines are not shown. The settings are sent once, when the run gets its id.
    """

    def __init__(self, run: Path, settings: Run, last: Line, tell: Callable[[str], None]) -> None:
        """last: the last line of the run so far, whether or not the run resumes before it."""
        self.run = run
        self.tell = tell
        # Without an id wandb has seen nothing, whatever metrics.jsonl has.
        shown = last if _read_id(run) else {}
        self._step, self._fields = int(shown.get("step", -1)), set(shown)
        """The last step that is shown, and its fields."""
        self._failed = False
        self._lines: queue.Queue[Line | None] = queue.Queue(MOST_WAITING)
        self._thread = threading.Thread(target=self._work, args=(settings,), daemon=True)
        self._thread.start()

    def show(self, line: Line) -> None:
        """Show a line, unless its step is restored and was shown before."""
        step, fields = int(line["step"]), set(line)
        if self._failed or step < self._step or (step == self._step and fields <= self._fields):
            return
        self._fields = fields | (self._fields if step == self._step else set())
        self._step = step
        try:
            self._lines.put_nowait(line)  # training never waits for wandb
        except queue.Full:
            self._fail(f"it accepted none of {MOST_WAITING:,} lines")

    def close(self) -> None:
        """Let wandb finish, and end it if that takes too long."""
        try:
            self._lines.put_nowait(None)
        except queue.Full:
            return self._fail(f"it accepted none of {MOST_WAITING:,} lines")
        self._thread.join(CLOSE_SECONDS)
        if self._thread.is_alive():
            self._fail(f"it has not finished within {CLOSE_SECONDS:.0f} s")

    def _work(self, settings: Run) -> None:
        try:
            board = self._begin(settings)
            while (line := self._lines.get()) is not None:
                values = {
                    board_tag(name): value
                    for name, value in line.items()
                    if name != "step" and not isinstance(value, str)
                }
                board.log(values, step=line["step"])
            board.finish()
        except Exception as error:  # whatever wandb raises: training continues without it
            self._fail(f"{type(error).__name__}: {str(error).split(chr(10))[0]}")

    def _begin(self, settings: Run) -> Any:
        """Begin the run, or continue it under its id."""
        wandb: Any = importlib.import_module("wandb")
        known = _read_id(self.run)
        chosen = known or secrets.token_hex(4)
        board = wandb.init(
            id=chosen,
            name=self.run.resolve().name,
            project=os.environ.get("WANDB_PROJECT", "tenfold"),
            dir=str(self.run),
            resume="allow" if known else None,
            config=None if known else to_dict(settings),  # sent once
            # silent: asks nothing and prints nothing between our lines
            settings=wandb.Settings(console="off", silent=True, finish_timeout=FINISH_SECONDS),
        )
        if not known:
            # After `init`: if wandb refuses the run, the next start tries again with another id.
            make_directory(self.run / WANDB, "name another --output")
            write_whole(self.run / WANDB / ID, chosen.encode())
        return board

    def _fail(self, why: str) -> None:
        if not self._failed:
            self.tell(
                f"warning: wandb stopped logging {self.run} ({why}); training continues, and "
                "metrics.jsonl has every line"
            )
        self._failed = True


def _read_id(run: Path) -> str:
    """The id of a run; empty if it has none."""
    try:
        found = (run / WANDB / ID).read_text(errors="replace").strip()
    except OSError:
        return ""
    return found if re.fullmatch(r"[0-9a-f]{8}", found) else ""
