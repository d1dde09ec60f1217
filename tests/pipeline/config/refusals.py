"""What settings are refused with, and whether the remedies of a message make them legal."""

import itertools
from functools import cache

from pipeline.base.errors import ConfigError
from pipeline.config.settings import override
from pipeline.recipes import recipe
from tests.remedies import alternatives, problems_of

known = cache(recipe)


def problems(name: str, *settings: str) -> list[str]:
    """The problems of a recipe with these settings."""
    try:
        override(known(name), settings)
    except ConfigError as error:
        return problems_of(error)
    return []


def is_named(setting: str, problem: str) -> bool:
    """True if a problem tells the setting and its value, or only the setting if it is a list."""
    path, _, value = setting.partition("=")
    name = path.split(".")[-1]
    said = problem.partition("--set")[0].replace("'", "")
    return (name if value.startswith("[") else f"{name}={value}") in said


def assert_refused(name: str, settings: str, count: int = 1, *, keeps: bool = True) -> None:
    """There are `count` problems, each of which names a setting that was asked for.

    Each combination of the remedies is legal, and for each setting one keeps what was asked for;
    keeps=False: no value like that is possible, so there is one remedy, the nearest that is.
    """
    asked = settings.split()
    found = problems(name, *asked)
    assert len(found) == count, found
    for problem in found:
        assert any(is_named(setting, problem) for setting in asked), (settings, problem)
    remedies = [alternatives(problem) for problem in found]
    assert all(remedies), found
    combined = [[*itertools.chain(*chosen)] for chosen in itertools.product(*remedies)]
    for remedy in combined:
        assert problems(name, *asked, *remedy) == []
    assert keeps or len(combined) == 1
    for setting in asked if keeps else ():
        path = setting.partition("=")[0] + "="
        changed = [{each for each in own if each.startswith(path)} - {setting} for own in combined]
        assert not all(changed), f"every remedy undoes {setting}"
