"""Records come in, decisions which documents to keep go out: duplicates, filters, test sets."""

import pipeline.kernels.cache  # noqa: F401  before any kernel is defined
