#!/usr/bin/env bash
# shellcheck disable=SC1003,SC2016,SC2034,SC2054,SC2191,SC2329
# vlm pretrain: /home/ada/vlm/train_vlm.py under torchrun, 4 processes on 4 GPUs
# micro batch 8 x accumulation 2 x 4 processes = global batch 64, learning rate 0.0002
# The preset “Total batch” cannot resume: each attempt starts from step 0.
# Written by tui-train, without which it runs: it needs bash, coreutils and the Python below.
#
# bash launch.sh             runs it; a second start begins anew
# bash launch.sh --dry-run   prints what would be started
# bash launch.sh --help      says what else there is
#
# It writes beside itself: attempt-N.log (all output), events.jsonl (what happened).

if [ -z "${BASH_VERSINFO-}" ] || [ "${BASH_VERSINFO[0]}${BASH_VERSINFO[1]}" -lt 44 ]; then
  echo 'launch.sh: needs bash 4.4 or newer: start it as "bash launch.sh"' >&2
  exit 69
fi
if [ ! -f "${BASH_SOURCE[0]-}" ]; then
  echo 'launch.sh: was read from a pipe and does not know its folder: start the file itself, "bash launch.sh"' >&2
  exit 64
fi
set -uo pipefail
# Variables of yours whose names this script uses as well reach the training as you set them.
mapfile -d '' -t yours < <(env -0)
for entry in "${!yours[@]}"; do
  [[ ${yours[entry]} =~ ^[a-z_]+= ]] || unset "yours[entry]"
done
# The folder of this script; the dot keeps a newline at the end of its name.
run_dir=$(readlink -f -- "${BASH_SOURCE[0]}" && echo .) || exit 69
run_dir=${run_dir%/*}
python=/opt/train/bin/python
[ -z "${TUI_TRAIN_PYTHON-}" ] || python=$TUI_TRAIN_PYTHON
secrets=() # taken from the environment of whoever starts this script, never written down
cards=(GPU-00000000-1111-2222-3333-444444444444 GPU-00000001-1111-2222-3333-444444444444 GPU-00000002-1111-2222-3333-444444444444 GPU-00000003-1111-2222-3333-444444444444)
card_names=('NVIDIA A100-SXM4-80GB' 'NVIDIA A100-SXM4-80GB' 'NVIDIA A100-SXM4-80GB' 'NVIDIA A100-SXM4-80GB')
nodes=1 processes=4 # machines, and the training processes of each
output='' # where it writes, empty for this folder
grace=20 # seconds to save and end in, after a stop
engine= # no container

# The environment of every attempt.
shared=(
  PYTHONUNBUFFERED=1                             # every line reaches the log at once
  OMP_NUM_THREADS=16                             # processor cores shared among the processes
  CUDA_DEVICE_ORDER=PCI_BUS_ID                   # numbers as nvidia-smi prints them, for tools that show any
  # the chosen cards by UUID, which is right under any order
  CUDA_VISIBLE_DEVICES=GPU-00000000-1111-2222-3333-444444444444,GPU-00000001-1111-2222-3333-444444444444,GPU-00000002-1111-2222-3333-444444444444,GPU-00000003-1111-2222-3333-444444444444
)

# Attempt 1, as planned: micro batch 8 x accumulation 2 x 4 processes = global batch 64.
attempt_1() {
  local settings=(
    "${shared[@]}"
    # shows which device each process uses; TUI_TRAIN_SHOW_DEVICES=0 turns it off
    PYTHONPATH="$run_dir"/shim"${PYTHONPATH:+:$PYTHONPATH}"
  )
  local command=(
    "$python" -m torch.distributed.run             # torchrun, of this very Python
    --standalone                                   # one host: picks a free port itself
    --local-addr=127.0.0.1                         # works where the host name does not resolve
    --nproc-per-node=4                             # never auto: that counts every visible card
    # a restart would repeat the failure; what follows a failure stands below
    --max-restarts=0
    /home/ada/vlm/train_vlm.py
    --batch_size=32
    --accumulation_steps=2
    --lr=0.0002
    --config                                       # yours, from here on
    configs/vlm_pretrain.yaml
    --stage
    pretrain
  )
  launch /home/ada/vlm
}

# Attempt 2, expandable segments: micro batch 8 x accumulation 2 x 4 processes = global batch 64.
attempt_2() {
  local settings=(
    "${shared[@]}"
    # the allocator grows its blocks: less memory lost to fragmentation
    PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
    # shows which device each process uses; TUI_TRAIN_SHOW_DEVICES=0 turns it off
    PYTHONPATH="$run_dir"/shim"${PYTHONPATH:+:$PYTHONPATH}"
  )
  local command=(
    "$python" -m torch.distributed.run             # torchrun, of this very Python
    --standalone                                   # one host: picks a free port itself
    --local-addr=127.0.0.1                         # works where the host name does not resolve
    --nproc-per-node=4                             # never auto: that counts every visible card
    # a restart would repeat the failure; what follows a failure stands below
    --max-restarts=0
    /home/ada/vlm/train_vlm.py
    --batch_size=32
    --accumulation_steps=2
    --lr=0.0002
    --config                                       # yours, from here on
    configs/vlm_pretrain.yaml
    --stage
    pretrain
  )
  launch /home/ada/vlm
}

# Attempt 3, micro batch 8 -> 4: micro batch 4 x accumulation 4 x 4 processes = global batch 64.
attempt_3() {
  local settings=(
    "${shared[@]}"
    # the allocator grows its blocks: less memory lost to fragmentation
    PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
    # shows which device each process uses; TUI_TRAIN_SHOW_DEVICES=0 turns it off
    PYTHONPATH="$run_dir"/shim"${PYTHONPATH:+:$PYTHONPATH}"
  )
  local command=(
    "$python" -m torch.distributed.run             # torchrun, of this very Python
    --standalone                                   # one host: picks a free port itself
    --local-addr=127.0.0.1                         # works where the host name does not resolve
    --nproc-per-node=4                             # never auto: that counts every visible card
    # a restart would repeat the failure; what follows a failure stands below
    --max-restarts=0
    /home/ada/vlm/train_vlm.py
    --batch_size=16
    --accumulation_steps=4
    --lr=0.0002
    --config                                       # yours, from here on
    configs/vlm_pretrain.yaml
    --stage
    pretrain
  )
  launch /home/ada/vlm
}

# Attempt 4, micro batch 4 -> 2: micro batch 2 x accumulation 8 x 4 processes = global batch 64.
attempt_4() {
  local settings=(
    "${shared[@]}"
    # the allocator grows its blocks: less memory lost to fragmentation
    PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
    # shows which device each process uses; TUI_TRAIN_SHOW_DEVICES=0 turns it off
    PYTHONPATH="$run_dir"/shim"${PYTHONPATH:+:$PYTHONPATH}"
  )
  local command=(
    "$python" -m torch.distributed.run             # torchrun, of this very Python
    --standalone                                   # one host: picks a free port itself
    --local-addr=127.0.0.1                         # works where the host name does not resolve
    --nproc-per-node=4                             # never auto: that counts every visible card
    # a restart would repeat the failure; what follows a failure stands below
    --max-restarts=0
    /home/ada/vlm/train_vlm.py
    --batch_size=8
    --accumulation_steps=8
    --lr=0.0002
    --config                                       # yours, from here on
    configs/vlm_pretrain.yaml
    --stage
    pretrain
  )
  launch /home/ada/vlm
}

# Attempt 5, micro batch 2 -> 1: micro batch 1 x accumulation 16 x 4 processes = global batch 64.
attempt_5() {
  local settings=(
    "${shared[@]}"
    # the allocator grows its blocks: less memory lost to fragmentation
    PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
    # shows which device each process uses; TUI_TRAIN_SHOW_DEVICES=0 turns it off
    PYTHONPATH="$run_dir"/shim"${PYTHONPATH:+:$PYTHONPATH}"
  )
  local command=(
    "$python" -m torch.distributed.run             # torchrun, of this very Python
    --standalone                                   # one host: picks a free port itself
    --local-addr=127.0.0.1                         # works where the host name does not resolve
    --nproc-per-node=4                             # never auto: that counts every visible card
    # a restart would repeat the failure; what follows a failure stands below
    --max-restarts=0
    /home/ada/vlm/train_vlm.py
    --batch_size=4
    --accumulation_steps=16
    --lr=0.0002
    --config                                       # yours, from here on
    configs/vlm_pretrain.yaml
    --stage
    pretrain
  )
  launch /home/ada/vlm
}

attempts=(attempt_1 attempt_2 attempt_3 attempt_4 attempt_5)
titles=('as planned' 'expandable segments' 'micro batch 8 -> 4' 'micro batch 4 -> 2' 'micro batch 2 -> 1')
# The number of the attempt after each, by where it ran out of GPU memory; 0 where nothing is left.
after_loss=(2 3 4 5 0) # in the forward or backward pass
after_step=(2 0 0 0 0) # in the optimizer step
after_load=(2 0 0 0 0) # while the model was loaded
after_eval=(2 3 4 5 0) # in the evaluation
# What says that it ran out: extended regular expressions.
out_of_memory=(
  '(^|: )(CUDA|HIP|XPU) out of memory'
  '(ERROR|FATAL|CRITICAL)[^a-z]* (CUDA|HIP|XPU) out of memory'
  '(CUDA|HIP|XPU) out of memory\. Tried to allocate'
  '(^|[^A-Za-z.]|torch\.|cuda\.|memory\.)OutOfMemoryError(: |$)'
  '(CUDA|[Cc]uda) (runtime |driver )?error:? (2: )?(\(2\))? ?:? ?out of memory'
  'THCudaCheck FAIL.*out of memory'
  'Triton Error \[CUDA\]: out of memory'
  '(CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation|hipErrorOutOfMemory)'
  'cudaMalloc failed:? out of memory'
  'RESOURCE_EXHAUSTED: (Out of memory|OOM)'
  'ResourceExhaustedError.*OOM'
  'Error: out of memory( at .*ops\.c|$)'
  'cupy.*[Oo]ut of memory allocating'
  'Failed to allocate [^ ]+ bytes .*on (GPU|device)'
  'ran out of GPU memory'
  BLAS_STATUS_ALLOC_FAILED
  CUDNN_STATUS_ALLOC_FAILED
  'Cuda failure ([0-9]+ )?'"'"'out of memory'"'"''
)

# ---- which processes are this run's, and how they end; nothing below here depends on the plan --------------------

start_ticks() {  # start_ticks PID: prints when the process began, which tells it from a later one of the same number
  local stat
  { stat=$(< "/proc/$1/stat"); } 2>/dev/null || return 1
  read -r -a stat <<< "${stat##*) }"
  [ "${stat[0]}" != Z ] || return 1
  printf '%s\n' "${stat[19]}"
}

look() { # sets `found` to this run's living processes: those with its mark, those of its group, what these started
  # A program may write over its mark, to show another title. Whoever was seen once is known by when it began.
  local folder pid stat entries fields grown=yes IFS=$'\n'
  local -A parents=() births=()
  found=()
  for folder in /proc/[0-9]*; do
    [ -O "$folder" ] || continue
    stat=
    { IFS= read -r -d '' stat < "$folder/stat"; } 2>/dev/null
    IFS=' ' read -r -a fields <<< "${stat##*) }"
    case ${fields[0]-} in '' | Z | X) continue ;; esac
    pid=${folder#/proc/}
    parents[$pid]=${fields[1]}
    births[$pid]=${fields[19]}
    if [ "${fields[2]}" = "${leader:-none}" ] || [ "${seen[$pid]-}" = "${fields[19]}" ]; then
      found[pid]=$pid
      continue
    fi
    { mapfile -d '' -t entries < "$folder/environ"; } 2>/dev/null || continue
    case $'\n'"${entries[*]}"$'\n' in
      *$'\n'"TUI_TRAIN_RUN_ID=$run_id"$'\n'*) found[pid]=$pid ;;
    esac
  done
  while [ "$grown" = yes ]; do
    grown=no
    for pid in "${!parents[@]}"; do
      [ -z "${found[pid]-}" ] && [ -n "${found[${parents[$pid]}]-}" ] || continue
      found[pid]=$pid
      grown=yes
    done
  done
  for pid in "${found[@]}"; do seen[$pid]=${births[$pid]}; done
}

signal_all() { # signal_all SIGNAL: to every process of this run; false when there is none
  look
  [ "${#found[@]}" -gt 0 ] || return 1
  kill "-$1" "${found[@]}" 2>/dev/null
  return 0
}

end_training() {  # asks the launcher first, for it knows its workers; then whatever it leaves, once; then kills
  local waited=0 limit=$((grace * 5)) asked=no
  look
  if [ -n "$container_name" ]; then
    stop_container &
  else
    kill -TERM "$child" 2>/dev/null
  fi
  while signal_all 0; do
    [ "$waited" -lt "$limit" ] && [ "$signals" -lt 2 ] || break
    if [ "$asked" = no ] && ! kill -0 "$child" 2>/dev/null; then
      signal_all TERM
      asked=yes
    fi
    sleep 0.2
    waited=$((waited + 1))
  done
  kill_all
}

kill_all() {
  local tries=0
  while signal_all KILL && [ "$tries" -lt 100 ]; do
    sleep 0.1
    tries=$((tries + 1))
  done
  [ -z "$container_name" ] || remove_container
}

on_stop() {  # on_stop NAME CODE
  interrupted=1
  signals=$((signals + 1))
  [ "$signals" -eq 1 ] || return 0
  stop_code=$2
  say "stopping (SIG$1); again to kill at once"
  event stopping ",\"signal\":\"$1\""
  [ -z "$child" ] || end_training
}

# ---- where a training goes on, and the files that name its folder ------------------------------------------------

newest_checkpoint() {  # newest_checkpoint FOLDER PREFIX SUFFIX FILE...: sets `checkpoint`, empty when none is whole
  local folder=$1 prefix=$2 suffix=$3 path step file newest=-1
  shift 3
  checkpoint=
  for path in "$folder/$prefix"*"$suffix"; do
    step=${path#"$folder/$prefix"}
    step=${step%"$suffix"}
    case $step in '' | *[!0-9]*) continue ;; esac
    [ -d "$path" ] || { [ $# -eq 0 ] && whole "$path"; } || continue
    for file in "$@"; do
      [ -s "$path/$file" ] || continue 2
    done
    if [ "$((10#$step))" -gt "$newest" ]; then
      newest=$((10#$step))
      checkpoint=$path
    fi
  done
  [ "$nodes" -eq 1 ] || agree "$folder"
}

only_checkpoint() {  # only_checkpoint FOLDER FILE: sets `checkpoint`, empty when the file is not there or not whole
  checkpoint=
  ! whole "$1/$2" || checkpoint=$1/$2
  [ "$nodes" -eq 1 ] || agree "$1"
}

whole() {  # whole FILE: false for an empty one, and for an archive, as torch.save writes it, whose end is missing
  [ -f "$1" ] && [ -s "$1" ] || return 1
  [ "$(head -c 4 -- "$1" | tr -d '\0')" = $'PK\003\004' ] || return 0
  [ "$(tail -c 22 -- "$1" | head -c 4 | tr -d '\0')" = $'PK\005\006' ]
}

# fill FROM TO OTHERWISE: copies a file of the run folder, with the run's own paths in place of the marks, and OTHERWISE
# in place of a checkpoint where there is none
fill() {
  local text at own=$run_dir/$2.new.$node_rank.$$ # several machines may fill it at once, in a folder that they share
  if [ "$dry_run" = yes ]; then
    printf '# %s is %s with the paths of this folder in it\n' "$2" "$1"
    return
  fi
  text=$(< "$run_dir/$1") || exit 69
  at=$run_dir
  escape
  text=${text//@TUI_TRAIN_RUN_DIR@/"$at"}
  at=$checkpoint
  escape
  [ -n "$at" ] || text=${text//'"@TUI_TRAIN_CHECKPOINT@"'/"$3"}
  text=${text//@TUI_TRAIN_CHECKPOINT@/"$at"}
  if ! printf '%s\n' "$text" > "$own" || ! mv -f -- "$own" "$run_dir/$2"; then
    rm -f -- "$own"
    exit 73
  fi
}

escape() { # makes `at` what stands between the double quotes of a YAML text
  at=${at//\\/\\\\}
  at=${at//\"/\\\"}
  at=${at//$'\n'/\\n}
  at=${at//$'\t'/\\t}
}

# ---- one start at a time in a run folder, and in an output folder ------------------------------------------------

lock() {  # lock FOLDER WORDS: makes FOLDER, which is there while this script runs; the one of a dead script is taken over
  local at=$1 owner waited=0
  while ! mkdir -- "$at" 2>/dev/null; do
    [ -d "$at" ] || refuse 73 "cannot write in ${at%/*}: choose another folder, or free some space"
    owner=()
    { read -r -a owner < "$at/owner"; } 2>/dev/null
    # The owner may be about to leave, or, where none is named, about to write its name.
    if [ "${owner[2]-}" = "$boot_id" ] && [ "$(start_ticks "${owner[0]}")" = "${owner[1]}" ]; then
      [ "$waited" -lt 10 ] || refuse 75 "$2 already (process ${owner[0]})"
    elif { [ "${#owner[@]}" -gt 0 ] || [ "$waited" -ge 10 ]; } && inherit "${owner[*]}"; then
      return
    fi
    sleep 0.1
    waited=$((waited + 1))
  done
  own || refuse 73 "cannot write in ${at%/*}"
}

lock_output() { # a folder beside the output folder keeps other runs out; where none can be made, nothing does
  local real sum at owner=()
  # Of several machines only the first has one: the others write to the same folder, and mean to.
  [ -n "$output" ] && [ "${node_rank:-0}" -eq 0 ] || return 0
  real=$(readlink -m -- "$output") && mkdir -p -- "${real%/*}/" 2> /dev/null && [ -w "${real%/*}/" ] || return 0
  sum=$(printf %s "$real" | cksum)
  at=${real%/*}/.tui-train-${sum// /-}
  { read -r -a owner < "$at/owner"; } 2> /dev/null
  # Whether another machine's training still runs cannot be seen from here.
  [ -z "${owner[4]-}" ] || [ "${owner[2]}" = "$boot_id" ] || [ "${owner[4]}" = "$HOSTNAME" ] ||
    refuse 75 "a training on ${owner[4]} writes to $output: wait for it, or, if that is over, remove $at"
  lock "$at" "a training writes to $output"
}

own() {
  printf '%s\n' "$$ $(start_ticks $$) $boot_id $run_id $HOSTNAME" > "$at/$$" && mv "$at/$$" "$at/owner" && locks+=("$at")
}

inherit() { # inherit OWNER: takes the lock of a dead owner, which only one can; false where another one does
  local owner now=()
  if ! mkdir "$at/heir" 2>/dev/null; then
    # An heir that died in these few lines would keep the folder shut.
    [ "$waited" -lt 50 ] || rmdir "$at/heir" 2>/dev/null
    return 1
  fi
  { read -r -a now < "$at/owner"; } 2>/dev/null
  if [ "${now[*]}" = "$1" ]; then
    leave_to "${now[3]-}"
    own || {
      rmdir "$at/heir"
      refuse 73 "cannot write in ${at%/*}: free some space"
    }
    rmdir "$at/heir"
    return 0
  fi
  rmdir "$at/heir"
  return 1
}

leave_to() { # leave_to MARK: refuses while processes of an earlier start, whose launch.sh was killed, still train
  local run_id=$1
  [ -n "$run_id" ] || return 0
  [ -z "$engine" ] || leave_container_to "$run_id"
  look
  [ "${#found[@]}" -eq 0 ] || {
    rmdir "$at/heir"
    refuse 75 "processes of an earlier start still train: end them first (kill ${found[*]})"
  }
  seen=()
}

# ---- what the beginning of a log tells: whether the processes met, and where they went on -------------------------

find_step() { # find_step ATTEMPT: sets `resumed` to the step of the checkpoint that the attempt is given
  local name
  resumed=
  name=$(print_checkpoint "$1")
  [[ ! $name =~ ([0-9]{1,12})[^0-9]*$ ]] || resumed=$((10#${BASH_REMATCH[1]}))
}

print_checkpoint() { # print_checkpoint ATTEMPT: the name of the one that it is given
  local dry_run=yes
  "$1" > /dev/null 2>&1
  printf '%s' "${checkpoint##*/}"
}

begins_anew() { # begins_anew LOG: true where a checkpoint was given and the first step is not past it; tells so
  # A bar with a label before its percentage is of something else: of loading, tokenizing, skipping.
  local line step='' bar='^[[:space:]]*[0-9]{1,3}%\|.* ([0-9]{1,12})/[0-9]{1,12} \[[0-9:]+<' loss='(^|[^[:alpha:]_/-])([Ss]tep|[Ii]ter|[Ii]teration)s?[ :=]+([0-9]{1,12})'
  [ -n "$resumed" ] || return 1
  while IFS= read -r line || [ -n "$line" ]; do
    case $line in
      "start |"* | *[Rr]esum*) continue ;;
      *"/"*"["*"<"*) [[ ! $line =~ $bar ]] || step=${BASH_REMATCH[1]} ;;
      *oss*) [[ ! $line =~ $loss ]] || step=${BASH_REMATCH[3]} ;;
    esac
    [ "$((10#${step:-0}))" -eq 0 ] || break
  done < <(head -c 262144 -- "$1" | tr -d '\0' | tr '\r' '\n')
  [ "$((10#${step:-0}))" -gt 0 ] && [ "$((10#$step))" -lt "$resumed" ] || return 1
  say "attempt $number was given the checkpoint of step $resumed and began at step $((10#$step)): the training does not load it"
}

trains_apart() { # trains_apart LOG: true where several processes were to train together, and each says that it is alone
  local line alone=no
  [ "$((nodes * processes))" -gt 1 ] || return 1
  while IFS= read -r line || [ -n "$line" ]; do
    [[ $line == *" | host "* ]] || continue
    [[ ! $line =~ rank\ [0-9]+/([2-9]|[1-9][0-9]+)\ \|\ host\  ]] || return 1
    [[ $line != *"rank 0/1 | host "* ]] || alone=yes
  done < <(head -c 4000000 -- "$1" | tr -d '\0' | tr '\r' '\n')
  [ "$alone" = yes ]
}

# ---- where the GPU's memory ran out, and what is tried after that ------------------------------------------------

read_end() { # read_end LOG: sets `phase` to where the GPU's memory ran out, empty where the log does not tell of that
  # A traceback goes from the outside in, and ends with its error: the innermost line that tells the phase decides.
  # `stranger` is another process that fills the card, `on_host` tells that the host's memory ran out.
  local line trace='' pattern IFS='|'
  pattern="(${out_of_memory[*]})"
  phase=''
  stranger=''
  on_host=no
  while IFS= read -r line || [ -n "$line" ]; do
    if [[ $line =~ $pattern && $line != *WARNING* && $line != *Warning:* ]]; then
      case ${trace:-none} in
        none | yes) phase=${phase:-loss} ;;
        *) phase=$trace ;;
      esac
      trace=
      find_stranger "$line"
      continue
    fi
    case $line in
      *"DefaultCPUAllocator: "* | *"Cannot allocate memory"* | *"MemoryError"* | *oom-kill* | *oom_kill*) on_host=yes ;;
      *"exitcode "*": -9 "* | *"Signal 9 (SIGKILL)"* | *"killed by signal: Killed"*) on_host=yes ;;
      *"(most recent call last)"*) trace=yes ;;
      *) [ -z "$trace" ] || read_frame "$line" ;;
    esac
  done < <(tail -c 4000000 -- "$1" | tr -d '\0' | tr '\r' '\n')
}

read_frame() { # read_frame LINE: sets `trace` to the phase that a line of a traceback tells of
  case $1 in
    *" in load_state_dict"* | *".load_state_dict("* | *" in from_pretrained"* | *".from_pretrained("* | *" in _apply"* \
      | *" in convert" | *_verify_param_shape*)
      [ "$trace" = loss ] || trace=load
      ;;
    *"optimizer.step("* | */torch/optim/* | */bitsandbytes/optim/* | */apex/optimizers/* | *_foreach_* | *_multi_tensor_adam* \
      | *_take_model_step*)
      [ "$trace" = load ] || trace=step # loading the state of an optimizer is no step
      ;;
    *" in evaluat"* | *" in _evaluat"* | *" in eval_"* | *" in prediction_step"* | *" in validate" | *" in validation_"* \
      | *" in estimate_loss"*)
      trace='eval'
      ;;
    *" in backward"* | *".backward("* | *" in training_step"*) trace=loss ;;
    *" in forward"* | *" in _call_impl"* | *" in compute_loss"* | *cross_entropy* | *logits*)
      [ "$trace" = eval ] || trace=loss # an evaluation goes forward as well
      ;;
    *" in barrier"* | *" in wait_for_everyone"* | *" in init_process_group"*) [ "$trace" != yes ] || trace=start ;;
  esac
}

find_stranger() { # find_stranger LINE: sets `stranger` where a process that is not of this run holds a GiB or more of the card
  # torch tells its own process apart where it sees the same numbers as the driver, which in a container it may not.
  local pattern='Process ([0-9]+) has [1-9][0-9]{0,3}\.[0-9]+ GiB memory in use'
  [[ $1 != *"this process has"* || ! $1 =~ $pattern ]] || stranger=${BASH_REMATCH[1]}
}

users_of_cards() { # sets `users` to the processes that compute on the chosen cards; false where nvidia-smi does not answer
  local listed uuid pid
  users=()
  listed=$(timeout 30 nvidia-smi --query-compute-apps=gpu_uuid,pid --format=csv,noheader 2> /dev/null) || return 1
  while IFS=', ' read -r uuid pid; do
    case " ${cards[*]} " in *" $uuid "*) [ -z "$uuid" ] || users+=("$pid") ;; esac
  done <<< "$listed"
}

wait_for_cards() { # the driver may hold the memory of a process for a while after its end
  local deadline=$((SECONDS + card_wait)) pid left
  [ "${#cards[@]}" -gt 0 ] || return 0
  while users_of_cards; do
    left=()
    for pid in "${users[@]}"; do
      case " ${neighbours[*]} " in *" $pid "*) ;; *) left+=("$pid") ;; esac
    done
    [ "${#left[@]}" -gt 0 ] && [ "$signals" -eq 0 ] || return 0
    if [ "$SECONDS" -ge "$deadline" ]; then
      say "a card is not empty after $card_wait s (process ${left[*]}): goes on all the same"
      return 0
    fi
    sleep 0.5
  done
  say "nvidia-smi does not answer: goes on without a look whether the cards are empty"
}

first_attempt() { # sets `first`: where an earlier start of this script was, past what ran out of memory; 1 when all did
  local line same=no next='"next":([0-9]{1,3})[,}]' position='"position":([0-9]{1,3})[,}]'
  first=1
  while IFS= read -r line; do
    case $line in
      *'"event":"run_started"'*)
        same=no
        if [[ $line == *"\"script\":\"$script_sum\""* ]]; then same=yes; else first=1; fi
        ;;
      *'"event":"attempt_started"'*) [ "$same" = no ] || [[ ! $line =~ $position ]] || first=$((10#${BASH_REMATCH[1]})) ;;
      *'"event":"attempt_ended"'*) [ "$same" = no ] || [[ ! $line =~ $next ]] || first=$((10#${BASH_REMATCH[1]})) ;;
    esac
  done 2>/dev/null < "$own_dir/events.jsonl"
  [ "$first" -ge 1 ] && [ "$first" -le "${#attempts[@]}" ] || first=1
}

next_attempt() { # sets `next` to the attempt after this one, 0 for none; `where` in words; `hopeless` where none would help
  hopeless=''
  next=$position
  case $phase in
    load) where="while the model was loaded" ;;
    step) where="in the optimizer step" ;;
    eval) where="in the evaluation" ;;
    start) where="where the processes first meet" ;;
    *) where="in the forward or backward pass" ;;
  esac
  if [ -n "$stranger" ]; then
    hopeless="another process ($stranger) fills the card: end it, or choose another card"
  elif [ "$phase" = start ]; then
    hopeless="a card was full or faulty before the training began: look at nvidia-smi"
  else
    local -n following=after_$phase
    next=${following[position - 1]}
  fi
}

# ---- how attempts are run ----------------------------------------------------------------------------------------

usage() {
  [ "$nodes" -gt 1 ] || cat <<'TEXT'
usage: bash launch.sh [--attempt=N] [--dry-run]
  (nothing)    run the training; a second start resumes from the newest complete checkpoint
  --attempt=N  begin with that attempt: a second start else begins with the one that ran last
  --dry-run    print exactly what would be started, and start nothing
TEXT
  [ "$nodes" -eq 1 ] || cat <<'TEXT'
usage: bash launch.sh --node-rank=N [--resume] [--attempt=N] [--cards=UUID,…] [--dry-run]
  --node-rank=N   which of the machines this is: 0 is the first one, at which the others meet; always needed
  --resume        go on from the newest complete checkpoint: on all machines, whose output folder each of them must see
  --attempt=N     begin with that attempt: on all machines; else they begin with the first
  --cards=UUID,…  the cards to train on here, as nvidia-smi -L prints them; only the first machine's are in this script
  --dry-run       print exactly what would be started, and start nothing
TEXT
  cat <<'TEXT'
Ctrl-C or `kill` of this script ends the training; a lost terminal does not.
TUI_TRAIN_PYTHON=/path/to/python   trains with another Python (in a container: of its image)
TUI_TRAIN_GRACE=60                 seconds that a training gets to save and end by itself
Exit code: the training's own; 64 wrong usage, 69 something is missing, 70 its processes did not train together,
73 cannot write, 75 already running.
TEXT
}

say() { printf '%s launch.sh: %s\n' "$(date +%H:%M:%S)" "$1"; }

refuse() {  # refuse CODE MESSAGE
  printf 'launch.sh: %s\n' "$2" >&2
  exit "$1"
}

event() {  # event NAME [,"key":value...]: appends a line to events.jsonl
  local line
  line=$(printf '{"time":%s,"event":"%s"%s}' "$(date +%s.%N)" "$1" "${2-}")
  { printf '%s\n' "$line" >> "$own_dir/events.jsonl"; } 2>/dev/null && return
  # The disk is full: what was kept free for the last words is given up, and a half line left alone.
  rm -f -- "$own_dir/.lock/reserve"
  printf '\n%s\n' "$line" >> "$own_dir/events.jsonl"
}

launch() {  # launch FOLDER: becomes `command` with `settings` in FOLDER; with --dry-run prints it
  local folder=$1
  [ "$nodes" -eq 1 ] || name_interface
  [ -z "$engine" ] || launch_inside
  if [ "$dry_run" = yes ]; then
    printf 'cd -- %q\n' "$folder"
    printf 'export'
    printf ' %q' "${settings[@]}"
    printf '\n'
    printf '%q ' "${command[@]}"
    printf '\n'
    return
  fi
  cd -- "$folder" || exit 69
  # env, not export: some names bash keeps for itself. nice, for env would take a Python in a folder a=b for a variable.
  exec env "${yours[@]}" "${settings[@]}" "TUI_TRAIN_RUN_ID=$run_id" nice -n 0 "${command[@]}"
}

run_attempt() {  # run_attempt FUNCTION LOG: sets `code`
  local named=
  called=no
  [ -z "$engine" ] || name_container "$number"
  [ -z "$container_name" ] || named=",\"engine\":\"$engine\",\"container\":\"$container_name\""
  find_step "$1"
  set -m # a process group of its own: the terminal's signals reach this script alone
  "$1" < /dev/null >> "$2" 2>&1 &
  child=$!
  leader=$child
  set +m
  event attempt_started ",\"attempt\":$number,\"position\":$position,\"leader\":$leader${resumed:+,\"resumed\":$resumed}$named"
  began=$SECONDS
  [ "$nodes" -eq 1 ] || begin_watch
  [ "$signals" -eq 0 ] || end_training
  while :; do
    interrupted=0
    wait "$child" 2>/dev/null
    code=$?
    [ "$interrupted" -eq 0 ] || continue
    if [ -z "$container_name" ] || ! container_lives; then break; fi
    rejoin "$2"
    [ "$nodes" -eq 1 ] || begin_watch
  done
  child=
  [ "$called$code" != yes0 ] || code=143
}

next_log() {  # sets `number` to the first attempt that has no log yet: logs of an earlier start stay
  number=1
  while [ -e "$own_dir/attempt-$number.log" ]; do number=$((number + 1)); done
}

finish() {  # finish STATE CODE MESSAGE
  event run_ended ",\"state\":\"$1\",\"exit_code\":$2"
  say "$3"
  exit "$2"
}

climb() { # runs attempts: another one only after the GPU's memory ran out, by where it did
  local position=$first number=1 code=0 log anew
  [ "$first" -eq 1 ] || say "begins with attempt $first of ${#attempts[@]} (${titles[first - 1]}), where it was; --attempt=1 begins anew"
  while [ "$signals" -eq 0 ]; do
    next_log
    log=$own_dir/attempt-$number.log
    : > "$log" || finish failed 73 "cannot write $log"
    say "attempt $number (${titles[position - 1]}) writes attempt-$number.log"
    run_attempt "${attempts[position - 1]}" "$log"
    [ "$signals" -gt 0 ] || [ "$code" -eq 0 ] || kill_all
    phase='' hopeless='' next=0 met=yes anew=
    ! begins_anew "$log" || anew=',"began_anew":true'
    if [ "$signals" -eq 0 ] && [ "$code" -ne 0 ]; then
      read_end "$log"
    elif [ "$signals" -eq 0 ] && trains_apart "$log"; then
      met=no code=70
    fi
    [ -z "$phase" ] || next_attempt
    [ "$nodes" -eq 1 ] || confer
    if [ -z "$phase" ] || [ "$signals" -gt 0 ]; then
      event attempt_ended ",\"attempt\":$number,\"exit_code\":$code$anew"
      [ "$signals" -eq 0 ] || break
      [ "$code" -ne 0 ] || finish finished 0 "finished"
      give_up "$log"
    fi
    event attempt_ended ",\"attempt\":$number,\"exit_code\":$code,\"out_of_memory\":true,\"phase\":\"$phase\",\"next\":$next$anew"
    say "attempt $number ran out of GPU memory $where"
    [ -z "$hopeless" ] || finish failed "$code" "$hopeless: see attempt-$number.log"
    [ "$next" -gt 0 ] || finish failed "$code" "out of GPU memory $where, and nothing is left on the ladder that helps there: see attempt-$number.log"
    wait_for_cards
    position=$next
  done
  finish stopped "$stop_code" "stopped"
}

give_up() { # give_up LOG: after a failure that needing less GPU memory does not mend
  local why="failed with exit code $code${apart:+ ($apart)}"
  [ "$met" = yes ] || finish failed "$code" "its processes never formed a group: each trained alone, as rank 0 of 1: see ${1##*/}"
  [ "$code" -ne 137 ] && [ "$on_host" = no ] || why="$why; the host's memory may have run out: fewer data loader workers, no offload"
  finish failed "$code" "$why: see ${1##*/}"
}

find_python() {
  case $python in
    /*) ;;
    */*) python=$PWD/$python ;;
  esac
  [[ $python != /* || ! -d $python ]] || refuse 69 "$python is a folder: set TUI_TRAIN_PYTHON to the Python in it, such as bin/python"
  [[ $python != /* || ! -f $python || -x $python ]] || refuse 69 "$python may not be run: it lacks the x-bit (chmod +x)"
  command -v -- "$python" > /dev/null || refuse 69 "there is no $python: set TUI_TRAIN_PYTHON to the Python that trains"
}

find_cards() { # a card may have been taken out, or lost, since this script was written
  local listed position
  [ "${#cards[@]}" -gt 0 ] || return 0
  if ! listed=$(timeout 30 nvidia-smi -L 2> /dev/null); then
    say "nvidia-smi does not answer: the cards are not looked at first"
    return 0
  fi
  for position in "${!cards[@]}"; do
    case $listed in
      *"UUID: ${cards[position]})"*) ;;
      *) refuse 69 "the card ${cards[position]} (${card_names[position]-chosen here}) is not there: see nvidia-smi -L, choose again" ;;
    esac
  done
}

main() {
  local position=0 name
  for name in "$@"; do
    case $name in
      --dry-run) dry_run=yes ;;
      --help | -h) usage; exit 0 ;;
      --node-rank=?*) node_rank=${name#*=} ;;
      --cards=?*) own_cards=${name#*=} ;;
      --attempt=?*) begin=${name#*=} ;;
      --resume) resume=yes ;;
      *) usage >&2; exit 64 ;;
    esac
  done
  if [ "$nodes" -gt 1 ]; then
    find_machine
  elif [ -n "$node_rank$own_cards$resume" ]; then
    refuse 64 "--node-rank, --cards and --resume are for several machines, and this trains on one"
  fi
  case $begin in
    *[!0-9]* | ????*) refuse 64 "--attempt=$begin: give a number from 1 to ${#attempts[@]}" ;;
    ?*) [ "$((10#$begin))" -ge 1 ] && [ "$((10#$begin))" -le "${#attempts[@]}" ] || refuse 64 "there is no attempt $begin of ${#attempts[@]}" ;;
  esac
  [ -z "$engine" ] || know_machine
  [ "$nodes" -eq 1 ] || look_for_checkpoints
  if [ "$dry_run" = yes ]; then
    choice=any
    for attempt in "${attempts[@]}"; do
      printf '# attempt %s: %s\n' "$((position + 1))" "${titles[position]}"
      "$attempt"
      position=$((position + 1))
    done
    exit 0
  fi
  for name in "${secrets[@]}"; do
    [ -n "${!name-}" ] || refuse 69 "$name is not set: export it, then start again"
  done
  case $grace in
    '' | *[!0-9]*) refuse 64 "TUI_TRAIN_GRACE is $grace: give whole seconds" ;;
  esac
  grace=$((10#$grace))
  if [ -n "$engine" ]; then
    find_image
  else
    find_python
  fi
  trap 'rm -rf -- "${locks[@]}"' EXIT
  lock "$own_dir/.lock" "a training runs in this folder"
  lock_output
  [ "$nodes" -eq 1 ] || find_port
  trap 'on_stop INT 130' INT
  trap 'on_stop TERM 143' TERM
  [ "$nodes" -eq 1 ] || trap on_call USR1
  trap 'interrupted=1' HUP PIPE # a lost terminal ends neither this script nor the training
  find_cards
  [ "${#attempts[@]}" -eq 1 ] || ! users_of_cards || neighbours=("${users[@]}")
  [ -z "$engine" ] || make_folders
  # A line that a full disk or a power cut left torn would swallow the next one.
  [ ! -s "$own_dir/events.jsonl" ] || [ -z "$(tail -c 1 -- "$own_dir/events.jsonl")" ] || echo >> "$own_dir/events.jsonl"
  # Several machines begin with the same one only where that does not hang on what each of them has seen.
  [ "$nodes" -gt 1 ] || first_attempt
  [ -z "$begin" ] || first=$((10#$begin))
  head -c 16384 /dev/zero > "$own_dir/.lock/reserve" 2>/dev/null
  event run_started ",\"mark\":\"$run_id\",\"script\":\"$script_sum\",\"pid\":$$,\"start_ticks\":$(start_ticks $$),\"boot_id\":\"$boot_id\",\"grace\":$grace" \
    || refuse 73 "cannot write $own_dir/events.jsonl: free some space"
  climb
}

dry_run=no
node_rank=
own_cards=
resume=
begin=
first=1
own_dir=$run_dir
card_list=
interrupted=0
signals=0
stop_code=143
child=
container_name=
leader=
locks=() # folders that this script made, and removes at its end
found=()
users=()
neighbours=() # processes that computed on the cards before this one began
card_wait=60
declare -A seen=()
checkpoint=
choice=   # of a checkpoint, with several machines: = and the name that they agreed upon; any; or by --resume
met=yes   # whether the processes of an attempt formed a group
resumed=  # the step of the checkpoint from which an attempt goes on, empty where none is told
apart=    # why several machines do not go on together
called=no # whether the failure of another machine ended the attempt
grace=${TUI_TRAIN_GRACE:-$grace}
script_sum=$(cksum < "${BASH_SOURCE[0]}")
script_sum=${script_sum// /-}
run_id=$(date +%Y%m%d-%H%M%S)-$$-$RANDOM
read -r boot_id < /proc/sys/kernel/random/boot_id
main "$@"
