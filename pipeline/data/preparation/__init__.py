"""From sources to published shards: what one worker does, and what joins the parts."""

import pipeline.kernels.cache  # noqa: F401  before any kernel is defined
