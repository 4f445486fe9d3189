# ---- how containers are run --------------------------------------------------------------------------------------

know_machine() { # sets what only this machine knows: who you are to the engine, and where caches lie
  local rootless=no hard home=~
  case $engine in
    podman) [ "$EUID" -eq 0 ] || rootless=yes ;;
    docker)
      case $(timeout 20 docker info --format '{{.SecurityOptions}}' 2>/dev/null) in
        *name=rootless*) rootless=yes ;;
      esac
      ;;
  esac
  # To an engine without root's rights its user is root inside, or, where it can keep the number, the same.
  case $rootless-$engine in
    yes-docker) user_word=--user=0:0 ;;
    yes-podman) user_word=--userns=keep-id ;;
    *) user_word=--user=$EUID:$(id -g) ;;
  esac
  memlock=-1
  if [ "$rootless" = yes ]; then
    # No more than you may yourself.
    hard=$(ulimit -H -l)
    [ "$hard" = unlimited ] || memlock=$((hard * 1024))
  fi
  cache=${XDG_CACHE_HOME:-$home/.cache}/tui-train/container
  hugging_face=${HF_HOME:-${XDG_CACHE_HOME:-$home/.cache}/huggingface}
  mount_word "$run_dir" "$run_dir" && run_mount=$mounted
  mount_word "$hugging_face" /cache/huggingface && hugging_face_mount=$mounted
  if [ "$engine" = apptainer ]; then
    case $cache in *[:,]*) refuse 69 "apptainer has no way to mount $cache: set XDG_CACHE_HOME to a folder without : and ," ;; esac
    cache_mount=--home=$cache:/cache
  else
    mount_word "$cache" /cache && cache_mount=$mounted
  fi
}

mount_word() { # mount_word HOST INSIDE: sets `mounted` to the engine's word for it
  local source=src=$1 target=dst=$2
  if [ "$engine" = podman ]; then
    case $1 in
      *:* | *\\) ;;
      *)
        mounted=--volume=$1:$2
        return
        ;;
    esac
    case $1 in
      *[,\"$'\n\r']*) refuse 69 "podman has no way to mount $1: choose a folder without colons, commas and quotes" ;;
    esac
  fi
  case $1 in
    *$'\r\n'*) refuse 69 "$engine has no way to mount $1: choose a folder without line breaks" ;;
    *[,\"$'\n\r']*) source=\"${source//\"/\"\"}\" target=\"${target//\"/\"\"}\" ;;
  esac
  mounted=--mount=type=bind,$source,$target
}

find_image() { # the engine must answer and have the image, for nothing is fetched unasked
  local said
  command -v -- "$engine" > /dev/null || refuse 69 "there is no $engine on this machine: install it"
  if [ "$engine" = apptainer ]; then
    [ -e "$image" ] || refuse 69 "there is no $image: build or copy it first"
    return
  fi
  said=$(timeout 60 "$engine" ps -q 2>&1) || refuse 69 "$engine does not answer: ${said##*$'\n'}"
  timeout 60 "$engine" image inspect "$image" > /dev/null 2>&1 \
    || refuse 69 "the image $image is not on this machine: $engine pull $image"
}

make_folders() {
  mkdir -p -- "$cache/huggingface" "$hugging_face" "${folders[@]}" || refuse 73 "cannot make the folders of the container"
}

name_container() { # name_container NUMBER: only these two have containers that outlive their client
  case $engine in
    docker | podman) container_name=tui-train-$run_id-$1 ;;
  esac
}

launch_inside() { # puts the container around `command`, whose settings and folder are then those inside
  local container before name
  [ "$dry_run" = no ] || name_container "$((position + 1))"
  enter
  if [ "$engine" = apptainer ]; then
    container+=("--pwd=$folder")
    settings=("${settings[@]/#/APPTAINERENV_}" "APPTAINERENV_TUI_TRAIN_RUN_ID=$run_id")
    for name in "${secrets[@]}"; do
      [ "$dry_run" = yes ] || export "APPTAINERENV_$name=${!name}"
    done
  else
    container+=("${settings[@]/#/--env=}" "--workdir=$folder")
    settings=("TUI_TRAIN_RUN_ID=$run_id")
  fi
  folder=/
  command=("${container[@]}" "$image" "${before[@]}" "${command[@]}")
}

container_lives() { # true while the container trains on, its client being gone; an engine that restarts is waited for
  local state
  while ! state=$(timeout 60 "$engine" container inspect --format '{{.State.Running}}' "$container_name" 2> /dev/null); do
    ! timeout 60 "$engine" ps -q > /dev/null 2>&1 || return 1
    look
    [ "${#found[@]}" -gt 0 ] || return 1
    sleep 1
  done
  [ "$state" = true ]
}

rejoin() { # rejoin LOG: waits for a container whose client is gone, writes down what it says, ends as it does
  say "the client of $engine is gone, its container trains on"
  set -m
  (
    export TUI_TRAIN_RUN_ID=$run_id
    "$engine" logs --follow --since "$(date +%s)" "$container_name" &
    code=$("$engine" wait "$container_name") || code=125
    wait
    exit "$code"
  ) < /dev/null >> "$1" 2>&1 &
  child=$!
  leader=$child
  set +m
}

stop_container() { # again and again while its client lives, for the container may only be about to begin
  while ! "$engine" stop -t "$grace" "$container_name" && kill -0 "$child"; do sleep 0.5; done
} > /dev/null 2>&1

remove_container() { # looks twice: the engine may still be making what its killed client asked for
  local missed=0 tries=0
  while [ "$missed" -lt 2 ] && [ "$tries" -lt 50 ]; do
    tries=$((tries + 1))
    timeout 60 "$engine" rm -f "$container_name"
    if timeout 60 "$engine" container inspect "$container_name"; then missed=0; else missed=$((missed + 1)); fi
    [ "$missed" -ge 2 ] || sleep 0.2
  done
} > /dev/null 2>&1

leave_container_to() { # leave_container_to MARK: refuses while a container of an earlier start still trains
  local names
  [ "$engine" != apptainer ] || return 0
  names=$(timeout 60 "$engine" ps --filter "name=tui-train-$1-" --format '{{.Names}}' 2> /dev/null)
  [ -z "$names" ] || {
    rmdir "$at/heir"
    refuse 75 "a container of an earlier start still trains: end it first ($engine stop ${names//$'\n'/ })"
  }
}

