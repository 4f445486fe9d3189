#!/usr/bin/env bash
# share a large model: /src/sft.py under accelerate, 4 processes on 4 GPUs
# micro batch 2 x accumulation 4 x 4 processes = global batch 32, learning rate
# 2e-05, 1000 steps
#
#   bash launch.sh             run it; a second start resumes from the newest
#                              complete checkpoint
#   bash launch.sh --plain     only run the command below, in the foreground
#   bash launch.sh --dry-run   only print what would be started
#   python3 runner.pyz status  show the state; also: stop, tail, follow
#   --attempt=N                start with attempt N of 6
#   --gpus=UUID,…              train on these GPUs, as listed by nvidia-smi -L
#   --when-free                wait until its GPUs are free, first come, first
#                              served
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
# Needs bash, coreutils and the Python below; not in this folder: /src/sft.py
# and what it imports.

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
gpus=GPU-00000000-1111-2222-3333-444444444444    # NVIDIA A100-SXM4-80GB
gpus+=,GPU-00000001-1111-2222-3333-444444444444  # NVIDIA A100-SXM4-80GB
gpus+=,GPU-00000002-1111-2222-3333-444444444444  # NVIDIA A100-SXM4-80GB
gpus+=,GPU-00000003-1111-2222-3333-444444444444  # NVIDIA A100-SXM4-80GB

choose() { # sets the command of attempt $attempt
  config_file="$run_dir/accelerate.yaml" output_dir=/data/out/sft micro_batch=2 accumulation=4
  case $attempt in # each changes the values above
    1) title='as planned' ;;
    2) title='micro batch 2 -> 1' micro_batch=1 accumulation=8 ;;
    3) title='sharding with FSDP2'
      config_file="$run_dir/accelerate-2.yaml" output_dir=/data/out/sft-fsdp2 micro_batch=1 accumulation=8 ;;
    4) title='CPU offload'
      config_file="$run_dir/accelerate-3.yaml" output_dir=/data/out/sft-fsdp2 micro_batch=1 accumulation=8 ;;
    5) title='only sharding with FSDP2' config_file="$run_dir/accelerate-2.yaml" output_dir=/data/out/sft-fsdp2 ;;
    6) title='only sharding with FSDP2, CPU offload'
      config_file="$run_dir/accelerate-3.yaml" output_dir=/data/out/sft-fsdp2 ;;
  esac
  folder=/src
  settings=(
    PYTHONUNBUFFERED=1                       # log lines are written at once
    OMP_NUM_THREADS=16                       # CPU cores divided among the processes
    CUDA_DEVICE_ORDER=PCI_BUS_ID             # GPU indices as in nvidia-smi
    "CUDA_VISIBLE_DEVICES=$gpus"             # the chosen GPUs by UUID, which does not depend on their order
    TORCH_ELASTIC_SHUTDOWN_TIMEOUT=60        # seconds to save after a stop; the default of torch is 30
    # prints the device of each process; TUI_TRAIN_SHOW_DEVICES=0 turns it off
    "PYTHONPATH=$run_dir/shim${PYTHONPATH:+:$PYTHONPATH}"
  )
  command=(
    "$python" -m accelerate.commands.launch  # accelerate launch of this Python
    "--config_file=$config_file"             # otherwise your default_config.yaml would be used
    /src/sft.py
    "--output_dir=$output_dir" "--per_device_train_batch_size=$micro_batch"
    "--gradient_accumulation_steps=$accumulation" --learning_rate=2e-05 --max_steps=1000
    --save_strategy=steps --save_steps=20 --logging_steps=10 --seed=1 --bf16=True --fp16=False
    --gradient_checkpointing=False
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
    --gpus=?*) gpus=${option#*=} ;;
    --when-free | --when-free=any) waits=yes; [ -f "$run_dir/runner.pyz" ] || refuse 69 'no runner.pyz, which waits' ;;
    --resume) ;; # read by the supervisor
    --help | -h) usage; exit ;;
    *) refuse 64 "unknown option $option: see bash launch.sh --help" ;;
  esac
done
[[ $attempt =~ ^[1-9][0-9]{0,2}$ && $attempt -le 6 ]] || refuse 64 "there is no attempt $attempt of 6"
[ -z "$plain" ] || [ -z "$waits" ] || refuse 64 '--plain does not wait'
case $python in /*) ;; */*) python=$PWD/$python ;; esac
[ -n "$dry_run" ] || command -v -- "$python" > /dev/null ||
  refuse 69 "cannot run $python: set TUI_TRAIN_PYTHON to the training Python, such as env/bin/python"

if [ -n "$dry_run" ]; then
  for ((attempt = 1; attempt <= 6; attempt++)); do
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
