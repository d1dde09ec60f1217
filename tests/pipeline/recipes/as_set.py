"""What a recipe sets, written as `--set` takes it."""

from pipeline.config.run import Run
from pipeline.config.settings import flatten, override, to_dict
from pipeline.recipes import recipe


def assert_set(name: str, *settings: str) -> Run:
    """The recipe has these settings, each text some `path=value`; returns it."""
    run = recipe(name)
    changed = override(run, " ".join(settings).split())
    assert flatten(to_dict(changed)) == flatten(to_dict(run)), name
    return run
