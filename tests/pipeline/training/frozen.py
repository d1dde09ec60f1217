"""For processes that start DeepSpeed many times."""

from __future__ import annotations

import gc


def freeze() -> None:
    """Import what a first run would, and keep all imports from the garbage collector.

    DeepSpeed collects garbage several times at every start: a second or more, of all that it and
    torch have imported.
    """
    import torch._dynamo
    import torch.utils.tensorboard  # noqa: F401

    gc.freeze()
