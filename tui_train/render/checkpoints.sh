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
