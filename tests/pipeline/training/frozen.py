"""For processes that start DeepSpeed many times."""

import gc


def freeze() -> None:
    """Import what a first run would, and exempt all imports from garbage collection.

    DeepSpeed collects garbage several times at every start, over everything that it and torch have
    imported: a second or more.
    """
    import torch._dynamo
    import torch.utils.tensorboard  # noqa: F401

    gc.freeze()
