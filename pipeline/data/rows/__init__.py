"""Token ids of documents come in, rows and their masks go out."""

import pipeline.kernels.cache  # noqa: F401  before any kernel is defined
