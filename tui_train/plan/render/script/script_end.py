"""The end of launch.sh: its options, then the supervisor, or with --plain the command alone."""

from tui_train.plan.render.script.merged_attempts import ScriptLine
from tui_train.plan.render.script.script_head import takes_checkpoint
from tui_train.plan.types import Plan
from tui_train.runner.containers.container import ENGINES_STOPPED_BY_NAME

_HELPER_FUNCTIONS = r"""usage() { sed -n '2,/^$/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; } # prints the head of this file
become() { eval "$caller_env" 2> /dev/null; cd -- "$1" && exec "${@:2}"; exit 69; } # runs $2... in the folder $1
"""
_REFUSE_OLD_PYTHON_LINES = """\
  python3 -I -S -c 'import sys; sys.exit(sys.version_info < (3, 8))' 2> /dev/null ||
    refuse 69 'needs python3 3.8 or newer on this machine, outside the container (not with --plain)'"""
_SLURM_CHECK_LINES = (
    "node_rank=${SLURM_NODEID:-0} address=${SLURM_LAUNCH_NODE_IPADDR-} port=$((10000 + ${SLURM_JOB_ID:-0} % 20000))",
    '[ -n "$dry_run${SLURM_JOB_ID-}" ] ||',
    "  refuse 69 'several machines, which Slurm chooses: submit it from this folder, sbatch slurm.sh'",
    '[ -z "$plain" ] || [ -n "$dry_run$address" ] || refuse 69 \'--plain: start this with srun, once on each machine\'',
)
# In a folder that the machines share, one of them does what all wait for.
_WAIT_FOR_PREPARATION_LINES = (
    "prepared=$run_dir/.prepared.${SLURM_JOB_ID-}.${SLURM_STEP_ID-}",
    'until [ "$node_rank" -eq 0 ] || [ -e "$prepared" ]; do sleep 1; done',
)
_WAIT_FOR_PREPARATION_LINES_OF_HOSTS = (
    "prepared=$run_dir/.prepared.${TUI_TRAIN_RUN_ID-}.$attempt",
    'until [ "$node_rank" -eq 0 ] || [ -z "${TUI_TRAIN_SHARED-}" ] || [ -e "$prepared" ]; do sleep 1; done',
)
_UNKNOWN_OPTION_CASE_LINE = '*) refuse 64 "unknown option $option: see bash launch.sh --help" ;;'
_READ_CHECKPOINT_TEMPLATE = '$({} -I -S -X utf8 "$run_dir/runner.pyz" checkpoint "$attempt" 2> /dev/null)'
_REQUIRE_RUNNER_ZIP_TO_WAIT = "[ -f \"$run_dir/runner.pyz\" ] || refuse 69 'no runner.pyz, which waits'"
_NO_RUNNER_ZIP_MESSAGE = "no runner.pyz beside this script: no fallbacks, no resuming, and only Ctrl-C stops it"
_ALREADY_RUNNING_MESSAGE = "launch.sh: a training runs in this folder already"
_WARN_IF_RUNNING_LINE = (
    f'[ -n "${{TUI_TRAIN_RUN_ID-}}" ] || [ ! -e "$run_dir/.lock/owner" ] || echo "{_ALREADY_RUNNING_MESSAGE}" >&2'
)
_ENV_COMMAND_PREFIX = 'env "${settings[@]}" '
_PRINT_SETTINGS_LINE = "    printf 'export%s\\n' \"$(printf ' %q' \"${settings[@]}\")\""
_PRINT_COMMAND_LINE = "    printf '%s\\n' \"$(printf '%q ' \"${command[@]}\")\""


def script_end_lines(plan: Plan, settings: tuple[ScriptLine, ...]) -> list[str]:
    """Return the lines that read the options and start the training; `settings` are set by `choose`."""
    return [
        _HELPER_FUNCTIONS,
        *_option_reading_lines(plan),
        *_option_check_lines(plan),
        "",
        *_dry_run_lines(plan, settings),
        *_supervisor_start_lines(plan),
        "",
        *_plain_start_lines(plan, settings),
    ]


def _option_reading_lines(plan: Plan) -> list[str]:
    """Return the lines that read the options; the supervisor passes --checkpoint even where it is not used."""
    several, gpus_differ = plan.is_started_by_hand or bool(plan.hosts), plan.nodes > 1 and plan.gpus
    takes, rule = takes_checkpoint(plan), plan.attempts[0].checkpoints
    first = "attempt=1 plain='' dry_run=''"
    first += " checkpoint=''" if takes else ""
    first += " own_gpus=''" if gpus_differ else ""
    first += " node_rank=${TUI_TRAIN_NODE_RANK-}" if several else ""
    lines = ["--plain) plain=yes ;;", "--dry-run) dry_run=yes ;;", "--attempt=?*) attempt=${option#*=} ;;"]
    if takes or rule:
        lines.append("--checkpoint=?*) checkpoint=${option#*=} ;;" if takes else "--checkpoint=?*) ;;")
    if plan.gpus:
        lines.append(f"--gpus=?*) gpus=${{option#*=}}{' own_gpus=yes' if gpus_differ else ''} ;;")
    if several:
        lines.append("--node-rank=?*) node_rank=${option#*=} ;;")
    if plan.may_wait:
        first += " waits=''"
        lines.append(f"--when-free | --when-free=any) waits=yes; {_REQUIRE_RUNNER_ZIP_TO_WAIT} ;;")
    lines += ["--resume) ;; # read by the supervisor", "--help | -h) usage; exit ;;", _UNKNOWN_OPTION_CASE_LINE]
    return [first, 'for option in "$@"; do', "  case $option in", *(f"    {line}" for line in lines), "  esac", "done"]


def _option_check_lines(plan: Plan) -> list[str]:
    count, last = len(plan.attempts), plan.nodes - 1
    number = f'"there is no attempt $attempt of {count}"'
    lines = [f"[[ $attempt =~ ^[1-9][0-9]{{0,2}}$ && $attempt -le {count} ]] || refuse 64 {number}"]
    if plan.may_wait:
        lines.append('[ -z "$plain" ] || [ -z "$waits" ] || refuse 64 \'--plain does not wait\'')
    if plan.slurm and plan.nodes > 1:
        lines += _SLURM_CHECK_LINES
    if plan.hosts:
        lines.append('[ -n "$plain" ] && [ -z "$dry_run" ] || node_rank=${node_rank:-0}')
    if plan.is_started_by_hand or plan.hosts:
        which = f"give the rank of this one, --node-rank=0 (the first) to --node-rank={last}"
        lines += [
            '[ -n "$node_rank" ] ||',
            f"  refuse 64 '{plan.nodes} machines train together: {which}'",
            f"[[ $node_rank =~ ^[0-9]{{1,4}}$ && $((10#$node_rank)) -le {last} ]] ||",
            f'  refuse 64 "--node-rank=$node_rank is not one of the ranks 0 to {last}"',
            "node_rank=$((10#$node_rank))",
        ]
    if plan.uneven:
        counts = " ".join(map(str, plan.uneven))
        lines.append(f"processes_of=({counts}) processes=${{processes_of[$node_rank]}} # of each machine")
    for name in plan.secrets:
        missing = f"'{name} is not set: export it, then start again'"
        lines.append(f'[ -n "$dry_run${{{name}-}}" ] || refuse 69 {missing}')
    if plan.container is None:
        lines += [
            "case $python in /*) ;; */*) python=$PWD/$python ;; esac",
            '[ -n "$dry_run" ] || command -v -- "$python" > /dev/null ||',
            '  refuse 69 "cannot run $python: set TUI_TRAIN_PYTHON to the training Python, such as env/bin/python"',
        ]
    return lines


def _dry_run_lines(plan: Plan, settings: tuple[ScriptLine, ...]) -> list[str]:
    lines = [
        'if [ -n "$dry_run" ]; then',
        *_dry_run_preparation_lines(plan),
        f"  for ((attempt = 1; attempt <= {len(plan.attempts)}; attempt++)); do",
        *(
            ['    [ -n "$plain" ] || checkpoint=' + _READ_CHECKPOINT_TEMPLATE.format(_supervisor_python(plan))]
            if not plan.is_started_by_hand and any(attempt.checkpoints for attempt in plan.attempts)
            else []
        ),
        "    choose",
        '    printf \'# attempt %s: %s\\ncd -- %q\\n\' "$attempt" "$title" "$folder"',
    ]
    if _fills_config_files(plan):
        lines.append("    echo '# *.filled.* are copies of config files, with the paths of this folder filled in'")
    if plan.nodes > 1 and plan.gpus:
        first = "# these GPUs are those of the first machine"
        lines.append(f'    [ "$node_rank" -eq 0 ] || [ -n "$own_gpus" ] || echo "{first}"')
    if settings:
        lines.append(_PRINT_SETTINGS_LINE)
    return [*lines, _PRINT_COMMAND_LINE, "  done", "  exit"]


def _dry_run_preparation_lines(plan: Plan) -> list[str]:
    if not plan.preparations:
        return []
    return [
        f"  for preparation in {_preparation_names(plan)}; do",
        '    "prepare_$preparation"',
        '    printf \'# before it, %s:\\ncd -- %q\\n\' "$preparation" "$folder"',
        *([_PRINT_SETTINGS_LINE] if _sets_outer_variables(plan) else []),
        _PRINT_COMMAND_LINE,
        "  done",
    ]


def _preparation_lines(plan: Plan) -> list[str]:
    if not plan.preparations:
        return []
    settings = _ENV_COMMAND_PREFIX if _sets_outer_variables(plan) else ""
    nice = "" if plan.container else "nice -n 0 "
    # The training's container has the same name, so that a stop finds each.
    named = plan.container and plan.container.engine in ENGINES_STOPPED_BY_NAME
    together = plan.nodes > 1 and not plan.is_started_by_hand
    waits = _WAIT_FOR_PREPARATION_LINES_OF_HOSTS if plan.hosts else _WAIT_FOR_PREPARATION_LINES
    return [
        *(waits if together else ()),
        f"for preparation in {_preparation_names(plan)}; do # each does nothing where all is done",
        f'  ({"TUI_TRAIN_REMOVE=--rm; " if named else ""}"prepare_$preparation"',
        f'    become "$folder" {settings}{nice}"${{command[@]}}") || exit',
        "done",
        *([': > "$prepared"'] if together else []),
    ]


def _preparation_names(plan: Plan) -> str:
    return " ".join(preparation.name for preparation in plan.preparations)


def _sets_outer_variables(plan: Plan) -> bool:
    """Return whether variables are set outside the container, if there is one."""
    return plan.container is None or plan.container.engine not in ENGINES_STOPPED_BY_NAME


def _supervisor_start_lines(plan: Plan) -> list[str]:
    alone = "  refuse 69 'runner.pyz is missing, which starts the other machines'"
    return [
        'elif [ -z "$plain" ] && [ -f "$run_dir/runner.pyz" ]; then # it runs this script again, with --plain',
        *([_REFUSE_OLD_PYTHON_LINES] if plan.container else []),
        f'  become . {_supervisor_python(plan)} -I -S -X utf8 "$run_dir/runner.pyz" launch "$script" "$@"',
        'elif [ -z "$plain" ]; then',
        alone if plan.hosts else f"  echo 'launch.sh: {_NO_RUNNER_ZIP_MESSAGE}' >&2",
        "fi",
    ]


def _plain_start_lines(plan: Plan, settings: tuple[ScriptLine, ...]) -> list[str]:
    lines = []
    if plan.nodes > 1 and plan.gpus:
        lines += [
            '[ "$node_rank" -eq 0 ] || [ -n "$own_gpus" ] ||',
            "  refuse 64 'the GPUs in this script are those of the first machine: give --gpus=UUID,… for this one'",
        ]
    if _fills_config_files(plan):
        runner = f'{_supervisor_python(plan)} -I -S -X utf8 "$run_dir/runner.pyz"'
        lines += [
            "# Fills the paths of this folder into copies of the config files.",
            "[ -f \"$run_dir/runner.pyz\" ] || refuse 69 'runner.pyz is missing, which fills in the config files'",
            f'{runner} fill "$attempt" ${{checkpoint:+"$checkpoint"}} || exit',
        ]
    lines.append(_WARN_IF_RUNNING_LINE)
    if plan.container:
        lines.append("mkdir -p -- \"${folders[@]}\" || refuse 73 'cannot create the folders that the container mounts'")
        lines += [f'export APPTAINERENV_{name}="${name}"' for name in plan.secrets if settings]
    lines += [*_preparation_lines(plan), "choose"]
    if plan.container:
        return [*lines, f'become "$folder" {_ENV_COMMAND_PREFIX if settings else ""}"${{command[@]}}"']
    lines.append("# env: bash reserves some names. nice: env would read a Python in a folder a=b as a variable.")
    return [*lines, f'become "$folder" {_ENV_COMMAND_PREFIX}nice -n 0 "${{command[@]}}"']


def _supervisor_python(plan: Plan) -> str:
    """Return the Python that runs the supervisor; with a container it must be outside."""
    return "python3" if plan.container else '"$python"'


def _fills_config_files(plan: Plan) -> bool:
    return any(attempt.fills for attempt in plan.attempts)
