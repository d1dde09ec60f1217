# shellcheck shell=bash
# Restarts of a job: when it is started again, without which nodes, and when it is given up.
#
#   begin_life   before the ranks start: counts lives that started from the same checkpoint
#   end_life     after they have ended, with $status: requeues the job, or ends it
#
# Slurm itself restarts a job after a node failure or a preemption; then end_life does nothing.
# RUN/history.tsv records the starts and what was decided, for `tenfold status`.

# shellcheck source=slurm/faults.sh
. "$TENFOLD_HOME/slurm/faults.sh"

MOST_RESTARTS=3 # in a row without a new checkpoint

# Sets life=(file written at the start of this life), log, log_start=(where this life's log starts).
begin_life() {
  local before='' count=''
  mkdir -p "$TENFOLD_RUN" 2>/dev/null ||
    fail "cannot make TENFOLD_RUN=$TENFOLD_RUN; name a directory that all nodes can write to"
  life=$TENFOLD_RUN/.restarts-$SLURM_JOB_ID
  checkpoint=$(newest_checkpoint)
  if [ "${SLURM_RESTART_COUNT:-0}" -gt 0 ] && [ -r "$life" ]; then read -r before count <"$life"; fi
  restarts=0
  if [ "$before" = "$checkpoint" ] && is_number "$count"; then restarts=$((count + 1)); fi
  { echo "$checkpoint $restarts" >"$life"; } 2>/dev/null ||
    fail "cannot write to TENFOLD_RUN=$TENFOLD_RUN; fix this or name another directory"
  log=$(job_field StdErr)
  log_start=$(stat -c %s -- "$log" 2>/dev/null || echo 0)
  is_number "$log_start" || log_start=0
  note job "$log"
  [ "$restarts" -le "$MOST_RESTARTS" ] || give_up
  [ "${SLURM_RESTART_COUNT:-0}" -eq 0 ] ||
    say "restart $SLURM_RESTART_COUNT of job $SLURM_JOB_ID; newest checkpoint: $checkpoint"
}

# Decides from the files on disk, Slurm's job state and what the log says of each rank. The exit code
# of srun alone is not enough: launchers change it, and that of a rank which srun ended can hide the
# first one's.
end_life() {
  local state
  state=$(job_field JobState)
  : "${status:?of the ranks}"
  if [ "$state" != RUNNING ]; then
    # Cancelled, out of time, or a node failed or was preempted: then the job is queued again.
    say "Slurm is ending this job ($state); newest checkpoint: $(newest_checkpoint)"
    exit "$status"
  fi
  if written "$TENFOLD_RUN/INTERRUPTED"; then restart 'asked to stop, and saved'; fi
  if [ "$status" -eq 0 ]; then
    rm -f "$life"
    exit 0
  fi
  judge
  if [ "$verdict" = restart ]; then
    say "$reason"
    # shellcheck disable=SC2046  # no argument if there is none
    restart "$reason" $(node_of_job "$failed_node")
  fi
  note failed "$reason"
  say "ended with exit code $status; fix what the log reports and submit again to continue"
  exit "$status"
}

# restart REASON NODE...: requeues the job, excluding from now on these nodes and those in
# RUN/.slow-nodes.
restart() {
  local slow=() excluded try why=$1
  shift
  if [ "$restarts" -ge "$MOST_RESTARTS" ] && [ "$(newest_checkpoint)" = "$checkpoint" ]; then
    give_up
  fi
  [ ! -r "$TENFOLD_RUN/.slow-nodes" ] || mapfile -t slow <"$TENFOLD_RUN/.slow-nodes"
  excluded=$(without "$@" "${slow[@]}")
  say "requeued; newest checkpoint: $(newest_checkpoint)"
  note requeued "$why"
  scontrol requeue "$SLURM_JOB_ID" || [ "$(job_field JobState)" != RUNNING ] ||
    fail "Slurm refused to requeue job $SLURM_JOB_ID; submit it again, it resumes from" \
      "$(newest_checkpoint)"
  # Slurm now sends TERM to everything left of this life. This shell survives until KillWait, and
  # must: nodes can be excluded only from a pending job.
  for try in 1 2 3; do
    [ -n "$excluded" ] || break
    scontrol update "JobId=$SLURM_JOB_ID" "ExcNodeList=$excluded" && break
    sleep "$try"
  done
  exit "$status"
}

# Prints the nodes that the job must not get: the given ones and those excluded before. If too few
# nodes would remain, reports that and prints nothing.
without() {
  local excluded usable
  [ $# -gt 0 ] || return
  if [ "$(job_field ReqNodeList)" != '(null)' ]; then
    say "not excluding $*: the job asks for its nodes by name" >&2
    return
  fi
  excluded=$(job_field ExcNodeList)
  [ "$excluded" != '(null)' ] || excluded=''
  excluded=$(scontrol show hostnames "$(printf '%s\n' "$@" "$excluded" | paste -sd,)" | sort -u)
  usable=$(sinfo --noheader --Node --partition="$SLURM_JOB_PARTITION" \
    --states=idle,mixed,allocated,completing --format=%n |
    sort -u | grep -cvxF -e "$excluded")
  excluded=$(scontrol show hostlist "$(paste -sd, <<<"$excluded")")
  if [ "$usable" -lt "$SLURM_JOB_NUM_NODES" ]; then
    say "not excluding $excluded: $usable other nodes are up, $SLURM_JOB_NUM_NODES are needed" >&2
  else
    say "excluding $excluded" >&2
    echo "$excluded"
  fi
}

# Reports the reason and ends the job for good.
give_up() {
  rm -f "$life"
  fail "$MOST_RESTARTS restarts in a row without a new checkpoint (newest: $checkpoint in" \
    "$TENFOLD_RUN); see above for the reason, fix it and submit again"
}

# Prints a node as Slurm names it, if it is one of the job's.
node_of_job() {
  local name
  for name in "$1" "${1%%.*}"; do
    scontrol show hostnames "$SLURM_JOB_NODELIST" | grep -m 1 -xF -e "$name" && return
  done
}

# Adds an event to the history, as pipeline/training/run_directory/history.py does.
note() {
  local text
  text=$(tr -s '[:cntrl:] ' ' ' <<<"${2:0:1000}")
  printf '%s\t%s\t%s\t%s\n' "$(date -u +%FT%TZ)" "$SLURM_JOB_ID" "$1" "${text% }" \
    2>/dev/null >>"$TENFOLD_RUN/history.tsv"
}

# Prints the log of this life.
life_log() { tail -c "+$((log_start + 1))" -- "$log" 2>/dev/null || true; } # its reader may leave

# Whether a file was written in this life of the job, by the clock of its file system.
written() { [ "$1" -nt "$life" ]; }

newest_checkpoint() { cat "$TENFOLD_RUN/checkpoints/latest" 2>/dev/null || echo none; }

job_field() { scontrol --oneliner show job "$SLURM_JOB_ID" | grep -oP "(?<= $1=)\S*"; }
