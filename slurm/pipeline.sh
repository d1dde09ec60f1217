#!/usr/bin/env bash
# Submits all jobs at once: prepare -> train -> export; each starts when the previous one succeeded.
#
#   TENFOLD_CORPUS=cc-news TENFOLD_INPUT='/data/news/*.jsonl.gz' slurm/pipeline.sh roberta_large
#   slurm/pipeline.sh bert_base --partition=gpu --train --nodes=4 --gres=gpu:4 --prepare --nodes=2
#   slurm/pipeline.sh --check bert_base ...         submits nothing and reports what would fail
#   slurm/pipeline.sh ./roberta-base ...            continues the model in that folder
#   slurm/pipeline.sh --help                        prints this
#
# Options of sbatch before --prepare, --train and --export apply to all three jobs, those after one of
# them only to that job. A job has the resources that its file asks for, unless you give others.
# Training uses slurm/RECIPE.sbatch, or slurm/train.sbatch if there is none, as for a folder.
#
# Other settings come from the environment or site.env, see slurm/README.md. Prints the three job ids.
set -euo pipefail

SLURM_SUBMIT_DIR=$PWD # where a relative folder of a model is, see find_recipe
cd "$(dirname "${BASH_SOURCE[0]}")/.."
TENFOLD_HOME=$PWD
# shellcheck source=slurm/common.sh
. slurm/common.sh
# shellcheck source=slurm/check.sh
. slurm/check.sh

# Prints the comment at the top of this file.
print_help() { sed -n '2,/^[^#]/s/^# \{0,1\}//p' slurm/pipeline.sh; }

# Sets checking, recipe, and the options of each job.
read_arguments() {
  local argument stage=all
  checking='' recipe='' all=() prepare=() train=() export=()
  for argument; do
    case $argument in
    -h | --help)
      print_help
      exit 0
      ;;
    --check) checking=yes ;;
    --prepare | --train | --export) stage=${argument#--} ;;
    *)
      [[ $argument != --export=* || $argument == --export=ALL* ]] ||
        fail "$argument would keep the settings from the jobs; drop it"
      if [ -z "$recipe" ]; then
        [[ $argument != -* ]] || fail "name a recipe before $argument"
        recipe=$argument
      elif [ "$stage" = all ]; then
        for_all_jobs "$argument"
      else
        local -n options=$stage
        options+=("$argument")
      fi
      ;;
    esac
  done
  [ -n "$recipe" ] || fail "usage: slurm/pipeline.sh [--check] RECIPE [OPTIONS OF SBATCH]; --help explains it"
  command -v sbatch >/dev/null ||
    fail "no sbatch on PATH; run this on a login node of a Slurm cluster"
}

for_all_jobs() {
  case $1 in
  --nodes* | --ntasks* | --cpus-per-* | --gres* | --gpus* | --mem* | --time* | --array* | \
    --exclusive* | -N* | -n* | -c* | -G* | -t* | -a*)
    fail "$1 would be for all three jobs; give it after --prepare, --train or --export"
    ;;
  esac
  all+=("$1")
}

submit() { sbatch --parsable "$@" | cut -d';' -f1; }

# Cancels a job if its predecessor failed, or it would wait forever. A requeued job has not ended.
after() { echo "--dependency=afterok:$1 --kill-on-invalid-dep=yes"; }

read_arguments "$@"
recipe=$(find_recipe "$recipe")
TENFOLD_RECIPE=$(find_recipe "${TENFOLD_RECIPE:-$recipe}")
export TENFOLD_RECIPE
# Many sites set NONE, which would keep this and all other settings from the jobs.
[[ ${SBATCH_EXPORT:-} == ALL* ]] || export SBATCH_EXPORT=ALL
named=$(run_name "$recipe")
train_file=slurm/$named.sbatch
[ -r "$train_file" ] || train_file=slurm/train.sbatch
train=("--job-name=$named" "${train[@]}")
(check_before_submitting && exit "$wrong") || exit 2
[ -z "$checking" ] || exit 0

prepared=$(submit "${all[@]}" "${prepare[@]}" slurm/prepare.sbatch)
# shellcheck disable=SC2046  # two options
trained=$(submit $(after "$prepared") "${all[@]}" "${train[@]}" "$train_file")
# shellcheck disable=SC2046
exported=$(submit $(after "$trained") "${all[@]}" "${export[@]}" slurm/export.sbatch)
echo "prepare $prepared, then train $trained, then export $exported; squeue --me shows them"
