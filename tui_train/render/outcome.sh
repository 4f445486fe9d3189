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
