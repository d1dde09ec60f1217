# shellcheck shell=bash
# Shared by all batch files. A batch file sets its resources and calls
#
#   train RECIPE
#
# which starts one Python process per GPU, forwards signals, and checks the run's files when the
# ranks have ended: RUN/INTERRUPTED means that the run is saved and must be started again. Settings
# come from the environment, then from site.env, then from the batch file, which therefore calls
# read_site before it looks at any; slurm/README.md lists them.

# -f: a * in arguments, which are split into words, must not become names of files. Where paths are
# meant, +f is set.
set -ufo pipefail
shopt -s extglob

# Steps get the environment of this shell whatever sbatch was told: after --export=NONE, which sites
# make the default by SBATCH_EXPORT, Slurm sets SLURM_EXPORT_ENV=NONE, and srun passes nothing on.
export SRUN_EXPORT_ENV=ALL # overrides it

SITE_VERSION=1
among=()

# shellcheck source=slurm/recipe.sh
. "$TENFOLD_HOME/slurm/recipe.sh"
# shellcheck source=slurm/restarts.sh
. "$TENFOLD_HOME/slurm/restarts.sh"

say() { echo "slurm: $*"; }

# A user's mistake, in the format of every command of the pipeline.
fail() {
  [ -z "${life:-}" ] || note failed "$*"
  echo "error: $*" >&2
  exit 2
}

# Bash runs the commands in the subscripts of what it calculates with, so that numbers are checked
# by pattern before.
is_number() { [[ $1 =~ ^(0|[1-9][0-9]{0,17})$ ]]; }

# check_numbers NAME...: variables that Slurm sets.
check_numbers() {
  local name
  for name; do
    is_number "${!name:-}" || fail "$name=${!name:-} is not a number; it is set by Slurm, not by hand"
  done
}

# A batch file that is started by hand would stop at the first variable that Slurm sets.
require_job() {
  [ -n "${SLURM_JOB_ID:-}" ] || fail "this is no Slurm job; submit it: sbatch [OPTIONS] $0"
}

# train RECIPE: trains it, or with an empty one the recipe of the settings.
train() {
  require_job
  asked='' passed='' ranks=''
  trap stop USR1 # may arrive at any time, and would otherwise end this shell
  # A file that is named for a recipe trains it, whatever the site's usual recipe is.
  [ -z "$1" ] || TENFOLD_RECIPE=${TENFOLD_RECIPE:-$1}
  read_site
  [ -n "$TENFOLD_RECIPE" ] ||
    fail "TENFOLD_RECIPE is not set; name a recipe, here or in slurm/site.env"
  choose_data
  choose_python
  choose_launch
  set_network
  set_caches
  begin_life
  examine --recipe "$TENFOLD_RECIPE" --data "${data[@]}" --output "$TENFOLD_RUN" \
    "${settings[@]}"
  run_ranks
  end_life
}

# ---- settings ---------------------------------------------------------------------------------

# read_site [RECIPE]: reads site.env; RECIPE is the one of a batch file whose settings name none. What
# the environment sets prevails, also over plain assignments, KEY=VALUE; empty values count as unset.
read_site() {
  local site=${TENFOLD_SITE_ENV:-$TENFOLD_HOME/slurm/site.env} name given=()
  [ -r "$site" ] || fail "cannot read $site; copy slurm/site.env there, or unset TENFOLD_SITE_ENV"
  TENFOLD_SITE_VERSION=
  for name in $(compgen -v TENFOLD_); do [ -z "${!name}" ] || given+=("$name=${!name}"); done
  set -a +f
  # shellcheck source=slurm/site.env
  . "$site"
  set +a -f
  declare -g "${given[@]}" # at least TENFOLD_HOME
  [[ ${SLURM_EXPORT_ENV:-ALL} == ALL* ]] ||
    say "--export or SBATCH_EXPORT kept settings in sbatch's environment from this job; it has" \
      "those of $site"
  [ "$TENFOLD_SITE_VERSION" = "$SITE_VERSION" ] ||
    fail "$site has TENFOLD_SITE_VERSION=${TENFOLD_SITE_VERSION:-none}, slurm/common.sh needs" \
      "$SITE_VERSION; copy your values to a new copy of slurm/site.env"
  TENFOLD_RECIPE=$(find_recipe "${TENFOLD_RECIPE:-${1:-}}") || exit 2
  named=$(run_name "$TENFOLD_RECIPE")
  # Containers work in another directory.
  TENFOLD_ROOT=$(realpath -m -- "${TENFOLD_ROOT:-$TENFOLD_HOME/data}")
  : "${TENFOLD_RUN:=$TENFOLD_ROOT/runs/$named}"
  TENFOLD_RUN=$(realpath -m -- "$TENFOLD_RUN")
  export TENFOLD_ROOT
}

# Sets data=(directories of shards): those in TENFOLD_DATA, or the only ones there are.
choose_data() {
  local here=$TENFOLD_ROOT/shards directory -
  set +f # until this function returns
  if [ -z "${TENFOLD_DATA:-}" ]; then
    data=("$here"/*-"$named"-+([!-])/) # not those of $named-continued
    # shards of another size of the family also fit: training compares every setting
    [ -e "${data[0]}" ] || data=("$here"/*/)
    [ -e "${data[0]}" ] ||
      fail "no shards in $here; run pipeline.prepare (slurm/prepare.sbatch), or set TENFOLD_DATA"
    [ ${#data[@]} -eq 1 ] ||
      fail "there are several shards: ${data[*]}; name those to train on in TENFOLD_DATA"
  else
    # shellcheck disable=SC2206  # several directories and globs are meant to be split and expanded
    data=($TENFOLD_DATA)
  fi
  for directory in "${data[@]}"; do
    [ -f "$directory/manifest.json" ] ||
      fail "no shards in $directory: it has no manifest.json; finish pipeline.prepare, or" \
        "change TENFOLD_DATA"
  done
  mapfile -t data < <(realpath -- "${data[@]}")
}

# Adds the folders that arguments of pipeline.ablate name to data=(...), which containers mount.
add_scored() {
  local option='' word
  for word; do
    case $word in
      --finetune=* | --grammar=*) option=${word%%=*} word=${word#*=} ;;
    esac
    case $option in
      --finetune) data+=("$(realpath -m -- "${word#*=}")") ;;
      --grammar) data+=("$(realpath -m -- "$word")") ;;
    esac
    option=$word
  done
}

# Sets data=(paths) and inputs=(arguments for pipeline.prepare) from TENFOLD_INPUT: paths and globs,
# with MEMBER= before those of a group's corpus, and URLs, which containers need no mount for.
split_inputs() {
  local given member path
  data=() inputs=()
  for given in ${TENFOLD_INPUT:-}; do
    member=''
    if [[ ! -e $given && $given =~ ^([a-z0-9-]+=)(.*)$ ]]; then
      member=${BASH_REMATCH[1]} given=${BASH_REMATCH[2]}
    fi
    if [[ $given == *://* ]]; then
      inputs+=("$member$given")
      continue
    fi
    set +f # now that MEMBER= is removed
    for path in $given; do
      path=$(realpath -m -- "$path")
      data+=("$path") inputs+=("$member$path")
    done
    set -f
  done
}

# split_words KEY: sets words=(the arguments in this setting). Single quotes keep an argument with
# spaces in one piece, as in a shell, and \' is an apostrophe, also between them; all else is passed
# on as it is, a JSON list's quotes too.
split_words() {
  local word="^([^[:space:]']|'[^']*')+" space='^[[:space:]]+' quote="'" escaped="\\'"
  local mark=$'\2' text # stands for an apostrophe until quotes are gone: no argument has this byte
  text=${!1:-} text=${text//"$escaped"/$mark}
  words=()
  while [[ $text =~ $space ]] && text=${text:${#BASH_REMATCH[0]}}; [ -n "$text" ]; do
    [[ $text =~ $word ]] ||
      fail "$1: a single quote is not closed: ${text//$mark/$escaped}; an apostrophe is $escaped"
    text=${text:${#BASH_REMATCH[0]}} words+=("${BASH_REMATCH[0]//$quote/}")
  done
  words=("${words[@]//$mark/$quote}")
}

# Sets python=(command) and container=(srun options that it needs).
choose_python() {
  container=()
  [ -z "$TENFOLD_VENV" ] || [ -z "$TENFOLD_IMAGE" ] ||
    fail "TENFOLD_VENV=$TENFOLD_VENV and TENFOLD_IMAGE=$TENFOLD_IMAGE are both set; unset one"
  if [ -n "$TENFOLD_VENV" ]; then
    [ -x "$TENFOLD_VENV/bin/python" ] ||
      fail "TENFOLD_VENV=$TENFOLD_VENV has no bin/python; run make venv where all nodes see it"
    python=("$TENFOLD_VENV/bin/python")
    export PATH=$TENFOLD_VENV/bin:$PATH # so that kernel compilers find ninja
    # run the code of this checkout, whatever the current directory or the venv contain
    export PYTHONPATH=$TENFOLD_HOME PYTHONSAFEPATH=1
  elif [ -n "$TENFOLD_IMAGE" ]; then
    choose_container
  elif [ -n "$TENFOLD_CONTAINER" ]; then
    fail "TENFOLD_CONTAINER=$TENFOLD_CONTAINER asks for a container, but TENFOLD_IMAGE is empty"
  else
    fail "neither TENFOLD_VENV nor TENFOLD_IMAGE is set; set one, here or in slurm/site.env"
  fi
  export PYTHONUNBUFFERED=1 PYTHONFAULTHANDLER=1
  # Pyxis supports containers in steps only, so there the ranks report an unknown recipe, and fetch a
  # model of the Hub.
  [ ${#container[@]} -gt 0 ] || "${python[@]}" -c 'import sys
from pipeline.base.errors import run_command
from pipeline.released.choice import read_recipe
run_command(lambda: read_recipe(sys.argv[1]))' "$TENFOLD_RECIPE" || exit 2
}

# The code that runs is the image's; the checkout provides the batch files.
choose_container() {
  local runtime=$TENFOLD_CONTAINER mounts directories directory twice=''
  unset PYTHONPATH
  if [ -z "$runtime" ] && command -v apptainer >/dev/null; then runtime=apptainer; fi
  if [ -z "$runtime" ] && srun --help 2>&1 | grep -q -e --container-image; then runtime=pyxis; fi
  # directories to bind must exist
  # shellcheck disable=SC2174  # the mode is for the last one
  mkdir -p -m 700 "$TENFOLD_LOCAL" || exit 2
  mkdir -p "$TENFOLD_RUN" || exit 2
  mounts=$(IFS=, && echo "$TENFOLD_HOME,$TENFOLD_LOCAL,$TENFOLD_RUN,${data[*]}")
  mounts+=$(model_mount "$TENFOLD_RECIPE") || exit 2
  mounts+=${TENFOLD_MOUNTS:+,$TENFOLD_MOUNTS}
  IFS=, read -ra directories <<<"$mounts"
  for directory in "${directories[@]}"; do twice+=,$directory:$directory; done
  case $runtime in
  apptainer)
    [ -e "$TENFOLD_IMAGE" ] || fail "TENFOLD_IMAGE=$TENFOLD_IMAGE does not exist"
    unset APPTAINER_CLEANENV SINGULARITY_CLEANENV # each rank must know which one it is
    # --nv adds the driver of the node's GPUs
    python=(apptainer exec --nv --bind "$mounts" "$TENFOLD_IMAGE" python)
    ;;
  pyxis)
    python=(python)
    container=("--container-image=$TENFOLD_IMAGE" --no-container-mount-home
      "--container-workdir=$TENFOLD_HOME"
      "--container-mounts=${twice#,}")
    ;;
  "") fail "TENFOLD_IMAGE=$TENFOLD_IMAGE needs Apptainer, or Slurm with Pyxis; found neither" ;;
  *) fail "TENFOLD_CONTAINER=$runtime is unknown; choose apptainer or pyxis" ;;
  esac
}

# Sets launch=(the step that runs the ranks).
choose_launch() {
  local per_node=${SLURM_TASKS_PER_NODE%%(*} arguments words
  split_words TENFOLD_ARGS
  arguments=("$TENFOLD_RECIPE" --data "${data[@]}" --output "$TENFOLD_RUN" "${words[@]}")
  set_cores
  check_numbers SLURM_JOB_ID
  # If a rank dies, end the others, which would wait for it.
  step=(srun --kill-on-bad-exit=1 --mpi=none "${container[@]}")
  case $TENFOLD_LAUNCHER in
  srun)
    launch=("${step[@]}" "$TENFOLD_HOME/slurm/rank.sh" rank
      "${python[@]}" -m pipeline.train "${arguments[@]}")
    ;;
  torchrun)
    is_number "$per_node" ||
      fail "torchrun needs equally many tasks on every node, not $SLURM_TASKS_PER_NODE; give" \
        "--ntasks-per-node"
    launch=("${step[@]}" "--ntasks=$SLURM_JOB_NUM_NODES" --ntasks-per-node=1
      "--cpus-per-task=$((SRUN_CPUS_PER_TASK * per_node))"
      "$TENFOLD_HOME/slurm/rank.sh" agent
      "${python[@]}" -m torch.distributed.run "--nproc-per-node=$per_node"
      -m pipeline.train "${arguments[@]}")
    ;;
  *) fail "TENFOLD_LAUNCHER=$TENFOLD_LAUNCHER is unknown; choose srun or torchrun" ;;
  esac
  choose_settings
}

# Sets settings=(what the doctor needs to know of TENFOLD_ARGS).
choose_settings() {
  local words number
  settings=()
  split_words TENFOLD_ARGS
  for ((number = 0; number < ${#words[@]}; number++)); do
    case ${words[number]} in
    --set | --stage) settings+=("${words[number]}" "${words[number + 1]:-}") ;;
    --set=* | --stage=*) settings+=("${words[number]}") ;;
    esac
  done
}

# ---- before the work --------------------------------------------------------------------------

# examine ARGUMENTS...: a few seconds in which every task of the step looks at its node. Ends the job
# if it would fail; srun's options in among=(...) place the tasks, by default as the ranks. A doctor
# that dies itself ends nothing: what killed it meets the ranks, too, and they can start again.
examine() {
  [ "${TENFOLD_DOCTOR:-on}" != off ] || return 0
  local status=0
  srun --mpi=none "${container[@]}" "${among[@]}" "$TENFOLD_HOME/slurm/rank.sh" rank \
    "${python[@]}" -m pipeline.doctor --brief "$@" || status=$?
  case $status in
    0) ;;
    2) fail "the doctor's checks above failed; fix this, or set TENFOLD_DOCTOR=off to skip them" ;;
    *) say "the doctor ended with $status before its last check; continuing without it" ;;
  esac
}

# ---- how ranks meet ---------------------------------------------------------------------------

set_network() {
  [[ $TENFOLD_PORTS =~ ^([1-9][0-9]{0,4})-([1-9][0-9]{0,4})$ ]] ||
    fail "TENFOLD_PORTS=$TENFOLD_PORTS is not first-last, e.g. 20000-31999; change it, here or in" \
      "slurm/site.env"
  MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)$TENFOLD_ADDRESS_SUFFIX
  MASTER_PORT=$(free_port) || fail "no free port in TENFOLD_PORTS=$TENFOLD_PORTS on $(hostname);" \
    "widen it, here or in slurm/site.env"
  export MASTER_ADDR MASTER_PORT
  if [ -n "$TENFOLD_INTERFACE" ]; then
    export NCCL_SOCKET_IFNAME=$TENFOLD_INTERFACE GLOO_SOCKET_IFNAME=$TENFOLD_INTERFACE
  fi
  # By default NCCL does not report why it gave up.
  export NCCL_DEBUG=${NCCL_DEBUG:-WARN}
  # 4 us * 2^22 = 17 s for an InfiniBand answer, seven times: this survives a flapping link.
  export NCCL_IB_TIMEOUT=${NCCL_IB_TIMEOUT:-22}
  # If a collective times out, RUN/.nccl-RANK shows which rank was in which one (torch's flight
  # recorder): the only trace of the rank that the others waited for.
  export TORCH_NCCL_DUMP_ON_TIMEOUT=${TORCH_NCCL_DUMP_ON_TIMEOUT:-1}
  export TORCH_FR_BUFFER_SIZE=${TORCH_FR_BUFFER_SIZE:-2000}
  export TORCH_FR_DUMP_TEMP_FILE=${TORCH_FR_DUMP_TEMP_FILE:-$TENFOLD_RUN/.nccl-}
  # A hang must end, with a message, well before the end of the allocation.
  local left
  left=$(seconds "$(squeue --noheader --jobs="$SLURM_JOB_ID" --format=%L)")
  left=$((left / 4 < 60 ? 60 : left / 4))
  export TENFOLD_TIMEOUT_SECONDS=${TENFOLD_TIMEOUT_SECONDS:-$((left < 1800 ? left : 1800))}
}

# Jobs that share a node start their search at different ports.
free_port() {
  local first=${TENFOLD_PORTS%-*} last=${TENFOLD_PORTS#*-} offset port
  is_number "$first" && is_number "$last" || return
  for ((offset = 0; offset <= last - first && offset < 200; offset++)); do
    port=$((first + (SLURM_JOB_ID + offset) % (last - first + 1)))
    # if something answers, the port is taken
    if ! (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null &&
      ! (exec 3<>"/dev/tcp/$MASTER_ADDR/$port") 2>/dev/null; then
      echo "$port"
      return
    fi
  done
  return 1
}

# Converts Slurm's format of times, 1-02:03:04, to seconds; a day if there is no limit.
seconds() {
  [[ $1 =~ ^(([0-9]+)-)?(([0-9]+):)?([0-9]+):([0-9]+)$ ]] || {
    echo 86400
    return
  }
  local m=("${BASH_REMATCH[@]}")
  echo $((10#${m[2]:-0} * 86400 + 10#${m[4]:-0} * 3600 + 10#${m[5]} * 60 + 10#${m[6]}))
}

# Since Slurm 22.05 srun does not inherit this from sbatch: each task would have one CPU.
set_cores() {
  export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-1}
  check_numbers SRUN_CPUS_PER_TASK
  export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$SRUN_CPUS_PER_TASK}
}

# Compiled kernels are kept on each node's own disk, see TENFOLD_LOCAL, and reused by the next job.
# The name in /tmp can be guessed: the commands refuse directories that others can change, see
# pipeline/base/private_directories.py.
set_caches() {
  export TENFOLD_LOCAL
  export TORCH_EXTENSIONS_DIR=$TENFOLD_LOCAL/torch_extensions
  export TRITON_CACHE_DIR=$TENFOLD_LOCAL/triton
  export TORCHINDUCTOR_CACHE_DIR=$TENFOLD_LOCAL/inductor
  # This includes numba's kernels: pipeline.kernels.cache keeps them here under a hash of its code.
  # NUMBA_CACHE_DIR would mix those of all versions, and an update could run old code.
  export XDG_CACHE_HOME=$TENFOLD_LOCAL/cache
  unset NUMBA_CACHE_DIR
}

# ---- the ranks --------------------------------------------------------------------------------

# Starts the ranks and waits for them; sets status.
run_ranks() {
  trap stop TERM
  say "$TENFOLD_RECIPE on $SLURM_NTASKS ranks, $SLURM_JOB_NUM_NODES nodes, by $TENFOLD_LAUNCHER;" \
    "they meet at $MASTER_ADDR:$MASTER_PORT and wait $TENFOLD_TIMEOUT_SECONDS s for each other"
  printf '%5s  %-20s %5s  %s\n' rank node local GPU
  srun --mpi=none "$TENFOLD_HOME/slurm/rank.sh" describe | sort -n
  status=$?
  [ "$status" -eq 0 ] || return
  "${launch[@]}" &
  ranks=$!
  until written "$TENFOLD_RUN/ready" || ! kill -0 "$ranks" 2>/dev/null; do
    sleep 0.5 &
    wait $!
  done
  [ -z "$asked" ] || pass_on
  # `wait` after each signal: a trap interrupts `wait` and nothing else in this shell.
  while kill -0 "$ranks" 2>/dev/null; do wait "$ranks"; done
  wait "$ranks"
  status=$?
}

# Handles a request to stop the job; the signal may arrive at any time.
stop() {
  asked=yes
  pass_on
}

# Asks the ranks to stop, once, and only after they listen. Uses USR1: srun forwards it to them, but
# handles TERM itself.
pass_on() {
  if [ -n "$ranks" ] && [ -z "$passed" ] && written "$TENFOLD_RUN/ready"; then
    passed=yes
    say "asked to stop; forwarded to the ranks"
    kill -USR1 "$ranks"
  fi
}
