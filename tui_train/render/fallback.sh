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
