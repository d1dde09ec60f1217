"""The general sample of a run that starts from given weights: rows that show what it forgets.

Such a run is scored on rows of the corpus `sample`, which comes with the code, before its first
step and after its last one. All of that corpus is held out in RUN/general, prepared with the run's
own tokenizer and data settings, with one stored mask; the first rows of each of its five members
are read, with masks at validation.mask_rate as the run's own held-out rows.
"""

from __future__ import annotations

import io
import shutil
import sys
import tempfile
from contextlib import redirect_stdout
from pathlib import Path

from pipeline.base.errors import PipelineError
from pipeline.cluster.ranks import Cluster
from pipeline.cluster.shared_shards import open_shards
from pipeline.config.run import Run
from pipeline.config.settings import override
from pipeline.data.shards.manifest import MANIFEST, VALIDATION
from pipeline.data.shards.shard_assembly import SHARD_BYTES
from pipeline.data.text.text_tasks import SPLIT_BYTES
from pipeline.execution.workers import local_executor
from pipeline.loading.dataset import Dataset
from pipeline.training.run_directory.layout import GENERAL

ROWS = 32
"""Rows that are read of each member: 160 in all, seconds even for a large encoder on a CPU."""
SETTINGS = ("data.validation_fraction=1", "data.mask_mode=static", "data.duplicates=1")


def open_general(
    run: Run, output: Path, tokenizer: Path, cluster: Cluster, *, step: int | None
) -> Dataset | None:
    """The rows of the general sample; None if the run is not scored on it. Collective.

    run: the settings that its last phase has; step: that of the checkpoint to resume from,
    None for a new run. A run that was not scored on it at step 0 is not scored on it later.
    """
    directory = output / GENERAL
    with cluster.agreed():
        if cluster.rank == 0:
            if step is None:  # an earlier start without a checkpoint may have had other settings
                shutil.rmtree(directory, ignore_errors=True)
            if not step and not (directory / MANIFEST).exists():
                _prepare(run, directory, tokenizer)
    # The first rank's view: a file server may not show the folder to the others yet.
    if not cluster.any(cluster.rank == 0 and (directory / MANIFEST).exists()):
        return None
    with cluster.agreed():
        ((held_out,),) = open_shards([directory], (VALIDATION,), cluster)
        return held_out.at_rate(run.validation.mask_rate)


def _prepare(run: Run, directory: Path, tokenizer: Path) -> None:
    """Prepare the sample, or say why it cannot be: the tokenizer may lack its letters."""
    # half a second to import: first rank of a new run only
    from pipeline.data.preparation.corpus_files import find_sources
    from pipeline.data.preparation.prepare_arguments import prepare_arguments
    from pipeline.data.preparation.stages import TextSizes, make_shards

    words = ["--corpus", "sample", "--tokenizer", tokenizer, "--output", directory]
    arguments = prepare_arguments([*map(str, words)])
    held_out = override(run, SETTINGS)
    try:
        with (
            redirect_stdout(io.StringIO()),  # its report is useful only for a user's own corpus
            tempfile.TemporaryDirectory() as documents,
        ):
            found = find_sources(arguments, held_out.data)
            make_shards(
                arguments, held_out, found, local_executor(1),
                sizes=TextSizes(split=SPLIT_BYTES, shard=SHARD_BYTES), documents=Path(documents),
            )  # fmt: skip
    except PipelineError as error:
        shutil.rmtree(directory, ignore_errors=True)
        print(f"warning: the general sample is not scored: {error}", file=sys.stderr)
