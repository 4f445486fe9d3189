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
