"""A run's progress for its user: a bar on a terminal, a line per minute in the log of a job."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from types import TracebackType

from tqdm import tqdm

from pipeline.base.durations import in_words
from pipeline.training.run_directory.metrics_log import memory_gb

SECONDS_BETWEEN_LINES = 60.0
SLOW_STEP_SECONDS = 5.0
"""In steps longer than this, the bar moves with every micro-batch."""
BAR_FORMAT = (
    "{desc}: {percentage:3.0f}%|{bar}| {n:.2f}/{total_fmt} [{elapsed}<{remaining}{postfix}]"
)


class Display:
    """Shows the progress of a run; of all ranks, the first one's is shown."""

    def __init__(
        self,
        name: str,
        step: int,
        last_step: int,
        *,
        shown: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """step: steps made before this job; last_step: the step at which the job ends."""
        self._bar = tqdm(
            total=last_step,
            initial=step,
            desc=name,
            unit="step",
            disable=None if shown else True,  # None: off unless on a terminal
        )
        self._lines = shown and self._bar.disable  # a job's log gets lines instead of a bar
        self._clock = clock
        self._last_step = last_step
        self._step, self._part = step, 0.0
        self._tokens = self._step_tokens = 0
        self._learning_rate = math.nan
        self._loss = ""
        self._step_began = clock()
        self._set_mark()

    def __enter__(self) -> Display:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.close()

    def begin_step(self, tokens: int, learning_rate: float) -> None:
        """A step starts. tokens: number in the step, over all ranks."""
        self._step_tokens, self._learning_rate = tokens, learning_rate
        self._step_began = self._clock()
        self._bar.set_postfix_str(self._loss, refresh=False)  # in place of a validation's

    def micro_batch(self, done: int, total: int) -> None:
        """`done` of the step's `total` micro-batches are computed."""
        self._part = done / total
        if self._clock() - self._step_began >= SLOW_STEP_SECONDS:
            # With decimals of a step: the usual format shows whole numbers only.
            self._bar.bar_format = BAR_FORMAT
            self._bar.n = self._step + self._part
            self._bar.refresh()
        if done < total:
            self._print_when_due(f", micro-batch {done:,} of {total:,}")

    def end_step(self, step: int) -> None:
        """The weights are updated."""
        self._step, self._part = step, 0.0
        self._tokens += self._step_tokens
        self._bar.update(step - self._bar.n)
        self._print_when_due("")

    def loss(self, step: int, loss: float) -> None:
        """The loss of a step is known."""
        self._loss = f"loss {loss:.4f} at step {step:,}"
        self._bar.set_postfix_str(self._loss, refresh=False)

    def go_back(self, step: int) -> None:
        """The run resumes from an earlier step."""
        self._step, self._part = step, 0.0
        self._bar.n = step
        self._set_mark()

    def validating(self, scored: int) -> None:
        """A number of micro-batches of held-out sequences is scored."""
        self._bar.set_postfix_str(f"validating, micro-batch {scored:,}", refresh=False)
        self._bar.update(0)  # redraws, at most as often as tqdm does
        if self._is_due():
            self._print(f"validating after step {self._step:,}: {scored:,} micro-batches scored")
            self._set_mark()

    def _set_mark(self) -> None:
        """Measure rates from now on."""
        self._marked_at = self._clock()
        self._marked = (self._step + self._part, self._tokens + self._part * self._step_tokens)

    def _is_due(self) -> bool:
        return self._lines and self._clock() - self._marked_at >= SECONDS_BETWEEN_LINES

    def _print_when_due(self, within: str) -> None:
        if not self._is_due():
            return
        seconds = self._clock() - self._marked_at
        steps = self._step + self._part - self._marked[0]
        tokens = self._tokens + self._part * self._step_tokens - self._marked[1]
        left = (self._last_step - self._step - self._part) / max(steps, 1e-9) * seconds
        parts = (
            self._loss,
            f"{tokens / seconds:,.0f} tokens/s",
            f"{in_words(left)} left",
            f"learning rate {self._learning_rate:.3g}",
            f"{memory_gb():.1f} GB",
        )
        where = f"step {self._step:,} of {self._last_step:,}{within}"
        self._print(f"{where}: {', '.join(filter(None, parts))}")
        self._set_mark()

    def _print(self, line: str) -> None:
        print(line, flush=True)
