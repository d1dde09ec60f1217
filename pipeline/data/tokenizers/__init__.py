"""Clean text comes in, token ids go out; and the training of vocabularies."""

import pipeline.kernels.cache  # noqa: F401  before any kernel is defined
