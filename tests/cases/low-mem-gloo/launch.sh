#!/usr/bin/env bash
# low mem: /home/ada/low mem/train_low_mem.py under accelerate, 2 processes on 2 GPUs
# 2 processes, with the script's own batch
# The preset “Custom” cannot resume: each attempt starts from step 0.
#
#   bash launch.sh             run it; started again, it starts over
#   bash launch.sh --plain     only run the command below, in the foreground
#   bash launch.sh --dry-run   only print what would be started
#   python3 supervisor status  how it is; besides status: stop, tail, follow
#   --attempt=N                begin with attempt N of 2
#   --cards=UUID,…             train on these cards, as nvidia-smi -L prints them
#   TUI_TRAIN_PYTHON=PATH      train with another Python
#   TUI_TRAIN_GRACE=SECONDS    to save and end in, after a stop; else 20
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
cards=GPU-ac50e9bd-5330-6ce2-2d4b-8f95df663b60   # NVIDIA GeForce RTX 3090
cards+=,GPU-ff67d0d7-648f-d302-c50e-49297407cd04 # NVIDIA GeForce RTX 3090

choose() { # what attempt $attempt starts
  expandable_segments=''
  case $attempt in # each changes the values above
    1) title='as planned' ;;
    2) title='expandable segments' expandable_segments=yes ;;
  esac
  folder='/home/ada/low mem'
  settings=(
    PYTHONUNBUFFERED=1                       # every line reaches the log at once
    OMP_NUM_THREADS=16                       # processor cores shared among the processes
    CUDA_DEVICE_ORDER=PCI_BUS_ID             # numbers as nvidia-smi prints them, for tools that show any
    "CUDA_VISIBLE_DEVICES=$cards"            # the chosen cards by UUID, which is right under any order
    TUI_TRAIN_BACKEND=gloo                   # makes any script communicate over Gloo, whatever it asks for
    # one host: Gloo needs no other interface, and some host names resolve to none that works
    GLOO_SOCKET_IFNAME=lo
    # the allocator grows its blocks: less memory lost to fragmentation
    ${expandable_segments:+PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True}
    # shows which device each process uses; TUI_TRAIN_SHOW_DEVICES=0 turns it off
    "PYTHONPATH=$run_dir/shim${PYTHONPATH:+:$PYTHONPATH}"
  )
  command=(
    "$python" -m accelerate.commands.launch  # accelerate launch, of this very Python
    "--config_file=$run_dir/accelerate.yaml" # else your default_config.yaml would leak in
    '/home/ada/low mem/train_low_mem.py'
    train                                    # yours, from here on
    --is_finetune=True --use_small_config=True
  )
}

usage() { sed -n '2,/^$/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; } # the head of this file
become() { eval "$yours" 2> /dev/null; cd -- "$1" && exec "${@:2}"; exit 69; } # the command $2... in the folder $1

attempt=1 plain='' dry_run=''
for option in "$@"; do
  case $option in
    --plain) plain=yes ;;
    --dry-run) dry_run=yes ;;
    --attempt=?*) attempt=${option#*=} ;;
    --cards=?*) cards=${option#*=} ;;
    --resume) ;; # the supervisor's
    --help | -h) usage; exit ;;
    *) refuse 64 "there is no option $option: see bash launch.sh --help" ;;
  esac
done
[[ $attempt =~ ^[1-9][0-9]{0,2}$ && $attempt -le 2 ]] || refuse 64 "there is no attempt $attempt of 2"
case $python in /*) ;; */*) python=$PWD/$python ;; esac
[ -n "$dry_run" ] || command -v -- "$python" > /dev/null ||
  refuse 69 "cannot run $python: set TUI_TRAIN_PYTHON to the Python that trains, such as env/bin/python"

if [ -n "$dry_run" ]; then
  for ((attempt = 1; attempt <= 2; attempt++)); do
    choose
    printf '# attempt %s: %s\ncd -- %q\n' "$attempt" "$title" "$folder"
    printf 'export%s\n' "$(printf ' %q' "${settings[@]}")"
    printf '%s\n' "$(printf '%q ' "${command[@]}")"
  done
  exit
elif [ -z "$plain" ] && [ -d "$run_dir/supervisor" ]; then # it starts this script again, with --plain
  become . "$python" -I -S -X utf8 "$run_dir/supervisor" launch "$script" "$@"
elif [ -z "$plain" ]; then
  echo 'launch.sh: there is no supervisor/ beside it: nothing falls back or resumes, and only Ctrl-C stops it' >&2
fi

choose
# env, for bash keeps some names to itself; nice, for env would take a Python in a folder a=b for a variable.
become "$folder" env "${settings[@]}" nice -n 0 "${command[@]}"
