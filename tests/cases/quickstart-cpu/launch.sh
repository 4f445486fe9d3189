#!/usr/bin/env bash
# quickstart: the built-in trainer under python, 1 process on the CPU
# micro batch 8 x accumulation 2 x 1 process = global batch 16, learning rate
# 0.003, 60 steps
#
#   bash launch.sh             run it; a second start resumes from the newest
#                              complete checkpoint
#   bash launch.sh --plain     only run the command below, in the foreground
#   bash launch.sh --dry-run   only print what would be started
#   python3 runner.pyz status  show the state; also: stop, tail, follow
#   --attempt=N                start with attempt N of 5
#   --when-free                wait until its CPU cores are free, first come,
#                              first served
#   --checkpoint=PATH          with --plain: resume from this checkpoint
#   TUI_TRAIN_PYTHON=PATH      train with another Python
#   TUI_TRAIN_GRACE=SECONDS    time to save and exit after a stop; default 60
#
# Exit code: that of the training, or
#   64  wrong usage
#   69  something is missing
#   70  its processes were not connected
#   73  cannot write
#   75  already running
# Needs bash, coreutils and the Python below.

case ${BASH_VERSION-} in
  '' | [0-3].* | 4.[0-3].*) echo 'launch.sh: needs bash 4.4 or newer: start it as "bash launch.sh"' >&2; exit 69 ;;
esac
caller_env=$(declare -px) # your environment, passed on unchanged even where names are used in this script
set -u
refuse() { printf 'launch.sh: %s\n' "$2" >&2; exit "$1"; }
[ -f "${BASH_SOURCE[0]-}" ] || refuse 64 'was read from a pipe: start it as "bash launch.sh"'
script=$(readlink -f -- "${BASH_SOURCE[0]}" && echo .) || exit 69 # the dot keeps a newline at the end of its name
script=${script%??} run_dir=${script%/*}
python=${TUI_TRAIN_PYTHON:-/opt/train/bin/python}

choose() { # sets the command of attempt $attempt
  micro_batch=8 accumulation=2 activation_checkpointing=''
  case $attempt in # each changes the values above
    1) title='as planned' ;;
    2) title='micro batch 8 -> 4' micro_batch=4 accumulation=4 ;;
    3) title='micro batch 4 -> 2' micro_batch=2 accumulation=8 ;;
    4) title='micro batch 2 -> 1' micro_batch=1 accumulation=16 ;;
    5) title='activation checkpointing' micro_batch=1 accumulation=16 activation_checkpointing=yes ;;
  esac
  folder="$run_dir"
  settings=(
    PYTHONUNBUFFERED=1                       # log lines are written at once
    OMP_NUM_THREADS=8                        # CPU cores divided among the processes
    CUDA_VISIBLE_DEVICES=                    # trains on the CPU: hides all GPUs
    HF_HUB_OFFLINE=1                         # set by the preset
    HF_HUB_DISABLE_PROGRESS_BARS=1           # set by the preset
    OMP_WAIT_POLICY=PASSIVE                  # set by the preset
    # prints the device of each process; TUI_TRAIN_SHOW_DEVICES=0 turns it off
    "PYTHONPATH=$run_dir/shim${PYTHONPATH:+:$PYTHONPATH}"
  )
  command=(
    "$python" "$run_dir/pretrain.py"
    "--data=$run_dir/sample.txt" "--output_dir=$run_dir/output" --layers=4 --hidden_size=128
    --heads=4 --sequence_length=128 --expect=1xcpu "--per_device_train_batch_size=$micro_batch"
    "--gradient_accumulation_steps=$accumulation" --learning_rate=0.003 --lr_scheduler_type=cosine
    --weight_decay=0.01 --max_steps=60 --save_steps=20 --seed=1 --use_cpu=True
    ${activation_checkpointing:+--gradient_checkpointing=True '--gradient_checkpointing_kwargs={"use_reentrant": false}'}
    --warmup_steps=0.1
    ${checkpoint:+"--resume_from_checkpoint=$checkpoint"} # only if there is a complete checkpoint
  )
}

usage() { sed -n '2,/^$/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; } # prints the head of this file
become() { eval "$caller_env" 2> /dev/null; cd -- "$1" && exec "${@:2}"; exit 69; } # runs $2... in the folder $1

attempt=1 plain='' dry_run='' checkpoint='' waits=''
for option in "$@"; do
  case $option in
    --plain) plain=yes ;;
    --dry-run) dry_run=yes ;;
    --attempt=?*) attempt=${option#*=} ;;
    --checkpoint=?*) checkpoint=${option#*=} ;;
    --when-free | --when-free=any) waits=yes; [ -f "$run_dir/runner.pyz" ] || refuse 69 'no runner.pyz, which waits' ;;
    --resume) ;; # read by the supervisor
    --help | -h) usage; exit ;;
    *) refuse 64 "unknown option $option: see bash launch.sh --help" ;;
  esac
done
[[ $attempt =~ ^[1-9][0-9]{0,2}$ && $attempt -le 5 ]] || refuse 64 "there is no attempt $attempt of 5"
[ -z "$plain" ] || [ -z "$waits" ] || refuse 64 '--plain does not wait'
case $python in /*) ;; */*) python=$PWD/$python ;; esac
[ -n "$dry_run" ] || command -v -- "$python" > /dev/null ||
  refuse 69 "cannot run $python: set TUI_TRAIN_PYTHON to the training Python, such as env/bin/python"

if [ -n "$dry_run" ]; then
  for ((attempt = 1; attempt <= 5; attempt++)); do
    [ -n "$plain" ] || checkpoint=$("$python" -I -S -X utf8 "$run_dir/runner.pyz" checkpoint "$attempt" 2> /dev/null)
    choose
    printf '# attempt %s: %s\ncd -- %q\n' "$attempt" "$title" "$folder"
    printf 'export%s\n' "$(printf ' %q' "${settings[@]}")"
    printf '%s\n' "$(printf '%q ' "${command[@]}")"
  done
  exit
elif [ -z "$plain" ] && [ -f "$run_dir/runner.pyz" ]; then # it runs this script again, with --plain
  become . "$python" -I -S -X utf8 "$run_dir/runner.pyz" launch "$script" "$@"
elif [ -z "$plain" ]; then
  echo 'launch.sh: no runner.pyz beside this script: no fallbacks, no resuming, and only Ctrl-C stops it' >&2
fi

[ -n "${TUI_TRAIN_RUN_ID-}" ] || [ ! -e "$run_dir/.lock/owner" ] || echo "launch.sh: a training runs in this folder already" >&2
choose
# env: bash reserves some names. nice: env would read a Python in a folder a=b as a variable.
become "$folder" env "${settings[@]}" nice -n 0 "${command[@]}"
