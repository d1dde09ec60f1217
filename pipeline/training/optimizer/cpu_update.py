"""The optimizer's arithmetic on a CPU: one compiled pass for the moments, the update and its norms.

A step is bound by memory bandwidth, so each tensor is read as rarely as possible:

1. `gradient_square` sums the squares of the gradient.
2. `advance` takes a rank's fp32 tensor in chunks that stay in the cache: weight, gradient and
   moments are read once for moments, update and both norms (24 bytes read and written per
   parameter, and 4 for the update, which overwrites the gradient).
3. `apply` subtracts the updates (12 bytes), once the norms of the whole weight are known.

AdamW needs no norms: `advance_and_apply` subtracts an update while it is in the cache. StableAdamW
takes LAMB's passes; its sums are those of the gradient relative to sqrt(v).

Tensors are fp32. The kernels compute in the type of their arrays, so a test can compare the
formulas in fp64.

Threads work on pieces of fragments, whose sums are kept separately in float64: results do not
depend on the number of threads. Threads synchronize only at the end of a pass; PyTorch synchronizes
after every operation on every block, which on a busy machine costs more than the arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise

import numba
import numpy as np
import torch

from pipeline.training.optimizer.fragments import Fragment, limit_sizes
from pipeline.training.optimizer.lamb_variants import AdamStep

PIECE = 2**18
"""Most elements of a piece, the unit of work that is not split further."""
CHUNK = 2**11
"""Elements per chunk of the inner loop: weight, gradient and moments take 32 kB."""
JOB = 2**21
"""About as many elements as a thread takes at a time: milliseconds of work."""
AT_ONCE, NORMS, RELATIVE = range(3)
"""What `_advance` does with the updates: apply them; or store them, and sum the squares of weights
and updates, or those of gradients relative to sqrt(v)."""


@dataclass(frozen=True, slots=True)
class _Table:
    """The pieces of one flat tensor, in order."""

    flat: np.ndarray
    mean: np.ndarray
    square: np.ndarray
    offsets: np.ndarray
    numels: np.ndarray
    decays: np.ndarray
    jobs: tuple[tuple[int, int], ...]
    """Ranges [first, last) of pieces, one per job."""
    first: int
    """Index of its first piece among those of all flat tensors."""


class CompiledUpdate:
    """Updates tensors in host memory."""

    def __init__(
        self,
        flats: Sequence[torch.Tensor],
        moments: Sequence[tuple[torch.Tensor, torch.Tensor]],
        fragments: Sequence[Fragment],
        decays: Sequence[float],
    ) -> None:
        """decays: the weight decay of each logical parameter."""
        pieces = [*limit_sizes(fragments, PIECE)]
        self.owners = torch.tensor([piece.logical for piece in pieces], dtype=torch.long)
        """The logical parameter of each piece; pieces are the columns of `advance`'s result."""
        # A cell for each piece: no two threads write the same one, and sums have a fixed order.
        self._squares = np.zeros((2, len(pieces)))
        self._tables = []
        for index, (flat, (mean, square)) in enumerate(zip(flats, moments, strict=True)):
            own = [(place, piece) for place, piece in enumerate(pieces) if piece.flat == index]
            flat_type = _array(flat).dtype
            if own:
                numels = np.array([piece.numel for _, piece in own])
                table = _Table(
                    flat=_array(flat),
                    mean=_array(mean),
                    square=_array(square),
                    offsets=np.array([piece.offset for _, piece in own]),
                    numels=numels,
                    decays=np.array([decays[piece.logical] for _, piece in own], flat_type),
                    jobs=_jobs(numels),
                    first=own[0][0],
                )
                self._tables.append((index, table))

    def gradient_square(self, gradients: Sequence[torch.Tensor]) -> torch.Tensor:
        """Sum of squares over this rank's fragments, in float64; gradients: the flat gradients."""

        def work(gradient: np.ndarray, table: _Table, first: int, last: int) -> None:
            sums = self._squares[0, table.first :]
            _sum_squares(gradient, table.offsets, table.numels, first, last, sums)

        self._in_threads(gradients, work)
        return torch.tensor(self._squares[0].sum())

    def advance(self, gradients: Sequence[torch.Tensor], adam: AdamStep) -> torch.Tensor:
        """Advance the moments, overwrite gradients with updates; squares of w and u [2, pieces]."""
        self._pass(gradients, adam, NORMS)
        return torch.from_numpy(self._squares)

    def advance_relative(self, gradients: Sequence[torch.Tensor], adam: AdamStep) -> torch.Tensor:
        """As `advance`, but returns the squares of g / max(sqrt(v'), eps) [1, pieces]."""
        self._pass(gradients, adam, RELATIVE)
        return torch.from_numpy(self._squares[:1])

    def advance_and_apply(
        self, gradients: Sequence[torch.Tensor], adam: AdamStep, rate: float
    ) -> None:
        """A whole step, if no norm is needed."""
        self._pass(gradients, adam, AT_ONCE, rate)

    def _pass(
        self, gradients: Sequence[torch.Tensor], adam: AdamStep, purpose: int, rate: float = 0.0
    ) -> None:
        # Reciprocals, as the loop multiplies faster than it divides.
        numbers = [
            adam.gradient_scale, 1 - adam.beta1, adam.beta2, 1 - adam.beta2,
            1 / adam.correction1, adam.correction2**-0.5, adam.eps, rate,
        ]  # fmt: skip

        def work(gradient: np.ndarray, table: _Table, first: int, last: int) -> None:
            _advance(
                table.flat, gradient, table.mean, table.square,
                table.offsets, table.numels, table.decays, first, last,
                np.array(numbers, gradient.dtype), purpose, self._squares[:, table.first :],
            )  # fmt: skip

        self._in_threads(gradients, work)

    def apply(self, updates: Sequence[torch.Tensor], rates: Sequence[float]) -> None:
        """w <- w - rate u; rates: by logical parameter."""
        of_piece = np.array(rates)[self.owners.numpy()]

        def work(update: np.ndarray, table: _Table, first: int, last: int) -> None:
            own = of_piece[table.first :].astype(update.dtype)
            _apply(table.flat, update, table.offsets, table.numels, first, last, own)

        self._in_threads(updates, work)

    def _in_threads(
        self,
        gradients: Sequence[torch.Tensor],
        work: Callable[[np.ndarray, _Table, int, int], None],
    ) -> None:
        jobs = [
            (_array(gradients[index]), table, *job)
            for index, table in self._tables
            for job in table.jobs
        ]
        threads = torch.get_num_threads()  # OMP_NUM_THREADS holds here, too
        if threads == 1:
            for job in jobs:
                work(*job)
            return
        with ThreadPoolExecutor(threads) as pool:
            for done in [pool.submit(work, *job) for job in jobs]:
                done.result()  # raises what the thread raised


def _array(tensor: torch.Tensor) -> np.ndarray:
    return np.asarray(tensor.detach().view(-1).numpy())


def _jobs(numels: np.ndarray) -> tuple[tuple[int, int], ...]:
    """Ranges of pieces with about JOB elements each."""
    number = np.cumsum(numels) // JOB
    # A job ends where the running total passes another multiple of JOB.
    starts = [0, *(np.flatnonzero(np.diff(number)) + 1), len(numels)]
    return tuple((int(first), int(last)) for first, last in pairwise(starts))


# numpy's error model: some divisors may be zero, and checking each would prevent vectorisation
# fastmath without nnan and ninf: a NaN in a gradient must reach the norm, which skips the update
_compiled = numba.njit(
    cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz"}
)


@_compiled
def _advance(
    flat: np.ndarray,
    gradient: np.ndarray,
    mean: np.ndarray,
    square: np.ndarray,
    offsets: np.ndarray,
    numels: np.ndarray,
    decays: np.ndarray,
    first: int,
    last: int,
    numbers: np.ndarray,
    purpose: int,
    squares: np.ndarray,
) -> None:
    """Advance pieces [first, last) of a flat tensor of N elements.

    flat, gradient, mean, square: [N], the last three overwritten; offsets, numels, decays:
    [pieces]; numbers: the 7 scalars of `_make_updates`, then the rate; squares: [2, pieces]
    float64. purpose: AT_ONCE, which keeps `gradient` and applies the updates with the rate, or
    NORMS or RELATIVE, which store updates in `gradient` and sums in `squares`.
    """
    scratch = np.empty(CHUNK, flat.dtype)
    for piece in range(first, last):
        squares[0, piece] = squares[1, piece] = 0.0  # they hold the sums of the step before
        end = offsets[piece] + numels[piece]
        for start in range(offsets[piece], end, CHUNK):
            stop = min(start + CHUNK, end)
            weight = flat[start:stop]
            grad = gradient[start:stop]
            # not into grad directly: the loop is compiled for arrays that do not overlap
            update = scratch[: stop - start]
            _make_updates(
                weight, grad, mean[start:stop], square[start:stop], update, decays[piece], numbers
            )
            if purpose == AT_ONCE:
                _subtract(weight, update, numbers[7])
                continue
            if purpose == NORMS:
                squares[0, piece] += _sum_of_squares(weight)
                squares[1, piece] += _sum_of_squares(update)
            else:
                _make_relative(grad, square[start:stop], numbers)
                squares[0, piece] += _sum_of_squares(grad)
            grad[:] = update  # nothing reads the gradient any more


@_compiled
def _make_updates(
    weight: np.ndarray,
    gradient: np.ndarray,
    mean: np.ndarray,
    square: np.ndarray,
    update: np.ndarray,
    decay: float,
    numbers: np.ndarray,
) -> None:
    """Advance m and v, write Adam's update; all arrays [n], n <= CHUNK.

    numbers: gradient scale, 1 - beta1, beta2, 1 - beta2, 1 / correction1,
    1 / sqrt(correction2), eps.
    """
    scale, share1, beta2, share2 = numbers[0], numbers[1], numbers[2], numbers[3]
    factor1, factor2, eps = numbers[4], numbers[5], numbers[6]
    for i in range(weight.size):
        g = gradient[i] * scale
        m = mean[i] + share1 * (g - mean[i])  # beta1 m + (1 - beta1) g, with one product
        v = beta2 * square[i] + share2 * g * g
        mean[i] = m
        square[i] = v
        # eps after the correction, as in the paper and in PyTorch; the corrections are factors.
        update[i] = m * factor1 / (np.sqrt(v) * factor2 + eps) + decay * weight[i]


@_compiled
def _make_relative(gradient: np.ndarray, square: np.ndarray, numbers: np.ndarray) -> None:
    """g <- g / max(sqrt(v'), eps); gradient, square: [n]; numbers: those of `_make_updates`."""
    scale, factor2, eps = numbers[0], numbers[5], numbers[6]
    for i in range(gradient.size):
        gradient[i] = gradient[i] * scale / max(np.sqrt(square[i]) * factor2, eps)


@_compiled
def _sum_of_squares(values: np.ndarray) -> float:
    """values: [n]; the sum is in float64."""
    quarter = values.size // 4
    a = b = c = d = 0.0  # four sums, because each addition to one sum would wait for the last
    for i in range(quarter):
        first, second = np.float64(values[i]), np.float64(values[i + quarter])
        third, fourth = np.float64(values[i + 2 * quarter]), np.float64(values[i + 3 * quarter])
        a += first * first
        b += second * second
        c += third * third
        d += fourth * fourth
    for i in range(4 * quarter, values.size):
        a += np.float64(values[i]) ** 2
    return a + b + c + d


@_compiled
def _sum_squares(
    values: np.ndarray,
    offsets: np.ndarray,
    numels: np.ndarray,
    first: int,
    last: int,
    squares: np.ndarray,
) -> None:
    """Squares of pieces [first, last); values: [N]; offsets, numels, squares: [pieces]."""
    for piece in range(first, last):
        squares[piece] = _sum_of_squares(values[offsets[piece] : offsets[piece] + numels[piece]])


@_compiled
def _subtract(weight: np.ndarray, update: np.ndarray, rate: float) -> None:
    """w <- w - rate u; both [n]."""
    for i in range(weight.size):
        weight[i] -= rate * update[i]


@_compiled
def _apply(
    flat: np.ndarray,
    update: np.ndarray,
    offsets: np.ndarray,
    numels: np.ndarray,
    first: int,
    last: int,
    rates: np.ndarray,
) -> None:
    """`_subtract` for pieces [first, last); flat, update: [N]; the other arrays: [pieces]."""
    for piece in range(first, last):
        start, end = offsets[piece], offsets[piece] + numels[piece]
        _subtract(flat[start:end], update[start:end], rates[piece])


def compile_all() -> None:
    """Compile every kernel of this file by one step on a small tensor; for `tenfold compile`."""
    # fp32, as in training: numba compiles for each type of array.
    weight, gradient, mean, square = (torch.ones(64) for _ in range(4))
    fragment = Fragment(logical=0, start=0, flat=0, offset=0, numel=64)
    update = CompiledUpdate([weight], [(mean, square)], [fragment], [0.1])
    adam = AdamStep(beta1=0.9, beta2=0.99, eps=1e-6, updates=1, gradient_scale=1.0)
    update.gradient_square([gradient])
    update.advance([gradient], adam)
    update.apply([gradient], [0.1])
