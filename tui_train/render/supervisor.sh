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
