#!/usr/bin/env bash
# Submits all jobs at once: prepare -> train -> export; each starts when the previous one succeeded.
#
#   TENFOLD_CORPUS=cc-news TENFOLD_INPUT='/data/news/*.jsonl.gz' slurm/pipeline.sh roberta_large
#   slurm/pipeline.sh roberta_large --partition=gpu --account=me      options for all three jobs
#
# Other settings come from the environment, see README.md. Prints the three job ids.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
recipe=${1:-}
[ -r "slurm/$recipe.sbatch" ] || {
  echo "error: no slurm/$recipe.sbatch; name one of $(cd slurm && echo roberta_*.sbatch)" >&2
  exit 2
}
shift
export TENFOLD_RECIPE=${TENFOLD_RECIPE:-$recipe}

submit() { sbatch --parsable "$@" | cut -d';' -f1; }

prepared=$(submit "$@" slurm/prepare.sbatch)
# Cancels a job if its predecessor failed, or it would wait forever. A requeued job has not ended.
after() { echo "--dependency=afterok:$1 --kill-on-invalid-dep=yes"; }
# shellcheck disable=SC2046  # two options
trained=$(submit $(after "$prepared") "$@" "slurm/$recipe.sbatch")
# shellcheck disable=SC2046
exported=$(submit $(after "$trained") "$@" slurm/export.sbatch)
echo "prepare $prepared, then train $trained, then export $exported; squeue --me shows them"
