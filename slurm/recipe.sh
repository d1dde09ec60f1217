# shellcheck shell=bash
# A recipe is a name, the folder of a transformers model, or hf:ORG/NAME[@REVISION] on the Hub.

# find_recipe RECIPE: prints it; the folder of a model, which has a slash, as an absolute path.
find_recipe() {
  local folder=$1
  if [[ $1 != */* || $1 == hf:* ]]; then
    echo "$1"
    return
  fi
  [[ $1 == /* ]] || folder=${SLURM_SUBMIT_DIR:-$PWD}/$1 # where sbatch was called
  folder=$(realpath -m -- "$folder")
  [ -d "$folder" ] ||
    fail "recipe $1: no folder $folder; name one with config.json and model.safetensors, a model on" \
      "the Hub as hf:ORG/NAME, or a recipe that \`tenfold recipes\` lists"
  echo "$folder"
}

# run_name RECIPE: prints what its run and its shards are named after, as run_name in
# pipeline/released/continued.py does.
run_name() {
  local name=$1
  if [[ $1 != */* && $1 != hf:* ]]; then
    echo "$1"
    return
  fi
  [[ $1 != hf:* ]] || name=${1%%@*} # without the revision
  # C: the same in every job, whatever its locale
  name=$(printf %s "${name##*/}" |
    LC_ALL=C sed -zE 's/[^a-zA-Z0-9_.-]+/-/g; s/^[-.]+//; s/[-.]+$//')
  name=${name:-model}
  # the recipes are listed there as `family.NAME,`
  ! grep -qF -e ".$name," "$TENFOLD_HOME/pipeline/recipes/__init__.py" || name+=-continued
  echo "$name"
}

# model_mount RECIPE: prints `,` and the directory with the model, which containers mount; a model of
# the Hub is fetched into it. Nothing for a recipe's name.
model_mount() {
  case $1 in
  /*) echo ",$1" ;;
  hf:*)
    mkdir -p "$TENFOLD_ROOT/models" || return
    echo ",$TENFOLD_ROOT/models"
    ;;
  esac
}
