"""The end of launch.sh: its options, the supervisor that takes over, or the one command in its place."""

from tui_train.plan.types import Plan
from tui_train.render.head import resumes
from tui_train.render.variants import Line

_FUNCTIONS = r"""usage() { sed -n '2,/^$/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; } # the head of this file
become() { eval "$yours" 2> /dev/null; cd -- "$1" && exec "${@:2}"; exit 69; } # the command $2... in the folder $1
"""
_OLD_PYTHON = """\
  python3 -I -S -c 'import sys; sys.exit(sys.version_info < (3, 8))' 2> /dev/null ||
    refuse 69 'needs Python 3.8 or newer as python3 on this machine, outside the container; --plain does not'"""
_UNKNOWN = '*) refuse 64 "there is no option $option: see bash launch.sh --help" ;;'
_ASK = '$({} -I -S -X utf8 -B "$run_dir/supervisor" checkpoint "$attempt" 2> /dev/null)'
_ALONE = "there is no supervisor/ beside it: nothing falls back or resumes, and only Ctrl-C stops it"
_SETTINGS = 'env "${settings[@]}" '


def end(plan: Plan, settings: tuple[Line, ...]) -> list[str]:
    """Return the lines that read the options and start what they ask for; `settings` are what `choose` sets."""
    return [
        _FUNCTIONS,
        *_options(plan),
        *_checked(plan),
        "",
        *_dry_run(plan, settings),
        *_supervised(plan),
        "",
        *_plain(plan, settings),
    ]


def _options(plan: Plan) -> list[str]:
    """Return the lines that read the options; a checkpoint is the supervisor's to name, and ignored without a use."""
    several, own = plan.nodes > 1, plan.nodes > 1 and plan.gpus
    takes, rule = resumes(plan), plan.attempts[0].checkpoints
    first = "attempt=1 plain='' dry_run=''"
    first += " checkpoint=''" if takes else ""
    first += " own_cards=''" if own else ""
    first += " node_rank=${TUI_TRAIN_NODE_RANK-}" if several else ""
    lines = ["--plain) plain=yes ;;", "--dry-run) dry_run=yes ;;", "--attempt=?*) attempt=${option#*=} ;;"]
    if takes or rule:
        lines.append("--checkpoint=?*) checkpoint=${option#*=} ;;" if takes else "--checkpoint=?*) ;;")
    if plan.gpus:
        lines.append(f"--cards=?*) cards=${{option#*=}}{' own_cards=yes' if own else ''} ;;")
    if several:
        lines.append("--node-rank=?*) node_rank=${option#*=} ;;")
    lines += ["--resume) ;; # the supervisor's", "--help | -h) usage; exit ;;", _UNKNOWN]
    return [first, 'for option in "$@"; do', "  case $option in", *(f"    {line}" for line in lines), "  esac", "done"]


def _checked(plan: Plan) -> list[str]:
    """Return the lines that refuse what cannot be started."""
    count, last = len(plan.attempts), plan.nodes - 1
    number = f'"there is no attempt $attempt of {count}"'
    lines = [f"[[ $attempt =~ ^[1-9][0-9]{{0,2}}$ && $attempt -le {count} ]] || refuse 64 {number}"]
    if plan.nodes > 1:
        which = f"say which one this is, --node-rank=0 (the first) to --node-rank={last}"
        lines += [
            '[ -n "$node_rank" ] ||',
            f"  refuse 64 '{plan.nodes} machines train together: {which}'",
            f"[[ $node_rank =~ ^[0-9]{{1,4}}$ && $((10#$node_rank)) -le {last} ]] ||",
            f'  refuse 64 "--node-rank=$node_rank is not there: {plan.nodes} machines are 0 to {last}"',
            "node_rank=$((10#$node_rank))",
        ]
    for name in plan.secrets:
        missing = f"'{name} is not set: export it, then start again'"
        lines.append(f'[ -n "$dry_run${{{name}-}}" ] || refuse 69 {missing}')
    if plan.container is None:
        lines += [
            "case $python in /*) ;; */*) python=$PWD/$python ;; esac",
            '[ -n "$dry_run" ] || command -v -- "$python" > /dev/null ||',
            '  refuse 69 "cannot run $python: set TUI_TRAIN_PYTHON to the Python that trains, such as env/bin/python"',
        ]
    return lines


def _dry_run(plan: Plan, settings: tuple[Line, ...]) -> list[str]:
    lines = [
        'if [ -n "$dry_run" ]; then',
        f"  for ((attempt = 1; attempt <= {len(plan.attempts)}; attempt++)); do",
        *(['    [ -n "$plain" ] || checkpoint=' + _ASK.format(_host(plan))] if _resumes(plan) else []),
        "    choose",
        '    printf \'# attempt %s: %s\\ncd -- %q\\n\' "$attempt" "$title" "$folder"',
    ]
    if _fills(plan):
        lines.append("    echo '# *.filled.* are copies of the files beside it, with the paths of this folder in them'")
    if plan.nodes > 1 and plan.gpus:
        first = "# these cards are the first machine's"
        lines.append(f'    [ "$node_rank" -eq 0 ] || [ -n "$own_cards" ] || echo "{first}"')
    if settings:
        lines.append("    printf 'export%s\\n' \"$(printf ' %q' \"${settings[@]}\")\"")
    return [*lines, "    printf '%s\\n' \"$(printf '%q ' \"${command[@]}\")\"", "  done", "  exit"]


def _supervised(plan: Plan) -> list[str]:
    return [
        'elif [ -z "$plain" ] && [ -d "$run_dir/supervisor" ]; then # it starts this script again, with --plain',
        *([_OLD_PYTHON] if plan.container else []),
        f'  become . {_host(plan)} -I -S -X utf8 "$run_dir/supervisor" launch "$script" "$@"',
        'elif [ -z "$plain" ]; then',
        f"  echo 'launch.sh: {_ALONE}' >&2",
        "fi",
    ]


def _plain(plan: Plan, settings: tuple[Line, ...]) -> list[str]:
    lines = []
    if plan.nodes > 1 and plan.gpus:
        lines += [
            '[ "$node_rank" -eq 0 ] || [ -n "$own_cards" ] ||',
            "  refuse 64 'the cards in this script are those of the first machine: name the ones here, --cards=UUID,…'",
        ]
    if _fills(plan):
        lines += [
            "# Puts the paths of this folder into copies of its config files.",
            "[ -d \"$run_dir/supervisor\" ] || refuse 69 'there is no supervisor/, which fills in the config files'",
            f'{_host(plan)} -I -S -X utf8 "$run_dir/supervisor" fill "$attempt" ${{checkpoint:+"$checkpoint"}} || exit',
        ]
    lines.append("choose")
    if plan.container:
        lines.append("mkdir -p -- \"${folders[@]}\" || refuse 73 'cannot make the folders of the container'")
        lines += [f'export APPTAINERENV_{name}="${name}"' for name in plan.secrets if settings]
        return [*lines, f'become "$folder" {_SETTINGS if settings else ""}"${{command[@]}}"']
    lines.append(
        "# env, for bash keeps some names to itself; nice, for env would take a Python in a folder a=b for a variable."
    )
    return [*lines, f'become "$folder" {_SETTINGS}nice -n 0 "${{command[@]}}"']


def _resumes(plan: Plan) -> bool:
    return plan.nodes == 1 and any(attempt.checkpoints for attempt in plan.attempts)


def _host(plan: Plan) -> str:
    """Return the Python that runs the supervisor: one in an image could not start containers."""
    return "python3" if plan.container else '"$python"'


def _fills(plan: Plan) -> bool:
    return any(attempt.fills for attempt in plan.attempts)
