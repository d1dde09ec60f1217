from __future__ import annotations

import torch

from pipeline.costs.shapes.live_bytes import LiveBytes, unique_bytes


def test_counts_storages_while_they_live() -> None:
    """100 + 100 floats, a view for nothing, 50 freed at once, and none of what was there."""
    before = torch.ones(1000)
    with LiveBytes([before]) as live:
        first, second = torch.ones(100), torch.zeros(100)
        view = first.view(10, 10).t()
        assert live.now == 800
        torch.ones(50).sum()
        assert live.now == 800 and 800 + 200 <= live.peak <= 800 + 204
        before.view(10, 100).mul_(2)
        del first
        assert live.now == 800  # the view still holds it
        del view
        assert live.now == 400
    assert unique_bytes([second, second.view(4, 25), before]) == 4400


def test_tensors_without_storage_count_unless_ignored() -> None:
    for ignored, counted in (("", 400), ("meta", 0)):
        with LiveBytes(ignored_device=ignored) as live:
            shape = torch.ones(100, device="meta")
            assert live.now == counted and shape.is_meta
