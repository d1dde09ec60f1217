# shellcheck shell=bash disable=SC2034
# Why the ranks failed: a fault of a machine, after which the job starts again, or anything else.
#
#   judge   reads `life_log`, $status and $TENFOLD_LAUNCHER; sets
#             verdict=restart or end
#             failed_node=the node of the rank that reported the fault, else of the first one that
#               failed; empty if the fault is not that node's, or any rank's may be the faulty one
#             reason=one line
#             status=that of a mistake or of divergence, if a rank ended with it
#
# In this order: a user's mistake (exit code 2) or a loss that diverged (3) ends the job, whatever
# else happened; a device that reports a fault restarts it; a message that a program is wrong ends it;
# else the first rank that failed decides. What happens to the others afterwards is a consequence:
# they lose a rank (exit code 70), or srun ends them.

MISTAKE=2
DIVERGED=3
LOST=70 # a rank that hung, or lost another one

# Faults of devices. The texts are those of CUDA (cudaGetErrorString), NVML and the NVIDIA driver. The
# Xids are those for which NVIDIA's catalog resets the GPU or the machine, or examines NVLink, and 94,
# a memory error that ends one program. They are not 13, 31, 43 and 45, which programs cause, nor 63
# and 92, which the catalog ignores.
DEVICE_FAULTS=(
  'uncorrectable ECC error encountered'
  'uncorrectable NVLink error detected during the execution'
  "(CUDA error: |Cuda failure ([0-9]+ )?')unknown error"
  'CUDA-capable device\(s\) is/are busy or unavailable'
  'no CUDA-capable device is detected'
  'system not yet initialized'
  'GPU has fallen off the bus'
  'GPU is lost'
  'Xid \([^)]*\): (46|48|62|64|74|79|94|95|109|110|119|120|136|140|143|14[4-9]|15[01568]),'
)

# Mistakes of a program or of settings that look like faults: they would happen again. A "hardware
# stack error" is the call stack of a kernel that is too deep or was overwritten.
PROGRAM_ERRORS=(
  'device-side assert triggered'
  'an illegal memory access was encountered'
  'CUDA error: misaligned address'
  'CUDA error: hardware stack error'
  'CUDA error: invalid device function'
  'no kernel image is available for execution on the device'
  'CUDA out of memory'
  'ncclInvalid(Usage|Argument)'
  'Bootstrap : no socket interface found'
)

# Faults of devices, perhaps: they count only in the exception that ended the first rank. CUDA
# explains an unspecified launch failure by wrong pointers in a kernel; in reports of training it is
# often a failing GPU or driver, or does not come back. When a rank ends, those that read its memory
# over NVLink report an invalid access.
UNCLEAR_FAULTS=(
  'unspecified launch failure'
  'Invalid access of peer GPU memory over nvlink or a hardware error'
)

# Faults of the network, likewise: NCCL (ncclGetErrorString, with the last error of its transports for
# InfiniBand and EFA), gloo, and torch's store. Elsewhere in a log they are what other ranks say of
# a rank that is gone.
NETWORK_FAULTS=(
  'nccl(System|Remote)Error'
  'unhandled system error'
  'remote process exited or there was a network error'
  'NET/(IB|OFI|Socket).*(error|Error|failed|status=)'
  'gloo.*([Cc]onnection (closed|reset|refused|timed out)|[Tt]imed out|[Tt]imeout|Broken pipe)'
  'connectFullMesh failed'
  'Dist(Network|Store)Error'
)

COLLECTIVE_TIMEOUT='Watchdog caught collective operation timeout'

judge() {
  local node code first='' first_node='' codes=' ' device program network silent=()
  verdict='end' failed_node=''
  while read -r node code; do
    if [ "$code" = silent ]; then
      [[ " ${silent[*]} " == *" $node "* ]] || silent+=("$node")
      continue
    fi
    codes+="$code "
    if [ -z "$first" ] && [ "$code" != "$LOST" ]; then first=$code first_node=$node; fi
  done < <(failures)
  # that a rank lost another one explains nothing if there is a better reason
  reason=$(errors | grep -m 1 -a -v 'lost another rank' || exception | head -n 1)
  reason=${reason:-$(errors | head -n 1)}
  reason=${reason#error: }
  reason=${reason:-exit code $status}
  device=$(said "${DEVICE_FAULTS[@]}") program=$(said "${PROGRAM_ERRORS[@]}")
  # srun reports the highest code, which may be that of a rank that it ended
  if [[ " $status$codes" == *" $MISTAKE "* ]]; then
    status=$MISTAKE
  elif [[ " $status$codes" == *" $DIVERGED "* ]]; then
    status=$DIVERGED
  elif [ -n "$device" ]; then
    node=$(speaker "${DEVICE_FAULTS[@]}")
    if [ -z "$node$first_node" ]; then # those that ended have only lost another one
      if [ "${SLURM_JOB_NUM_NODES:-}" = 1 ]; then
        node=$SLURM_JOB_NODELIST
      elif [ ${#silent[@]} -eq 1 ]; then
        node=${silent[0]}
      fi
    fi
    at_fault "${node:-$first_node}" "a device failed" "$device"
  elif [ -n "$program" ]; then
    reason=$program
  elif [[ $first == signal ]]; then
    killed "$first_node"
  elif [[ $first == memory ]]; then
    reason="out of memory on $first_node; request more with --mem"
  elif [ -n "$first" ]; then
    device=$(exception | matches "${UNCLEAR_FAULTS[@]}")
    network=$(exception | matches "${NETWORK_FAULTS[@]}")
    if [ -n "$device" ]; then
      at_fault "$first_node" "a device may have failed" "$device"
    elif [ -n "$network" ]; then
      at_fault "$first_node" "the network failed" "$network"
    fi
  elif [[ $codes == *" $LOST "* ]] || [ "$status" = "$LOST" ]; then
    lost
  fi
}

# Prints the errors that ranks report in a line.
errors() { life_log | grep -a '^error: ' || true; }

# Sets the verdict: restart without a node.
at_fault() { verdict='restart' failed_node=$1 reason="$2${1:+ on $1}: $3"; }

# Of a rank that a signal ended. If a collective timed out, the ranks that waited end themselves:
# the one that they waited for is unknown.
killed() {
  verdict='restart'
  if life_log | grep -q -a "$COLLECTIVE_TIMEOUT"; then
    reason='a collective operation timed out'
  else
    failed_node=$1 reason="a rank was killed on $1"
  fi
}

# Of ranks that hung or lost another one. Which report first says little: all wait for the same one.
# That one is known if it alone reported nothing until srun killed it.
lost() {
  verdict='restart'
  if [ ${#silent[@]} -eq 1 ]; then failed_node=${silent[0]} reason+="; silent: $failed_node"; fi
}

# Prints the failures of ranks in the order in which they were reported: NODE CODE; code: the exit
# code, `signal`, `memory` when Slurm ended a task for its use of memory, or `silent` for one that
# had to be killed after srun began to end the step. A TERM does not count. torchrun reports for the
# ranks of its node; srun sees only its agents.
failures() {
  life_log | awk -v launcher="${TENFOLD_LAUNCHER:-srun}" '
    function report(node, code) {
      if (code > 128 && code < 160) code = 128 - code
      if (code == 0 || code == -15 || code == 75) return
      if (code + 0 >= 0) { print node, code; return }
      if (ending && code == -9) print node, "silent"
      else if (code ~ /^-(4|6|7|8|9|11)$/ && !ending) print node, "signal"
    }
    /^srun: .*Terminating (StepId|job step)/ || /^srun: Job step aborted/ { ending = 1 }
    /^srun: error: [^ ]+: tasks? [0-9,-]+: / {
      node = $3; sub(":", "", node)
      if (/: Out Of Memory/) print node, "memory"
      else if (/: Killed/) report(node, -9)
      else if (/: (Aborted|Bus error|Segmentation fault|Illegal|Floating point)/) report(node, -6)
      else if (/: Exited with exit code/ && launcher != "torchrun") report(node, $NF)
    }
    /^Root Cause/ { root = 1 }
    $1 == "host" && $2 == ":" { host = $3 }
    $1 == "exitcode" && $2 == ":" {
      if (root) report(host, $3)
      else others[++number] = host " " $3
      root = 0
    }
    END {
      for (i = 1; i <= number; i++) {
        split(others[i], part, " ")
        report(part[1], part[2])
      }
    }'
}

# Prints the first message of some in the log; nothing if there is none.
said() { life_log | matches "$@"; }

# Prints the node of the rank whose exception has the first of some messages: torch starts its lines
# with [rank2], and common.sh has printed a table of ranks and nodes.
speaker() {
  local line
  line=$(life_log | grep -m 1 -a -E "$(IFS='|' && echo "$*")") || true
  [[ $line =~ ^\[rank([0-9]+)\] ]] || return 0
  life_log | awk -v rank="${BASH_REMATCH[1]}" '$1 == rank && $3 ~ /^[0-9]+$/ { print $2; exit }'
}

matches() { grep -m 1 -a -o -E "$(IFS='|' && echo "$*")" | head -n 1; }

# Prints the first uncaught exception with the details that NCCL gives. torch adds the rank to each
# line.
exception() {
  life_log | awk '
    { line = $0; sub(/^\[rank[0-9]+\]: ?/, "", line) }
    inside { inside = line ~ /^(nccl[A-Z]|Last error:)/ || last; last = line ~ /^Last error:/ }
    !found && line ~ /^([A-Za-z_]+\.)*[A-Z][A-Za-z]*(Error|Exception)(:|$)/ { found = inside = 1 }
    inside'
}
