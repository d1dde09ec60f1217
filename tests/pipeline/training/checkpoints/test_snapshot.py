import torch

from pipeline.training.checkpoints.snapshot import Snapshot
from tests.pipeline.training import toy_checkpoints as toy


def test_a_snapshot_is_unchanged_until_the_next_one_replaces_it() -> None:
    snapshot = Snapshot()
    assert snapshot.take([]) == []  # a rank without fragments
    live = toy.fragments(1, [("query.weight", 3, 20), ("scale", 0, 1), ("embedding.weight", 0, 0)])
    copies = snapshot.take(live)
    snapshot.wait()
    before = [[tensor.clone() for tensor in part[2:]] for part in live]
    for part in live:
        for tensor in part[2:]:
            tensor.fill_(7)
    for part, original, expected in zip(copies, live, before, strict=True):
        assert part[:2] == original[:2]
        for tensor, value in zip(part[2:], expected, strict=True):
            assert tensor.numpy().tobytes() == value.numpy().tobytes()
    again = snapshot.take(live)
    assert [part.weight.data_ptr() for part in again] == [p.weight.data_ptr() for p in copies]
    assert torch.equal(copies[0].exp_avg, torch.full((17,), 7.0))
