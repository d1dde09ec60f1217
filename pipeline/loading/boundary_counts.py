"""Counts the predicted positions with a span boundary target, before a micro-batch is decoded.

`model.objectives.span_boundary` decides which positions have one, from the masked spans and
the ids next to them. Here they are counted from the stored bits, for the step's loss denominators
over all ranks.
"""

from __future__ import annotations

import numba
import numpy as np

from pipeline.kernels.addresses import load_uint8, load_uint16, load_uint32
from pipeline.loading.resolve import StructArray


@numba.njit(cache=True, nogil=True)
def boundary_targets(records: StructArray, special_ids: StructArray, most: int) -> int:
    """Targets in the rows of `records` [n]: the words of each span, up to `most` per span.

    special_ids: `decode.SPECIAL_IDS` [1].

    A span next to bos or eos has no target. Swapped segments make no difference, because special
    tokens enclose both of them.
    """
    found = 0
    bos, eos, wide = special_ids[0].bos, special_ids[0].eos, special_ids[0].wide != 0
    for row in range(records.size):
        ids, bitmap = records[row].ids, records[row].bitmap
        size = 0
        for place in range(records[row].tokens):
            if (load_uint8(bitmap + (place >> 3)) >> (place & 7)) & 1:
                size += 1
            elif size:
                if not (
                    _is_edge(ids, place - size - 1, wide, bos, eos)
                    or _is_edge(ids, place, wide, bos, eos)
                ):
                    found += min(size, most)
                size = 0
    return found


@numba.njit(cache=True, nogil=True)
def _is_edge(ids: int, place: int, wide: bool, bos: int, eos: int) -> bool:
    """Whether token `place` of the row whose ids are at address `ids` is bos or eos."""
    token = (
        np.int64(load_uint32(ids + 4 * place)) if wide else np.int64(load_uint16(ids + 2 * place))
    )
    edge: bool = token in (bos, eos)
    return edge
