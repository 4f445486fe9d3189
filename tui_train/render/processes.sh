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
