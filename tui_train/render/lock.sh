# ---- one start at a time in a run folder -------------------------------------------------------------------------

lock() {  # one start at a time in this folder; the lock of a dead one is taken over
  local owner waited=0
  while ! mkdir "$own_dir/.lock" 2>/dev/null; do
    [ -d "$own_dir/.lock" ] || refuse 73 "cannot write in $own_dir: choose another folder, or free some space"
    owner=()
    { read -r -a owner < "$own_dir/.lock/owner"; } 2>/dev/null
    # The owner may be about to leave, or, where none is named, about to write its name.
    if [ "${owner[2]-}" = "$boot_id" ] && [ "$(start_ticks "${owner[0]}")" = "${owner[1]}" ]; then
      [ "$waited" -lt 10 ] || refuse 75 "a training runs in this folder already (process ${owner[0]})"
    elif { [ "${#owner[@]}" -gt 0 ] || [ "$waited" -ge 10 ]; } && inherit "${owner[*]}"; then
      return
    fi
    sleep 0.1
    waited=$((waited + 1))
  done
  own || refuse 73 "cannot write in $own_dir"
}

own() { printf '%s\n' "$$ $(start_ticks $$) $boot_id $run_id" > "$own_dir/.lock/$$" && mv "$own_dir/.lock/$$" "$own_dir/.lock/owner"; }

inherit() { # inherit OWNER: takes the lock of a dead owner, which only one can; false where another one does
  local owner now=()
  if ! mkdir "$own_dir/.lock/heir" 2>/dev/null; then
    # An heir that died in these few lines would keep the folder shut.
    [ "$waited" -lt 50 ] || rmdir "$own_dir/.lock/heir" 2>/dev/null
    return 1
  fi
  { read -r -a now < "$own_dir/.lock/owner"; } 2>/dev/null
  if [ "${now[*]}" = "$1" ]; then
    own || {
      rmdir "$own_dir/.lock/heir"
      refuse 73 "cannot write in $own_dir: free some space"
    }
    rmdir "$own_dir/.lock/heir"
    read -r -a owner <<< "$1"
    leave_to "${owner[3]-}"
    return 0
  fi
  rmdir "$own_dir/.lock/heir"
  return 1
}

leave_to() { # leave_to MARK: refuses while processes of an earlier start, whose launch.sh was killed, still train
  local run_id=$1
  [ -n "$run_id" ] || return 0
  [ -z "$engine" ] || leave_container_to "$run_id"
  look
  [ "${#found[@]}" -eq 0 ] || {
    rm -rf -- "$own_dir/.lock"
    refuse 75 "processes of an earlier start still train: end them first (kill ${found[*]})"
  }
  seen=()
}
