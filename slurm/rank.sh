#!/usr/bin/env bash
# Runs on the nodes, started by srun, see common.sh.
#
#   rank.sh describe           prints this task's row of the rank table; creates the cache directory
#   rank.sh rank COMMAND...    becomes the command, as one rank
#   rank.sh agent COMMAND...   runs torch's launcher with its options: the ranks of this node
set -euo pipefail

describe() {
  local gpu
  # bash would run commands in what it calculates with
  [[ $SLURM_LOCALID =~ ^[0-9]+$ ]] || fail "SLURM_LOCALID=$SLURM_LOCALID is not a number"
  # shellcheck disable=SC2174  # the mode is for the last one
  mkdir -p -m 700 "$TENFOLD_LOCAL" # if others can change it, each rank refuses it
  [ -z "${visible[*]}" ] || [ "$SLURM_LOCALID" -lt ${#visible[@]} ] ||
    fail "task $SLURM_LOCALID of $(hostname) sees only GPUs ${visible[*]}; a rank must see the GPUs" \
      "of all ranks on its node: request --gres=gpu:RANKS, not --gpus-per-task"
  gpu=$(nvidia-smi --query-gpu=name,uuid --format=csv,noheader 2>/dev/null |
    sed -n "$((SLURM_LOCALID + 1))p") || true
  printf '%5d  %-20s %5d  %s\n' "$SLURM_PROCID" "$(hostname)" "$SLURM_LOCALID" \
    "${gpu:-${visible[SLURM_LOCALID]:-none}}"
}

fail() {
  echo "error: $*" >&2
  exit 2
}

# Until the command listens, a signal would kill it; so signals are ignored and sent again later.
ignore_signals() { trap '' USR1 TERM; }

become_rank() {
  export RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=$SLURM_NTASKS
  ignore_signals
  exec "$@"
}

# torch's launcher kills its ranks 30 s after TERM, and dies of USR1: so USR1 is sent to the ranks.
run_agent() {
  local agent command=("$1" "$2" "$3") # python -m torch.distributed.run
  shift 3
  command+=("--nnodes=$SLURM_NNODES" "--node-rank=$SLURM_NODEID" "--master-addr=$MASTER_ADDR"
    "--master-port=$MASTER_PORT" "$@")
  (ignore_signals && exec "${command[@]}") &
  agent=$!
  trap 'pass_on "$agent"' USR1 TERM
  while kill -0 "$agent" 2>/dev/null; do wait "$agent" || true; done
  wait "$agent"
}

pass_on() {
  local ranks
  read -ra ranks <"/proc/$1/task/$1/children" || true
  [ ${#ranks[@]} -eq 0 ] || kill -USR1 "${ranks[@]}" 2>/dev/null || true
}

IFS=, read -ra visible <<<"${CUDA_VISIBLE_DEVICES:-}"
mode=${1:-}
shift "$(($# > 0))"
case $mode in
describe) describe ;;
rank) become_rank "$@" ;;
agent) run_agent "$@" ;;
*) fail "usage: rank.sh describe, or rank.sh rank|agent COMMAND...; srun starts it in a job" ;;
esac
