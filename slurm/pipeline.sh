#!/usr/bin/env bash
# Submits the whole way at once: prepare -> train -> export, each when the one before has succeeded.
#
#   TENFOLD_CORPUS=cc-news TENFOLD_INPUT='/data/news/*.jsonl.gz' slurm/pipeline.sh roberta_large
#   slurm/pipeline.sh roberta_large --partition=gpu --account=me      options for all three jobs
#
# Other settings come from the environment, see README.md. Prints the three job numbers.
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
# A job whose predecessor failed would wait for ever. A requeued one has not ended yet.
after() { echo "--dependency=afterok:$1 --kill-on-invalid-dep=yes"; }
# shellcheck disable=SC2046  # two options
trained=$(submit $(after "$prepared") "$@" "slurm/$recipe.sbatch")
# shellcheck disable=SC2046
exported=$(submit $(after "$trained") "$@" slurm/export.sbatch)
echo "prepare $prepared, then train $trained, then export $exported; squeue --me shows them"
