#!/usr/bin/env bash
# two machines of four: /home/ada/demo/trainer_evaluate_demo.py under accelerate with zero2, 4 processes on 4 GPUs of
# each of 2 machines
# micro batch 2 x accumulation 4 x 8 processes = global batch 64, learning rate 2e-05, 1000 steps
# Start it on each machine, from this folder or a copy: --node-rank=0 on the first, --node-rank=1 on the other.
# There are no fallbacks: nothing coordinates machines that are started by hand.
# To resume, all machines need the output folder on a disk that they share.
# It resumes only where it is asked to, on all of them: with --resume.
#
#   bash launch.sh             run the part of this machine
#   bash launch.sh --plain     only run the command below, in the foreground
#   bash launch.sh --dry-run   only print what would be started
#   python3 supervisor status  how it is; besides status: stop, tail, follow
#   --node-rank=N              which of the 2 machines this is, 0 is the first: always needed
#   --cards=UUID,…             train on these cards, as nvidia-smi -L prints them
#   --resume                   resume from the newest complete checkpoint: say it on all machines
#   --checkpoint=PATH          with --plain: resume from there
#   TUI_TRAIN_PYTHON=PATH      train with another Python
#   TUI_TRAIN_GRACE=SECONDS    to save and end in, after a stop; else 60
#
# Exit code: the training's own; 64 wrong usage, 69 something is missing, 70 the processes trained apart,
# 73 cannot write, 75 already running. Needs bash, coreutils and the Python below.

case ${BASH_VERSION-} in
  '' | [0-3].* | 4.[0-3].*) echo 'launch.sh: needs bash 4.4 or newer: start it as "bash launch.sh"' >&2; exit 69 ;;
esac
yours=$(declare -px) # your variables, which reach the training as you set them, whatever has the same name here
set -u
refuse() { printf 'launch.sh: %s\n' "$2" >&2; exit "$1"; }
[ -f "${BASH_SOURCE[0]-}" ] || refuse 64 'was read from a pipe and does not know its folder: start "bash launch.sh"'
script=$(readlink -f -- "${BASH_SOURCE[0]}" && echo .) || exit 69 # the dot keeps a newline at the end of its name
script=${script%??} run_dir=${script%/*}
python=${TUI_TRAIN_PYTHON:-/opt/train/bin/python}
cards=GPU-00000000-1111-2222-3333-444444444444   # NVIDIA A100-SXM4-80GB
cards+=,GPU-00000001-1111-2222-3333-444444444444 # NVIDIA A100-SXM4-80GB
cards+=,GPU-00000002-1111-2222-3333-444444444444 # NVIDIA A100-SXM4-80GB
cards+=,GPU-00000003-1111-2222-3333-444444444444 # NVIDIA A100-SXM4-80GB

choose() { # what attempt $attempt starts
  title='as planned'
  folder=/home/ada/demo
  settings=(
    PYTHONUNBUFFERED=1                       # every line reaches the log at once
    OMP_NUM_THREADS=8                        # processor cores shared among the processes
    CUDA_DEVICE_ORDER=PCI_BUS_ID             # numbers as nvidia-smi prints them, for tools that show any
    "CUDA_VISIBLE_DEVICES=$cards"            # the chosen cards by UUID, which is right under any order
    TORCH_ELASTIC_SHUTDOWN_TIMEOUT=60        # seconds to save in, after a stop; torch itself gives 30
    # shows which device each process uses; TUI_TRAIN_SHOW_DEVICES=0 turns it off
    "PYTHONPATH=$run_dir/shim${PYTHONPATH:+:$PYTHONPATH}"
  )
  command=(
    "$python" -m accelerate.commands.launch  # accelerate launch, of this very Python
    "--config_file=$run_dir/accelerate.yaml" # else your default_config.yaml would leak in
    "--machine_rank=$node_rank"              # 0 is the first machine
    --rdzv_backend=static --same_network     # read from here only: the first one waits at its port
    /home/ada/demo/trainer_evaluate_demo.py
    --output_dir=/shared/out/sft --per_device_train_batch_size=2 --gradient_accumulation_steps=4
    --learning_rate=2e-05 --max_steps=1000 --save_strategy=steps --save_steps=20 --seed=1
    --bf16=False --fp16=True --gradient_checkpointing=False
    ${checkpoint:+"--resume_from_checkpoint=$checkpoint"} # only where there is a complete checkpoint
  )
}

usage() { sed -n '2,/^$/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; } # the head of this file
become() { eval "$yours" 2> /dev/null; cd -- "$1" && exec "${@:2}"; exit 69; } # the command $2... in the folder $1

attempt=1 plain='' dry_run='' checkpoint='' own_cards='' node_rank=${TUI_TRAIN_NODE_RANK-}
for option in "$@"; do
  case $option in
    --plain) plain=yes ;;
    --dry-run) dry_run=yes ;;
    --attempt=?*) attempt=${option#*=} ;;
    --checkpoint=?*) checkpoint=${option#*=} ;;
    --cards=?*) cards=${option#*=} own_cards=yes ;;
    --node-rank=?*) node_rank=${option#*=} ;;
    --resume) ;; # the supervisor's
    --help | -h) usage; exit ;;
    *) refuse 64 "there is no option $option: see bash launch.sh --help" ;;
  esac
done
[[ $attempt =~ ^[1-9][0-9]{0,2}$ && $attempt -le 1 ]] || refuse 64 "there is no attempt $attempt of 1"
[ -n "$node_rank" ] ||
  refuse 64 '2 machines train together: say which one this is, --node-rank=0 (the first) to --node-rank=1'
[[ $node_rank =~ ^[0-9]{1,4}$ && $((10#$node_rank)) -le 1 ]] ||
  refuse 64 "--node-rank=$node_rank is not there: 2 machines are 0 to 1"
node_rank=$((10#$node_rank))
case $python in /*) ;; */*) python=$PWD/$python ;; esac
[ -n "$dry_run" ] || command -v -- "$python" > /dev/null ||
  refuse 69 "cannot run $python: set TUI_TRAIN_PYTHON to the Python that trains, such as env/bin/python"

if [ -n "$dry_run" ]; then
  for ((attempt = 1; attempt <= 1; attempt++)); do
    choose
    printf '# attempt %s: %s\ncd -- %q\n' "$attempt" "$title" "$folder"
    [ "$node_rank" -eq 0 ] || [ -n "$own_cards" ] || echo "# these cards are the first machine's"
    printf 'export%s\n' "$(printf ' %q' "${settings[@]}")"
    printf '%s\n' "$(printf '%q ' "${command[@]}")"
  done
  exit
elif [ -z "$plain" ] && [ -d "$run_dir/supervisor" ]; then # it starts this script again, with --plain
  become . "$python" -I -S -X utf8 "$run_dir/supervisor" launch "$script" "$@"
elif [ -z "$plain" ]; then
  echo 'launch.sh: there is no supervisor/ beside it: nothing falls back or resumes, and only Ctrl-C stops it' >&2
fi

[ "$node_rank" -eq 0 ] || [ -n "$own_cards" ] ||
  refuse 64 'the cards in this script are those of the first machine: name the ones here, --cards=UUID,…'
choose
# env, for bash keeps some names to itself; nice, for env would take a Python in a folder a=b for a variable.
become "$folder" env "${settings[@]}" nice -n 0 "${command[@]}"
