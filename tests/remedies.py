"""The `--set` remedies that an error names, as tests apply them."""

import re

from pipeline.base.errors import ConfigError


def alternatives(problem: str) -> list[list[str]]:
    """The remedies in a message, each the `path=value` of the `--set` that belong together."""
    found: list[list[str]] = []
    end = -1
    for match in re.finditer(r"--set ([\w.]+=[^\s,;]+)", problem):
        if match.start() != end:
            found.append([])
        found[-1].append(match[1])
        end = match.end() + 1
    return found


def problems_of(error: ConfigError) -> list[str]:
    """The problems in an error, one or several."""
    return list(error.problems) or [str(error)]
