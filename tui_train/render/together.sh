# ---- how several machines fall back together ---------------------------------------------------------------------
# In a run folder that they share each says in a file, .word, how its attempt is; the first one decides, in .decision.
# A word names the mark of the first machine, a decision those of all: nothing that an earlier start left is believed.

tell() { # tell STATE: says to the others how the attempt of this machine is
  printf '%s\n' "$first_mark $run_id $position $1" > "$own_dir/.word.new" && mv -f -- "$own_dir/.word.new" "$own_dir/.word"
} 2> /dev/null

hear() { # hear RANK: sets `word` to what that machine said last, and `news` to how its attempt is, where it is this one
  local folder=$run_dir
  [ "$1" -eq 0 ] || folder+=/node-$1
  word=(- - - -)
  { read -r -a word < "$folder/.word" || word=(- - - -); } 2> /dev/null
  news=
  [ "${word[0]-} ${word[2]-}" != "$first_mark $position" ] || news=${word[3]-}
}

meet() { # sets `first_mark`, which stays - where the first machine is not seen
  first_mark=$run_id
  [ "$node_rank" -eq 0 ] || { hear 0 && first_mark=${word[1]--}; }
}

begin_watch() { # for the process that the attempt is: a container's client may be replaced
  attend &
  watcher=$!
}

attend() { # beside an attempt: says that it runs, and calls this script where one of another machine has failed
  local rank born announced='' since='' living=$run_id others=(0)
  trap '' HUP PIPE
  if [ "$node_rank" -eq 0 ]; then mapfile -t others < <(seq 1 $((nodes - 1))); fi
  born=$(start_ticks "$child")-$(start_ticks "$$")
  while [ -d "/proc/$child" ] && [ "$(start_ticks "$child")-$(start_ticks "$$")" = "$born" ]; do
    meet
    for rank in "${others[@]}"; do
      [ -z "$since" ] || break
      hear "$rank"
      case $news in
        '' | finished) ;;
        running) living=$first_mark ;;
        # The last words of an earlier start of the first machine are none: it must have been seen at work.
        *) [ "$living" != "$first_mark" ] || since=$SECONDS ;;
      esac
    done
    if [ -n "$since" ]; then
      [ "$node_rank" -gt 0 ] || [ "$announced" = over ] || tell over
      announced=over
    elif [ "$announced" != "$first_mark" ]; then
      tell running
      announced=$first_mark
    fi
    # It mostly fails by itself then, and says more in its log.
    if [ -n "$since" ] && [ "$((SECONDS - since))" -ge "$patience" ]; then
      kill -USR1 "$$"
      break
    fi
    sleep "$look_every"
  done
} > /dev/null 2>&1

on_call() { # ends a training that still waits for one that has failed
  interrupted=1
  [ -n "$child" ] && [ "$signals" -eq 0 ] || return 0
  called=yes
  say "the attempt of another machine has failed: ends the one of this machine"
  end_training
}

confer() { # after an attempt: tells how it ended; after a failure `phase`, `where` and `next` become those of all
  local state=failed
  while :; do
    interrupted=0
    wait "$watcher" 2> /dev/null
    [ "$interrupted" -eq 1 ] || break
  done
  meet
  apart=
  if [ "$signals" -gt 0 ]; then
    state=stopped
  elif [ "$code" -eq 0 ]; then
    state=finished
  elif [ -n "$hopeless" ]; then
    state=hopeless
  elif [ -n "$phase" ]; then
    state=$phase
  fi
  tell "$state"
  case $state in stopped | finished) return ;; esac
  [ "${#attempts[@]}" -gt 1 ] || return 0
  if [ "$node_rank" -gt 0 ]; then
    follow
  else
    decide
    [ "$next" -gt 0 ] && [ -z "$apart$hopeless" ] || tell over-for-all
  fi
  [ "$signals" -eq 0 ] || tell stopped
  [ -z "$phase" ] || hopeless=${hopeless:-$apart}
}

decide() { # on the first machine: sets `phase` and `next` by what all say, or `apart` to why nothing follows
  local rank whom=0 known=' ' name states=("$state") marks=$run_id:$position since=$SECONDS
  for ((rank = 1; rank < nodes; rank++)); do
    while hear "$rank" && [ -z "${news#running}" ]; do
      [ "$signals" -eq 0 ] || return 0
      ! too_late "$rank" || return 0
      sleep "$look_every"
    done
    marks+=" ${word[1]}:$position"
    states+=("$news")
  done
  for rank in "${!states[@]}"; do
    case ${states[rank]} in
      stopped | finished) apart="machine $rank has ${states[rank]}" ;;
      hopeless) apart="less GPU memory does not help on machine $rank: its log says why" ;;
    esac
  done
  [ -z "$apart" ] || return 0
  # Where memory ran out in several phases, what helps in each comes together.
  phase=
  next=$position
  for rank in "${!states[@]}"; do
    is_phase "${states[rank]}" || continue
    case $known in *" ${states[rank]} "*) continue ;; esac
    known+="${states[rank]} "
    phase=${states[rank]}
    whom=$rank
    [ "$next" -eq 0 ] || position=$next next_attempt
  done
  if [ -z "$phase" ]; then next=0; fi
  [ "$next" -gt 0 ] || { name_machine; return 0; }
  name=$(name_checkpoint)
  choice="=$name"
  name_machine
  { printf '%s\n' "$marks" "$next $phase $whom" "$name" > "$run_dir/.decision.new" \
    && mv -f -- "$run_dir/.decision.new" "$run_dir/.decision"; } 2> /dev/null || apart="cannot write in $run_dir"
}

follow() { # on the others: the same, as the first machine has decided
  local lines whom chosen phase_of_all since=$SECONDS known='^[0-9]{1,3} [a-z]+ [0-9]{1,6}$'
  while [ "$signals" -eq 0 ]; do
    [ "$first_mark" != - ] || { meet && tell "$state"; }
    lines=()
    { mapfile -t lines < "$run_dir/.decision"; } 2> /dev/null
    read -r chosen phase_of_all whom <<< "${lines[1]-}"
    if [[ ! ${lines[1]-} =~ $known ]] || [ "$((10#$chosen))" -gt "${#attempts[@]}" ] || ! is_phase "$phase_of_all"; then
      lines=()
    fi
    case " ${lines[0]-} " in
      *" $run_id:$position "*)
        phase=$phase_of_all
        choice="=${lines[2]-}"
        next_attempt
        next=$((10#$chosen))
        name_machine
        return
        ;;
    esac
    hear 0
    case $news in
      over-for-all)
        [ -z "$phase" ] || apart="the first machine tries nothing else: its launch.sh says why"
        return
        ;;
      stopped | finished)
        apart="machine 0 has $news"
        return
        ;;
    esac
    ! too_late 0 || return 0
    sleep "$look_every"
  done
}

name_checkpoint() { # prints the name of the checkpoint from which the next attempt goes on, nothing where there is none
  local dry_run=yes choice=any
  "${attempts[next - 1]}" > /dev/null
  printf '%s' "${checkpoint##*/}"
}

too_late() { # too_late RANK: true when that machine is waited for in vain; sets `apart`
  local from=$since limit
  apart="machine $1 is not seen in this folder, and without one that all machines share there is no other attempt"
  case $news in
    '')
      from=$began
      limit=$meet_wait
      ;;
    running)
      limit=$((answer_wait + grace))
      apart="machine $1 does not say how its attempt ended"
      ;;
    *) limit=$((2 * (answer_wait + grace))) ;;
  esac
  [ "$((SECONDS - from))" -lt "$limit" ] || return 0
  apart=
  return 1
}

is_phase() { [[ $1 =~ ^[a-z]+$ ]] && [[ -v after_$1 ]]; }

name_machine() { [ "$whom" -eq "$node_rank" ] || where+=" on machine $whom"; }

look_every=1 # seconds, as all that follow
# A training has so long to fail by itself; a machine to be seen since an attempt began, for a network may show a
# folder's files late; and one that was seen to tell of its end.
patience=60
meet_wait=90
answer_wait=180
watcher=
began=0
first_mark=-
word=()
news=
