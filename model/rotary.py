"""Rotary positions: queries and keys turned by angles that grow with their place.

The product of a query and a key then depends only on the distance of their tokens (Su et al. 2021,
sec. 3.2). Components k and k + K/2 of a head are turned together, as in GPT-NeoX and transformers.

Legend: T tokens, H heads, K head size.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Rotation(NamedTuple):
    """Cosine and sine of each token's angles, for both halves of a head."""

    cos: Tensor
    """[T, 1, 1, 1, K / 2]"""
    signed_sin: Tensor
    """[T, 1, 1, 2, K / 2] negative for the first half."""


def rotation_of(places_T: Tensor, size: int, base: float, dtype: torch.dtype) -> Rotation:
    """The rotation of tokens at these places of their pieces.

    size: of a head; base: wavelengths are 2 pi to nearly 2 pi base. Angles are float32 and rounded
    to `dtype` as cosine and sine, which transformers does too.
    """
    exponents = torch.arange(0, size, 2, dtype=torch.float32, device=places_T.device) / size
    angles = places_T[:, None].float() / base**exponents
    cos, sin = (part.to(dtype)[:, None, None, None] for part in (angles.cos(), angles.sin()))
    return Rotation(cos, torch.cat([-sin, sin], -2))


def rotate(query_key_T2HK: Tensor, rotation: Rotation) -> Tensor:
    """Turned queries and keys [T, 2, H, K], computed in float32 at least.

    The halves of a head are an axis, so each number is written once: with `torch.cat` of turned
    halves inductor moves 2.5 times the bytes, forward and backward (counted, torch 2.13).
    """
    kind = query_key_T2HK.dtype
    halves = query_key_T2HK.view(*query_key_T2HK.shape[:-1], 2, -1)
    halves = halves.to(torch.promote_types(kind, torch.float32))
    turned = halves * rotation.cos + halves.flip(-2) * rotation.signed_sin
    return turned.to(kind).flatten(-2)
