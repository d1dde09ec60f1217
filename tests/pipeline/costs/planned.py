"""Runs planned for machines of their own, which tests of the costs share."""

from pipeline.config.settings import override
from pipeline.costs.cost_plan import PlannedRun
from pipeline.costs.device_rates import GPUS, Hardware
from pipeline.costs.expected_data import expected_datasets
from pipeline.costs.site_rates import SiteRates
from pipeline.planning.deepspeed_config import read_deepspeed_file
from pipeline.recipes import recipe

NO_RATES = SiteRates()


def planned(
    name: str,
    *changes: str,
    gpu: str = "",
    nodes: int = 1,
    per_node: int = 0,
    nics: int = 0,
    ds: str = "zero1",
    tokens: int = 36 * 10**9,
    site: SiteRates = NO_RATES,
) -> PlannedRun:
    """A recipe on expected data; without `gpu` on CPU cores, by default one rank per node."""
    run = override(recipe(name), list(changes))
    train, validation = expected_datasets(run, tokens)
    ranks = per_node or (8 if gpu else 1)
    hardware = Hardware(
        device=GPUS[gpu] if gpu else None, nodes=nodes, per_node=ranks, cores=2,
        nics=nics or ranks,
    )  # fmt: skip
    return PlannedRun(
        run=run, train=train, validation=validation, file=read_deepspeed_file(ds),
        hardware=hardware, site=site,
    )  # fmt: skip
