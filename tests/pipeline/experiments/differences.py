"""In which settings the arms of a table differ."""

from typing import Any

from pipeline.config.settings import flatten, to_dict
from pipeline.experiments.tables.table import Table, run_of


def values(table: Table) -> dict[str, dict[str, Any]]:
    """By arm, the settings that are not the same in all arms of a table."""
    flat = {arm.name: flatten(to_dict(run_of(arm))) for arm in table.arms}
    first, *_ = flat.values()
    paths = [path for path in first if any(each[path] != first[path] for each in flat.values())]
    return {name: {path: each[path] for path in paths} for name, each in flat.items()}
