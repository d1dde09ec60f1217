"""Every recorded case: `record` writes their files, `test_cases` compares with them."""

from tests.golden import formats, scores, surface, training

CASES = [*surface.CASES, *formats.CASES, *training.CASES, *scores.CASES]
