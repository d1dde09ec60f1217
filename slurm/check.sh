# shellcheck shell=bash disable=SC2034,SC2086,SC2154
# What the jobs of pipeline.sh would find wrong, found on the login node before they are submitted.
# Each check prints a line; `wrong` is then 2 if one has failed, else 0.

# With --check: everything. Without: what takes a second and stops every job. Run it in a shell of its
# own: the jobs read their settings themselves.
check_before_submitting() {
  wrong=0
  read_site
  [ -n "${TENFOLD_CORPUS:-}" ] ||
    fail "TENFOLD_CORPUS is not set; name a corpus, and its files in TENFOLD_INPUT"
  if [ -z "$checking" ]; then
    [ -z "$TENFOLD_VENV" ] || check_python >/dev/null
    return
  fi
  check settings check_names
  check shards check_shards
  check python check_python
  if [ "$passed" ]; then
    check prepare check_prepare
    check train check_train
  fi
  check prepare-request check_request "${prepare[@]}" slurm/prepare.sbatch
  check train-request check_request "${train[@]}" "$train_file"
  check export-request check_request "${export[@]}" slurm/export.sbatch
}

# check NAME FUNCTION...: runs it in a shell of its own, which `fail` may end; sets passed.
check() {
  local name=$1 output
  shift
  passed=yes
  if output=$("$@" 2>&1); then
    printf 'ok  %-16s %s\n' "$name" "$(tail -n 1 <<<"$output")"
  else
    wrong=2 passed=''
    output=$(grep '^error: ' <<<"$output" || tail -n 3 <<<"$output")
    printf '%s\n' "$output" | sed "s|^error: |error: $name: |" >&2
  fi
}

# Every TENFOLD_ variable is one that Tenfold reads. site.env is not searched: what a user adds to it
# is checked, too.
check_names() {
  local name known
  known=$(grep -rhoE 'TENFOLD_[A-Z_]*[A-Z]' --include='*.py' --include='*.sh' --include='*.sbatch' \
    "$TENFOLD_HOME/pipeline" "$TENFOLD_HOME/slurm")
  for name in $(compgen -e TENFOLD_); do
    grep -qxF "$name" <<<"$known" ||
      fail "unknown setting $name; the settings are those in slurm/README.md"
  done
  echo "names of TENFOLD_ variables"
}

check_python() {
  data=()
  choose_python
  echo "${TENFOLD_VENV:-$TENFOLD_IMAGE}, recipe $TENFOLD_RECIPE"
}

# The shards that training will find when prepare has ended: those of this corpus only.
check_shards() {
  local corpus found others=() -
  if [ -n "${TENFOLD_DATA:-}" ]; then
    choose_data
    return
  fi
  corpus=$(basename "$TENFOLD_CORPUS")
  set +f # until this function returns
  for found in "$TENFOLD_ROOT"/shards/*-"$named"-+([!-])/; do
    [[ ! -e $found || $(basename "$found") == "$corpus-$named-"* ]] || others+=("$found")
  done
  [ ${#others[@]} -eq 0 ] ||
    fail "there would be several shards: ${others[*]} and those of $corpus; name those to train on" \
      "in TENFOLD_DATA"
  echo "of $corpus, in $TENFOLD_ROOT/shards"
}

# As the job runs it, but estimates only: the corpus, its files, the arguments and the disk space.
check_prepare() {
  local output words
  runs_here || return 0
  split_inputs
  split_words TENFOLD_PREPARE_ARGS
  output=$("${python[@]}" -m pipeline.prepare --corpus "$TENFOLD_CORPUS" \
    --recipe "$TENFOLD_RECIPE" ${inputs[@]:+--input "${inputs[@]}"} "${words[@]}" \
    --dry-run 2>&1) || {
    echo "$output"
    return 2
  }
  ! grep ': not enough$' <<<"$output" || fail "$(grep ': not enough$' <<<"$output")"
  grep '^disk: ' <<<"$output"
}

# The settings, the board's package, and whether RUN has room for its checkpoints.
check_train() {
  local words
  runs_here || return 0
  split_words TENFOLD_ARGS
  "${python[@]}" -c '
import os
import shutil
from pipeline.base.errors import CheckpointError, run_command
from pipeline.costs.disk import PARAMETER_BYTES
from pipeline.planning.phase_plan import parameters_of
from pipeline.training.job import read_job
from pipeline.training.network_arguments import parse_train
from pipeline.training.run_directory.boards import check_boards

def main():
    arguments = parse_train()
    arguments.data = []  # there may be none yet
    job = read_job(arguments)
    check_boards(job.run.logging.to)
    place = next(p for p in (job.output, *job.output.parents) if p.exists())
    needed = parameters_of(job.run) * PARAMETER_BYTES * (job.run.checkpoint.keep + 1)
    free = shutil.disk_usage(place).free
    words = f"{needed / 1e9:,.2f} GB of checkpoints, {free / 1e9:,.2f} GB free in {place}"
    if needed > free:
        raise CheckpointError(f"no room: {words}; free some or name another TENFOLD_RUN")
    if not os.access(place, os.W_OK):
        raise CheckpointError(f"cannot write to {place}; name another TENFOLD_RUN")
    print(words)

run_command(main)' "$TENFOLD_RECIPE" --data shards --output "$TENFOLD_RUN" "${words[@]}"
}

# Sets python=(command), unless it cannot run on this machine.
runs_here() {
  data=()
  choose_python >/dev/null || exit 2
  [ ${#container[@]} -eq 0 ] || {
    echo "not checked: Pyxis runs only in jobs"
    return 1
  }
}

check_request() {
  local output
  output=$(sbatch --test-only "${all[@]}" "$@" 2>&1) ||
    fail "sbatch refuses it: $(paste -sd' ' <<<"$output")"
  sed -n 's/^sbatch: Job [0-9]* //p' <<<"$output"
}
