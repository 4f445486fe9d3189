#!/usr/bin/env bash
# continual learning: /home/ada/nemo/continual_learning.py under torchrun, 2
# processes on 2 GPUs, in nvcr.io/nvidia/nemo:25.04 by docker
# micro batch 2 x accumulation 8 x 2 processes = global batch 32
# The preset “Custom” cannot resume: each attempt starts from step 0.
#
#   bash launch.sh             run it; a second start begins at step 0
#   bash launch.sh --plain     only run the command below, in the foreground
#   bash launch.sh --dry-run   only print what would be started
#   python3 runner.pyz status  show the state; also: stop, tail, follow
#   --attempt=N                start with attempt N of 2
#   --gpus=UUID,…              train on these GPUs, as listed by nvidia-smi -L
#   --when-free                wait until its GPUs are free, first come, first
#                              served
#   TUI_TRAIN_PYTHON=PATH      train with another Python of the image
#   TUI_TRAIN_GRACE=SECONDS    time to save and exit after a stop; default 20
#
# Exit code: that of the training, or
#   64  wrong usage
#   69  something is missing
#   70  its processes were not connected
#   73  cannot write
#   75  already running
# Needs bash, coreutils, docker with the image, and python3; not in this folder:
# /home/ada/nemo/continual_learning.py and what it imports.

case ${BASH_VERSION-} in
  '' | [0-3].* | 4.[0-3].*) echo 'launch.sh: needs bash 4.4 or newer: start it as "bash launch.sh"' >&2; exit 69 ;;
esac
caller_env=$(declare -px) # your environment, passed on unchanged even where names are used in this script
set -u
refuse() { printf 'launch.sh: %s\n' "$2" >&2; exit "$1"; }
[ -f "${BASH_SOURCE[0]-}" ] || refuse 64 'was read from a pipe: start it as "bash launch.sh"'
script=$(readlink -f -- "${BASH_SOURCE[0]}" && echo .) || exit 69 # the dot keeps a newline at the end of its name
script=${script%??} run_dir=${script%/*}
python=${TUI_TRAIN_PYTHON:-python}
gpus=GPU-ac50e9bd-5330-6ce2-2d4b-8f95df663b60    # NVIDIA GeForce RTX 3090
gpus+=,GPU-ff67d0d7-648f-d302-c50e-49297407cd04  # NVIDIA GeForce RTX 3090

# The supervisor sets TUI_TRAIN_* where the engine of this machine needs other options.
cache=${XDG_CACHE_HOME:-~/.cache}/tui-train/container
hugging_face=${HF_HOME:-${XDG_CACHE_HOME:-~/.cache}/huggingface}
folders=("$cache/huggingface" "$hugging_face" "/home/ada/nemo/检查点 1") # must exist to be mounted
run_mount=${TUI_TRAIN_RUN_MOUNT:---mount=type=bind,src=$run_dir,dst=$run_dir}
cache_mount=${TUI_TRAIN_CACHE_MOUNT:---mount=type=bind,src=$cache,dst=/cache}
hugging_face_mount=${TUI_TRAIN_HUGGING_FACE_MOUNT:---mount=type=bind,src=$hugging_face,dst=/cache/huggingface}

choose() { # sets the command of attempt $attempt
  expandable_segments=''
  case $attempt in # each changes the values above
    1) title='as planned' ;;
    2) title='expandable segments' expandable_segments=yes ;;
  esac
  folder=/
  command=(
    docker run
    "${TUI_TRAIN_REMOVE:---rm}"              # leaves nothing behind
    --init                                   # passes signals on to the training, and collects its dead
    "--name=${TUI_TRAIN_CONTAINER_NAME:-tui-train-plain-$$}" # by which it is stopped, even when its client is gone
    --pull=never                             # nothing is fetched unasked
    "${TUI_TRAIN_CONTAINER_USER:---user=$(id -u):$(id -g)}" # what it writes is yours
    # shares the machine's /dev/shm: the engine's own is 64 MB, too small for workers and NCCL
    --ipc=host
    "--ulimit=memlock=${TUI_TRAIN_MEMLOCK:--1}" # memory that network cards reach must be locked
    --ulimit=stack=67108864                  # as NVIDIA's images ask for
    --security-opt=label=disable             # SELinux would deny what is mounted; relabelling would change your files
    --gpus "\"device=$gpus\""                # the chosen GPUs; the others are not even seen
    "$run_mount"                             # the run folder, at its own path like all others
    "$cache_mount"                           # home and caches
    "$hugging_face_mount"                    # models and data sets that are on this machine already
    '--mount=type=bind,src=/home/ada/nemo,dst=/home/ada/nemo' # the script's folder: it may write beside itself
    "--mount=type=bind,src=/home/ada/nemo/检查点 1,dst=/home/ada/nemo/检查点 1"
    '--mount=type=bind,"src=/home/ada/corpora/zh, en",dst=/data,readonly'
    --env=TUI_TRAIN_RUN_ID                   # by it the run's processes are found
    --env=HF_TOKEN                           # by name: their values are written nowhere
    --env=PYTHONUNBUFFERED=1                 # log lines are written at once
    --env=OMP_NUM_THREADS=16                 # CPU cores divided among the processes
    --env=CUDA_DEVICE_ORDER=PCI_BUS_ID       # GPU indices as in nvidia-smi
    "--env=CUDA_VISIBLE_DEVICES=$gpus"       # the chosen GPUs by UUID, which does not depend on their order
    --env=HOME=/cache                        # a home that may be written, whoever the image thinks you are
    --env=USER=trainer                       # libraries ask for a name, and the image knows none for your number
    --env=HF_HOME=/cache/huggingface         # your own models and data sets of Hugging Face
    --env=TORCH_HOME=/cache/torch            # kept on the machine from one container to the next
    --env=TORCHINDUCTOR_CACHE_DIR=/cache/inductor # kept on the machine from one container to the next
    --env=TRITON_CACHE_DIR=/cache/triton     # kept on the machine from one container to the next
    # the allocator grows its segments: less memory lost to fragmentation
    ${expandable_segments:+--env=PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True}
    --workdir=/home/ada/nemo
    nvcr.io/nvidia/nemo:25.04
    sh -c "export PYTHONPATH=\"\$0\${PYTHONPATH:+:\$PYTHONPATH}\"; exec \"\$@\" 2>&1" "$run_dir/shim"
    "$python" -m torch.distributed.run       # torchrun of this Python
    --standalone                             # one machine: picks a free port
    --local-addr=127.0.0.1                   # works where the host name does not resolve
    --nproc-per-node=2                       # not auto: that counts all visible GPUs
    --max-restarts=0                         # a restart would fail again; the next attempt changes something
    /home/ada/nemo/continual_learning.py
    --micro_batch_size 2                     # your arguments, from here on
    --global_batch_size 32 --data /data
  )
}

usage() { sed -n '2,/^$/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; } # prints the head of this file
become() { eval "$caller_env" 2> /dev/null; cd -- "$1" && exec "${@:2}"; exit 69; } # runs $2... in the folder $1

attempt=1 plain='' dry_run='' waits=''
for option in "$@"; do
  case $option in
    --plain) plain=yes ;;
    --dry-run) dry_run=yes ;;
    --attempt=?*) attempt=${option#*=} ;;
    --gpus=?*) gpus=${option#*=} ;;
    --when-free | --when-free=any) waits=yes; [ -f "$run_dir/runner.pyz" ] || refuse 69 'no runner.pyz, which waits' ;;
    --resume) ;; # read by the supervisor
    --help | -h) usage; exit ;;
    *) refuse 64 "unknown option $option: see bash launch.sh --help" ;;
  esac
done
[[ $attempt =~ ^[1-9][0-9]{0,2}$ && $attempt -le 2 ]] || refuse 64 "there is no attempt $attempt of 2"
[ -z "$plain" ] || [ -z "$waits" ] || refuse 64 '--plain does not wait'
[ -n "$dry_run${HF_TOKEN-}" ] || refuse 69 'HF_TOKEN is not set: export it, then start again'

if [ -n "$dry_run" ]; then
  for ((attempt = 1; attempt <= 2; attempt++)); do
    choose
    printf '# attempt %s: %s\ncd -- %q\n' "$attempt" "$title" "$folder"
    printf '%s\n' "$(printf '%q ' "${command[@]}")"
  done
  exit
elif [ -z "$plain" ] && [ -f "$run_dir/runner.pyz" ]; then # it runs this script again, with --plain
  python3 -I -S -c 'import sys; sys.exit(sys.version_info < (3, 8))' 2> /dev/null ||
    refuse 69 'needs python3 3.8 or newer on this machine, outside the container (not with --plain)'
  become . python3 -I -S -X utf8 "$run_dir/runner.pyz" launch "$script" "$@"
elif [ -z "$plain" ]; then
  echo 'launch.sh: no runner.pyz beside this script: no fallbacks, no resuming, and only Ctrl-C stops it' >&2
fi

[ -n "${TUI_TRAIN_RUN_ID-}" ] || [ ! -e "$run_dir/.lock/owner" ] || echo "launch.sh: a training runs in this folder already" >&2
mkdir -p -- "${folders[@]}" || refuse 73 'cannot create the folders that the container mounts'
choose
become "$folder" "${command[@]}"
