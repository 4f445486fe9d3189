"""Helper of `.ci/environment`: which torch to install for the cards, and whether the installed one supports them.

`choose [PIP ARGUMENTS]` prints pip's arguments for torch (empty: pip's default), then messages;
`check` prints why cards would stay idle, if any.
"""

import sys

from tui_train.actions import environments
from tui_train.actions.environments.create import choose_torch_build
from tui_train.base.errors import Unavailable
from tui_train.base.text import visible
from tui_train.checks.machine import idle_cards
from tui_train.facts.machine import probe
from tui_train.facts.machine.torch_builds import CPU_INDEX_URL
from tui_train.facts.types import Facts, Machine
from tui_train.memory.data_defaults import make_setup
from tui_train.profile.types import Profile

_PIP_INDEX_OPTIONS = ("-i", "--index-url", "--extra-index-url", "-f", "--find-links", "--no-index")
_CHANGE_TORCH_HINT_TEXT = 'To change it: make run TORCH=VERSION, or PIP_ARGS="--index-url URL" for another index.'


def pip_torch_arguments_and_messages(machine: Machine, pip_arguments: str) -> list[str]:
    """Return pip's arguments for torch on this machine (empty: pip's default), then messages."""
    hidden = [f"{gap.what}: {gap.why}. {gap.remedy}" for gap in machine.gaps if gap.hides]
    if not machine.gpus:
        return ["", *hidden] if hidden else [""]
    cards = ", ".join(dict.fromkeys(gpu.name or f"GPU {gpu.index}" for gpu in machine.gpus))
    driver = f"driver for CUDA {machine.driver_cuda}" if machine.driver_cuda else "driver"
    messages = [f"GPUs: {cards}; {driver}"]
    torch = environments.torch_requirement(environments.PACKAGE_SETS["hf"])
    try:
        build = choose_torch_build(machine, "")
        index, why = build.index, build.why
    except Unavailable as error:
        index, why = CPU_INDEX_URL, f"{error.message}, so the CPU build is used. {error.remedy}"
    if any(word.partition("=")[0] in _PIP_INDEX_OPTIONS for word in pip_arguments.split()):
        return ["", *messages, f"Suitable: {why}. But PIP_ARGS sets the index."]
    source = f" from {index}" if index else ""
    return [
        f"--index-url {index} {torch}" if index else torch,
        *messages,
        f"Installing {torch}{source}: {why}.",
        _CHANGE_TORCH_HINT_TEXT,
    ]


def _idle_card_messages(facts: Facts) -> list[str]:
    """Return why cards would stay idle with the installed packages, and what to do."""
    profile = Profile()
    setup = make_setup(profile, facts)
    findings = [*idle_cards.all_cards_idle_while_cpu_trains(setup), *idle_cards.cards_idle_without_torch_code(setup)]
    lines = [line for finding in findings for line in (f"! {finding.message}", f"  {finding.remedy}")]
    # In make, the program is not on PATH.
    return [line.replace("tui-train env", ".venv/bin/tui-train env") for line in lines]


def main(arguments: list[str]) -> None:
    """Print the answer to `choose` or `check`."""
    machine = probe.probe_machine()
    if arguments[:1] == ["choose"]:
        lines = pip_torch_arguments_and_messages(machine, " ".join(arguments[1:]))
    elif machine.gpus or any(gap.hides for gap in machine.gaps):
        lines = _idle_card_messages(Facts(machine=machine, toolchains=probe.probe_toolchains()))
    else:
        lines = []
    for line in lines:
        print(visible(line))  # noqa: T201 - it is what it is for


if __name__ == "__main__":
    main(sys.argv[1:])
