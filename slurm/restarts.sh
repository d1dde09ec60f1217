# shellcheck shell=bash
# The lives of a job: when it is started again, without which nodes, and when no more.
#
#   begin_life   before the ranks start: counts lives that began at the same checkpoint
#   end_life     after they have ended, with $status: requeues the job, or ends it
#
# Slurm itself starts a job again after a node's failure or a preemption; then end_life keeps quiet.

MOST_RESTARTS=3 # in a row without a new checkpoint

# Sets life=(file that is as old as this life), and log and log_start (what of it is this life's).
begin_life() {
  local before='' count=-1
  mkdir -p "$TENFOLD_RUN" 2>/dev/null ||
    fail "cannot make TENFOLD_RUN=$TENFOLD_RUN; name a directory that all nodes can write to"
  life=$TENFOLD_RUN/.restarts-$SLURM_JOB_ID
  checkpoint=$(newest_checkpoint)
  if [ "${SLURM_RESTART_COUNT:-0}" -gt 0 ] && [ -r "$life" ]; then read -r before count <"$life"; fi
  [ "$before" = "$checkpoint" ] || count=-1
  restarts=$((count + 1))
  { echo "$checkpoint $restarts" >"$life"; } 2>/dev/null ||
    fail "cannot write to TENFOLD_RUN=$TENFOLD_RUN; mend that or name another directory"
  log=$(job_field StdErr)
  log_start=$(stat -c %s -- "$log" 2>/dev/null || echo 0)
  [ "$restarts" -le "$MOST_RESTARTS" ] || give_up
  [ "${SLURM_RESTART_COUNT:-0}" -eq 0 ] ||
    say "restart $SLURM_RESTART_COUNT of job $SLURM_JOB_ID; newest checkpoint: $checkpoint"
}

# Decided by what is on disk and by what Slurm says, never by an exit code: launchers change them,
# and a mistake of the user's would come back for ever.
end_life() {
  local failed state
  state=$(job_field JobState)
  : "${status:?of the ranks}"
  if [ "$state" != RUNNING ]; then
    # Cancelled, out of time, or a node failed or was taken away: then it is in the queue again.
    say "Slurm is ending this job ($state); newest checkpoint: $(newest_checkpoint)"
    exit "$status"
  fi
  if written "$TENFOLD_RUN/INTERRUPTED"; then restart; fi
  if [ "$status" -eq 0 ]; then
    rm -f "$life"
    exit 0
  fi
  failed=$(killed_on)
  if [ -n "$failed" ]; then
    say "a rank was killed on $failed"
    restart "$failed"
  fi
  say "ended with exit code $status; mend what the log says and submit again, it goes on"
  exit "$status"
}

# Requeues the job, from now on without the nodes given and those in RUN/.slow-nodes.
restart() {
  local slow=() excluded try
  if [ "$restarts" -ge "$MOST_RESTARTS" ] && [ "$(newest_checkpoint)" = "$checkpoint" ]; then
    give_up
  fi
  [ ! -r "$TENFOLD_RUN/.slow-nodes" ] || mapfile -t slow <"$TENFOLD_RUN/.slow-nodes"
  excluded=$(without "$@" "${slow[@]}")
  say "requeued; newest checkpoint: $(newest_checkpoint)"
  scontrol requeue "$SLURM_JOB_ID" || [ "$(job_field JobState)" != RUNNING ] ||
    fail "Slurm does not requeue job $SLURM_JOB_ID; submit it again, it goes on from" \
      "$(newest_checkpoint)"
  # Slurm now sends TERM to all that is left of this life. This shell survives that until KillWait,
  # which it needs: nodes can be excluded only from a job that is waiting.
  for try in 1 2 3; do
    [ -n "$excluded" ] || break
    scontrol update "JobId=$SLURM_JOB_ID" "ExcNodeList=$excluded" && break
    sleep "$try"
  done
  exit "$status"
}

# Prints the nodes that the job must not get, those given and those excluded before; says why and
# prints nothing when the rest would be too few for it.
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

# Says once more why, and ends the job for good.
give_up() {
  rm -f "$life"
  fail "$MOST_RESTARTS restarts in a row without a new checkpoint (newest: $checkpoint in" \
    "$TENFOLD_RUN); see above for the reason, mend it and submit again"
}

# The node that srun or torchrun names for the first rank that a signal other than TERM has ended. An
# exception in Python is no such end: it would most likely come back on every node. That a whole
# node is gone is Slurm's to notice: srun waits for it until then.
killed_on() {
  tail -c "+$((log_start + 1))" -- "$log" 2>/dev/null | awk '
    /^srun: error: [^ ]+: tasks? [^ ]+: (Killed|Aborted|Bus error|Segmentation fault|Illegal)/ {
      sub(":", "", $3); print $3; exit }
    $1 == "host" { host = $3 }
    $1 == "exitcode" && $3 ~ /^-[0-9]+$/ && $3 != "-15" { print host; exit }'
}

# Whether a file was written in this life of the job, by the clock of its file system.
written() { [ "$1" -nt "$life" ]; }

newest_checkpoint() { cat "$TENFOLD_RUN/checkpoints/latest" 2>/dev/null || echo none; }

job_field() { scontrol --oneliner show job "$SLURM_JOB_ID" | grep -oP "(?<= $1=)\S*"; }
