"""What settings are refused with, and whether the remedies of a message make them legal."""

import itertools

from pipeline.base.errors import ConfigError
from pipeline.config.settings import override
from pipeline.recipes import recipe
from tests.remedies import alternatives, problems_of


def problems(name: str, *settings: str) -> list[str]:
    """The problems of a recipe with these settings."""
    try:
        override(recipe(name), settings)
    except ConfigError as error:
        return problems_of(error)
    return []


def assert_refused(name: str, settings: str, message: str = "", *, keeps: bool = True) -> None:
    """The one problem starts with `message`; without one there may be several.

    Each combination of the remedies is legal, and for each setting one keeps what was asked for;
    keeps=False: no value like that is possible, so there is one remedy, the nearest that is.
    """
    asked = settings.split()
    found = problems(name, *asked)
    assert found and (not message or (len(found) == 1 and found[0].startswith(message))), found
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
