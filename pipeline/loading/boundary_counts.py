"""How many predicted positions have a span boundary question, before a batch is decoded.

Which do is decided by the stored bits and the ids next to each run of them, see
`model.span_boundary`; here they are counted, a step ahead, for the step's count over all ranks.
"""

from __future__ import annotations

import numba
import numpy as np

from pipeline.data.kernels.addresses import load_uint8, load_uint16, load_uint32
from pipeline.data.kernels.permutation import IntArray
from pipeline.loading import decode

_IDS, _TOKENS, _BITMAP = decode.IDS, decode.TOKENS, decode.BITMAP


@numba.njit(cache=True, nogil=True)
def boundary_targets(records: IntArray, wide: bool, bos: int, eos: int, most: int) -> int:
    """Over the rows of `records` [n, RECORD_FIELDS]: words of spans, at most `most` of each.

    most: 0 counts none, and reads nothing.

    A span with a special token (ids bos, eos) next to it has none. Whether a row shows its segments
    swapped makes no difference: special tokens enclose either. wide: ids are uint32.
    """
    found = 0
    if most == 0:
        return found
    for row in range(records.shape[0]):
        ids, bitmap = records[row, _IDS], records[row, _BITMAP]
        size = 0
        for place in range(records[row, _TOKENS]):
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
    token = (
        np.int64(load_uint32(ids + 4 * place)) if wide else np.int64(load_uint16(ids + 2 * place))
    )
    edge: bool = token in (bos, eos)
    return edge
