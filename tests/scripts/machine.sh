#!/bin/bash
# Stands in for the interpreter that trains on one of several machines: plays what $SCENES says for its rank and attempt.

begun() { # begun RANK-ATTEMPT...: waits until these are
  local one
  for one in "$@"; do wait_for "$SCENES/$one.words"; done
}

wait_for() { until [ -e "$1" ]; do /bin/sleep 0.05; done; }

save() { # save STEP: writes a complete checkpoint
  mkdir -p "$OUTPUT/checkpoint-$1"
  echo {} > "$OUTPUT/checkpoint-$1/trainer_state.json"
}

met() { # waits, as a rendezvous does, until the machines know of each other
  local words=()
  until mapfile -t words < <(cat "$RUN/.word" "$RUN"/node-*/.word | cut -d ' ' -f 1,3 | sort | uniq -c) &&
    [ "${words[*]}" = "      $MACHINES $(cut -d ' ' -f 2 "$RUN/.word") 1" ]; do
    /bin/sleep 0.05
  done
} 2> /dev/null

for word in "$@"; do
  case $word in --machine_rank=*) rank=${word#*=} ;; esac
done
attempt=1
while ! mkdir "$SCENES/$rank-$attempt.begun" 2> /dev/null; do attempt=$((attempt + 1)); done
[ "$attempt" -gt 1 ] || [ "$MACHINES" -eq 1 ] || met
printf '%s\n' "$@" > "$SCENES/$rank-$attempt.words"
# shellcheck disable=SC1090
source "$SCENES/$rank-$attempt"
