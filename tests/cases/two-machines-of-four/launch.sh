#!/usr/bin/env bash
# two machines of four: /home/ada/demo/trainer_evaluate_demo.py under accelerate
# with zero2, 4 processes on 4 GPUs of each of 2 machines
# micro batch 2 x accumulation 4 x 8 processes = global batch 64, learning rate
# 2e-05, 1000 steps
# Start it on each machine, from this folder or a copy: --node-rank=0 on the
# first, --node-rank=1 on the other.
# No fallbacks with several machines: nothing coordinates them.
# To resume, the output folder must be on a disk that all machines share.
# It resumes only with --resume, given on all machines.
#
#   bash launch.sh             run the processes of this machine
#   bash launch.sh --plain     only run the command below, in the foreground
#   bash launch.sh --dry-run   only print what would be started
#   python3 runner.pyz status  show the state; also: stop, tail, follow
#   --node-rank=N              rank of this machine, from 0 to 1; required
#   --gpus=UUID,…              train on these GPUs, as listed by nvidia-smi -L
#   --resume                   resume from the newest complete checkpoint; give
#                              it on all machines
#   --checkpoint=PATH          with --plain: resume from this checkpoint
#   TUI_TRAIN_PYTHON=PATH      train with another Python
#   TUI_TRAIN_ADDRESS=HOST     address of the first machine, if not the one
#                              below
#   TUI_TRAIN_GRACE=SECONDS    time to save and exit after a stop; default 60
#
# Exit code: that of the training, or
#   64  wrong usage
#   69  something is missing
#   70  its processes were not connected
#   73  cannot write
#   75  already running
# Needs bash, coreutils and the Python below; not in this folder:
# /home/ada/demo/trainer_evaluate_demo.py and what it imports.

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
address=${TUI_TRAIN_ADDRESS:-10.0.0.1}
gpus=GPU-00000000-1111-2222-3333-444444444444    # NVIDIA A100-SXM4-80GB
gpus+=,GPU-00000001-1111-2222-3333-444444444444  # NVIDIA A100-SXM4-80GB
gpus+=,GPU-00000002-1111-2222-3333-444444444444  # NVIDIA A100-SXM4-80GB
gpus+=,GPU-00000003-1111-2222-3333-444444444444  # NVIDIA A100-SXM4-80GB

choose() { # sets the command of attempt $attempt
  title='as planned'
  folder=/home/ada/demo
  settings=(
    PYTHONUNBUFFERED=1                       # log lines are written at once
    OMP_NUM_THREADS=8                        # CPU cores divided among the processes
    CUDA_DEVICE_ORDER=PCI_BUS_ID             # GPU indices as in nvidia-smi
    "CUDA_VISIBLE_DEVICES=$gpus"             # the chosen GPUs by UUID, which does not depend on their order
    TORCH_ELASTIC_SHUTDOWN_TIMEOUT=60        # seconds to save after a stop; the default of torch is 30
    # prints the device of each process; TUI_TRAIN_SHOW_DEVICES=0 turns it off
    "PYTHONPATH=$run_dir/shim${PYTHONPATH:+:$PYTHONPATH}"
  )
  command=(
    "$python" -m accelerate.commands.launch  # accelerate launch of this Python
    "--config_file=$run_dir/accelerate.yaml" # otherwise your default_config.yaml would be used
    "--machine_rank=$node_rank"              # 0 is the first machine
    "--main_process_ip=$address"             # address of the first machine
    --rdzv_backend=static --same_network     # not read from the config file; the first machine waits at its port
    /home/ada/demo/trainer_evaluate_demo.py
    --output_dir=/shared/out/sft --per_device_train_batch_size=2 --gradient_accumulation_steps=4
    --learning_rate=2e-05 --max_steps=1000 --save_strategy=steps --save_steps=20 --logging_steps=10
    --seed=1 --bf16=False --fp16=True --gradient_checkpointing=False
    ${checkpoint:+"--resume_from_checkpoint=$checkpoint"} # only if there is a complete checkpoint
  )
}

usage() { sed -n '2,/^$/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; } # prints the head of this file
become() { eval "$caller_env" 2> /dev/null; cd -- "$1" && exec "${@:2}"; exit 69; } # runs $2... in the folder $1

attempt=1 plain='' dry_run='' checkpoint='' own_gpus='' node_rank=${TUI_TRAIN_NODE_RANK-}
for option in "$@"; do
  case $option in
    --plain) plain=yes ;;
    --dry-run) dry_run=yes ;;
    --attempt=?*) attempt=${option#*=} ;;
    --checkpoint=?*) checkpoint=${option#*=} ;;
    --gpus=?*) gpus=${option#*=} own_gpus=yes ;;
    --node-rank=?*) node_rank=${option#*=} ;;
    --resume) ;; # read by the supervisor
    --help | -h) usage; exit ;;
    *) refuse 64 "unknown option $option: see bash launch.sh --help" ;;
  esac
done
[[ $attempt =~ ^[1-9][0-9]{0,2}$ && $attempt -le 1 ]] || refuse 64 "there is no attempt $attempt of 1"
[ -n "$node_rank" ] ||
  refuse 64 '2 machines train together: give the rank of this one, --node-rank=0 (the first) to --node-rank=1'
[[ $node_rank =~ ^[0-9]{1,4}$ && $((10#$node_rank)) -le 1 ]] ||
  refuse 64 "--node-rank=$node_rank is not one of the ranks 0 to 1"
node_rank=$((10#$node_rank))
case $python in /*) ;; */*) python=$PWD/$python ;; esac
[ -n "$dry_run" ] || command -v -- "$python" > /dev/null ||
  refuse 69 "cannot run $python: set TUI_TRAIN_PYTHON to the training Python, such as env/bin/python"

if [ -n "$dry_run" ]; then
  for ((attempt = 1; attempt <= 1; attempt++)); do
    choose
    printf '# attempt %s: %s\ncd -- %q\n' "$attempt" "$title" "$folder"
    [ "$node_rank" -eq 0 ] || [ -n "$own_gpus" ] || echo "# these GPUs are those of the first machine"
    printf 'export%s\n' "$(printf ' %q' "${settings[@]}")"
    printf '%s\n' "$(printf '%q ' "${command[@]}")"
  done
  exit
elif [ -z "$plain" ] && [ -f "$run_dir/runner.pyz" ]; then # it runs this script again, with --plain
  become . "$python" -I -S -X utf8 "$run_dir/runner.pyz" launch "$script" "$@"
elif [ -z "$plain" ]; then
  echo 'launch.sh: no runner.pyz beside this script: no fallbacks, no resuming, and only Ctrl-C stops it' >&2
fi

[ "$node_rank" -eq 0 ] || [ -n "$own_gpus" ] ||
  refuse 64 'the GPUs in this script are those of the first machine: give --gpus=UUID,… for this one'
[ -n "${TUI_TRAIN_RUN_ID-}" ] || [ ! -e "$run_dir/.lock/owner" ] || echo "launch.sh: a training runs in this folder already" >&2
choose
# env: bash reserves some names. nice: env would read a Python in a folder a=b as a variable.
become "$folder" env "${settings[@]}" nice -n 0 "${command[@]}"
