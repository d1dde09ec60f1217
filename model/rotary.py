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
    """Cosine and sine of each token's angles, [T, 1, 1, K / 2]."""

    cos: Tensor
    sin: Tensor


def rotation_of(places_T: Tensor, size: int, base: float, dtype: torch.dtype) -> Rotation:
    """The rotation of tokens at these places of their pieces.

    size: of a head; base: wavelengths are 2 pi to nearly 2 pi base. Angles are float32 and rounded
    to `dtype` as cosine and sine, which transformers does too.
    """
    exponents = torch.arange(0, size, 2, dtype=torch.float32, device=places_T.device) / size
    angles = places_T[:, None].float() / base**exponents
    cos, sin = (part.to(dtype)[:, None, None] for part in (angles.cos(), angles.sin()))
    return Rotation(cos, sin)


def rotate(projected_T3HK: Tensor, rotation: Rotation) -> Tensor:
    """Projections with turned queries and keys, computed in float32 at least."""
    kind = projected_T3HK.dtype
    exact = torch.promote_types(kind, torch.float32)
    first, second = projected_T3HK[:, :2].to(exact).chunk(2, -1)  # values are not turned
    cos, sin = rotation
    turned = torch.cat([first * cos - second * sin, second * cos + first * sin], -1)
    return torch.cat([turned.to(kind), projected_T3HK[:, 2:]], 1)
