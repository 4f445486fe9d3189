# ---- how several machines find each other ------------------------------------------------------------------------

find_machine() { # sets `node_rank`, and `own_dir`, where the files of this machine go: the run folder may be a shared one
  local last=$((nodes - 1))
  node_rank=${node_rank:-${TUI_TRAIN_NODE_RANK-}}
  case $node_rank in
    '') refuse 64 "$nodes machines train together: say which one this is, --node-rank=0 (the first) to --node-rank=$last" ;;
    *[!0-9]* | ???????*) refuse 64 "--node-rank=$node_rank is no number from 0 to $last" ;;
  esac
  node_rank=$((10#$node_rank))
  [ "$node_rank" -le "$last" ] || refuse 64 "--node-rank=$node_rank is not there: $nodes machines are 0 to $last"
  [ "$node_rank" -eq 0 ] || own_dir=$run_dir/node-$node_rank
  resume=${resume:-${TUI_TRAIN_RESUME-}}
  if [ -n "$resume" ] && [ -n "$no_resume" ]; then refuse 64 "--resume: this training $no_resume"; fi
  choose_cards
  [ "$find_interface" = no ] || find_interface
  [ "$dry_run" = yes ] || mkdir -p -- "$own_dir" || refuse 73 "cannot write in $run_dir"
}

look_for_checkpoints() { # before anything starts, for a machine that refuses later leaves the others waiting
  local dry_run=yes
  ("${attempts[10#${begin:-1} - 1]}" > /dev/null) || exit
}

agree() { # agree FOLDER: sets `checkpoint` to the one that all machines take; refuses where each would find its own
  case $choice in
    any) return ;;
    =) checkpoint= ;;
    =*)
      checkpoint=$1/${choice#=}
      [ -e "$checkpoint" ] || refuse 69 "the first machine goes on from $checkpoint, and this one does not see it: all must \
see the same output folder"
      ;;
    *)
      if [ -z "$resume" ] && [ -n "$checkpoint" ]; then
        refuse 64 "there is a checkpoint at $checkpoint: add --resume on every machine, whose output folder all must see, or \
name another output folder"
      elif [ -n "$resume" ] && [ -z "$checkpoint" ]; then
        refuse 69 "--resume: this machine sees no complete checkpoint in $1, and all must see the same output folder"
      fi
      ;;
  esac
}

find_port() { # the first machine must have the port at which the others meet it
  local fields hex
  [ "$node_rank" -eq 0 ] || return 0
  printf -v hex '%04X' "$port"
  while read -r -a fields; do
    # 0A is a socket that listens; its address ends with its port.
    [ "${fields[3]-}" != 0A ] || [ "${fields[1]##*:}" != "$hex" ] \
      || refuse 75 "port $port of this machine is in use by another program: choose another for all machines (nodes.port), or end that one"
  done < <(cat /proc/net/tcp /proc/net/tcp6 2> /dev/null)
}

choose_cards() { # sets `cards` and `card_list`: each machine has its own
  local line listed card taken=, there=()
  if [ "${#cards[@]}" -eq 0 ]; then
    [ -z "$own_cards" ] || refuse 64 "--cards=$own_cards: this trains on the CPU"
    return 0
  fi
  if [ -n "$own_cards" ]; then
    case ,$own_cards, in
      *,,* | *[[:space:]]*) refuse 64 "--cards=$own_cards names a card that is empty or has a space" ;;
    esac
    IFS=, read -r -a cards <<< "$own_cards"
    [ "${#cards[@]}" -eq "$processes" ] || refuse 64 "--cards names ${#cards[@]}, and each machine trains on $processes"
    for card in "${cards[@]}"; do
      case $taken in *",$card,"*) refuse 64 "--cards=$own_cards names $card twice" ;; esac
      taken+=$card,
    done
    card_names=()
  elif [ "$node_rank" -gt 0 ]; then
    listed=$(timeout 30 nvidia-smi -L 2> /dev/null) || refuse 69 "nvidia-smi does not answer: name the cards with --cards=UUID,…"
    while IFS= read -r line; do
      [[ ! $line =~ \(UUID:\ (GPU-[^\)]+)\) ]] || there+=("${BASH_REMATCH[1]}")
    done <<< "$listed"
    [ "${#there[@]}" -eq "$processes" ] || refuse 69 "each machine trains on $processes cards, and this one has: \
${there[*]:-none}; choose with --cards=UUID,…"
    cards=("${there[@]}")
    card_names=()
  fi
  local IFS=,
  card_list=${cards[*]}
}

find_interface() { # sets `interface`: the one by which the first machine is reached, each machine may name it differently
  local ip line words
  # Of a name with addresses of both kinds the older one, as the trainings' own libraries have it.
  line=$(getent ahostsv4 -- "$address" 2> /dev/null || getent ahosts -- "$address" 2> /dev/null) || line=
  ip=${line%%[[:space:]]*}
  [ -n "$ip" ] || refuse 69 "no address is known here for $address: use the IP address of the first machine"
  case $ip in
    127.* | ::1) [ "$address" = "$ip" ] || refuse 69 "$address is $ip on this machine, where no other one reaches it: use its IP address" ;;
  esac
  command -v ip > /dev/null || return 0
  # On the first machine itself the route to its address leads nowhere: there the interface that has the address counts.
  line=$(command ip -o addr show to "$ip" 2> /dev/null)
  if [ -n "$line" ]; then
    read -r -a words <<< "$line"
    interface=${words[1]%%@*}
    return
  fi
  line=$(command ip -o route get "$ip" 2> /dev/null) || return 0
  line=${line#* dev }
  interface=${line%% *}
}

name_interface() { # puts the interface before `settings`: one of the profile's own wins, as does what you exported
  local name value told=()
  [ "$find_interface" = yes ] || return 0
  for name in "${interface_settings[@]}"; do
    value=$interface
    # To NCCL a name without its = would mean all that begin so.
    [ "$name" != NCCL_SOCKET_IFNAME ] || value=${interface:+=$interface}
    value=${!name:-$value}
    [ -z "$value" ] || told+=("$name=$value")
  done
  settings=("${told[@]}" "${settings[@]}")
}
