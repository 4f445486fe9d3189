"""Script of a cluster's machine: launch.sh under its supervisor, with the training's log as output."""

from tui_train.plan.render.manifests.cluster import ClusterPlan

# $rank and $run are set before. A signal goes to the supervisor, which lets the training save.
_MACHINE_SCRIPT_TEMPLATE = """\
own=$run; [ "$rank" = 0 ] || own=$run/node-$rank
mkdir -p "$own" || exit 73
number=1 logs=()
while [ -e "$own/attempt-$number.log" ]; do number=$((number + 1)); done
for ((more = 0; more < {attempts}; more++)); do logs+=("$own/attempt-$((number + more)).log"); done
bash "$run/launch.sh"{words} &
training=$!
trap 'kill -TERM "$training" 2> /dev/null' TERM INT
tail -q -n +1 -F --pid="$training" "${{logs[@]}}" 2> /dev/null &
shown=$!
while wait "$training"; code=$?; kill -0 "$training" 2> /dev/null; do :; done
wait "$training"
code=$?
wait "$shown"
exit "$code"
"""


def machine_run_script(cluster: ClusterPlan) -> str:
    """Return bash that trains in the folder `$run` as the machine `$rank`, and ends with the exit code of launch.sh."""
    words = ' --node-rank="$rank"' if cluster.plan.nodes > 1 else ""
    return _MACHINE_SCRIPT_TEMPLATE.format(attempts=len(cluster.plan.attempts), words=words)
