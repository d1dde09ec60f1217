"""`--profile`: a few steps -> RUN/profile/step-00000003.json.gz, which ui.perfetto.dev opens.

Only the first rank is traced, after the first steps, which compile and allocate.
"""

from __future__ import annotations

import sys
from pathlib import Path

from torch.profiler import profile

from pipeline.training.checkpoints.read import step_name

PROFILE = "profile"
WARM_UP_STEPS = 3
TRACED_STEPS = 3


class Trace:
    """Traces a few steps of one process into `folder`; None for no trace."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._made = 0
        self._profile: profile | None = None

    def step(self, number: int) -> None:
        """Count step `number`, which was just made."""
        if self._folder is None:
            return
        self._made += 1
        if self._made == WARM_UP_STEPS:
            self._profile = profile()  # traces the CPU, and the GPU if there is one
            self._profile.start()
        elif self._profile and self._made == WARM_UP_STEPS + TRACED_STEPS:
            self._profile.stop()
            self._write(self._folder, number)
            self._profile = None

    def close(self) -> None:
        """End a trace that is not complete."""
        if self._profile:
            self._profile.stop()
            print(
                f"warning: --profile needs {WARM_UP_STEPS + TRACED_STEPS} steps, the run made "
                f"{self._made}; no trace was written",
                file=sys.stderr,
            )

    def _write(self, folder: Path, last: int) -> None:
        assert self._profile
        path = folder / f"{step_name(last - TRACED_STEPS + 1)}.json.gz"
        # Torch compresses by the end of the name, so .tmp is not at the end.
        temporary = path.with_name(f".{path.name.removesuffix('.json.gz')}.tmp.json.gz")
        try:
            folder.mkdir(exist_ok=True)
            self._profile.export_chrome_trace(str(temporary))
            temporary.replace(path)
        except OSError as error:  # the run is worth more than its trace
            print(f"warning: cannot write {path}: {error.strerror}", file=sys.stderr)
