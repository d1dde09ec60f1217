"""Every recorded case: `record` writes their files, `test_cases` compares with them."""

from tests.golden import formats, surface, training

CASES = [*surface.CASES, *formats.CASES, *training.CASES]
