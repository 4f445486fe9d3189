"""Environment variables of a command: those that a key of the profile sets are that key, and others stay."""

from collections.abc import Mapping

from tui_train.actions.command_import.shell import Word
from tui_train.actions.command_import.table import SECRETS_NOT_KEPT_REASON, ImportTable
from tui_train.base.secrets import has_surely_secret_format
from tui_train.checks.machine.ineffective_variables import VariableReaders, why_ineffective
from tui_train.facts.machine.variable_problems import variable_problem
from tui_train.profile import fields
from tui_train.setup.machine.communication import NCCL_WORKAROUNDS

_WORKAROUND_BY_SETTING = {(each.name, each.value): (key, each) for key, each in NCCL_WORKAROUNDS.items()}
_REASON_BY_SETTING_OF_PLAN = {
    ("CUDA_DEVICE_ORDER", "PCI_BUS_ID"): "the plan sets it, and names GPUs by UUID",
    ("PYTHONUNBUFFERED", "1"): "the plan sets it",
    ("FORCE_TORCHRUN", "1"): "torchrun starts several processes by itself (trainer.launcher)",
    ("GLOO_SOCKET_IFNAME", "lo"): "the plan sets it on one machine",
}
_REASON_BY_REPLACED_VARIABLE = {
    "CUDA_DEVICE_ORDER": "the plan names GPUs by UUID, which does not depend on their order",
    "NODE_RANK": "each machine is given its own rank",
}
# Nothing of the command line reads them: without them the training is the same.
_UNREAD_VARIABLES = frozenset({
    "ACCELERATE_USE_GLOO", "ACCELERATE_BACKEND", "ACCELERATE_DDP_BACKEND", "MASTER_ADDR", "MASTER_PORT",
    "NVTE_DP_AMAX_REDUCE_INTERVAL", "NVTE_ASYNC_AMAX_REDUCTION",
})  # fmt: skip


def import_variables(table: ImportTable, variables: Mapping[str, Word]) -> None:
    """Put the variables of a command into the profile, whose launcher is known by now."""
    for name, word in variables.items():
        if fields.is_secret_variable(name):
            _pass_by_name(table, name)
        elif word.problem:
            table.leave_out(f"{name}={word.text}", word.problem)
        elif has_surely_secret_format(word.text):
            table.leave_out(f"{name}=…", SECRETS_NOT_KEPT_REASON)
        else:
            by_bus = variables.get("CUDA_DEVICE_ORDER", Word("")).text == "PCI_BUS_ID"
            _import_variable(table, name, word.text, counted_as_nvidia_smi=by_bus)


def _pass_by_name(table: ImportTable, name: str) -> None:
    table.take_value(
        f"{name}=…", "trainer.secrets", (name,), "export it where you start the run; its value is not kept"
    )


def _import_variable(table: ImportTable, name: str, value: str, *, counted_as_nvidia_smi: bool) -> None:
    words, launcher = f"{name}={value}", table.profile.trainer.launcher
    if name == "CUDA_VISIBLE_DEVICES":
        import_visible_gpus(table, words, value, counted_as_nvidia_smi=counted_as_nvidia_smi)
    elif workaround := _WORKAROUND_BY_SETTING.get((name, value)):
        key, cure = workaround
        table.take_value(
            words, "communication.without", (key,), f"{cure.cost}; `tui-train doctor` measures whether it is needed"
        )
    elif name == "NCCL_DEBUG" and value.upper() in {"WARN", "INFO"}:
        table.take_value(words, "communication.debug", value.lower())
    elif name in {"NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"} and _is_single_interface(value):
        why = "" if value.startswith("=") or name == "GLOO_SOCKET_IFNAME" else "exactly this one, not all that begin so"
        table.take_value(words, "communication.interface", value.removeprefix("="), why)
    elif name == "PYTORCH_CUDA_ALLOC_CONF" and value == "expandable_segments:True":
        table.take_value(words, "recipe.expandable_segments", value=True)
    elif reason := _REASON_BY_SETTING_OF_PLAN.get((name, value)) or _REASON_BY_REPLACED_VARIABLE.get(name):
        table.note_replaced(words, reason)
    else:
        readers = VariableReaders(None, "python" if launcher == "auto" else launcher, "nccl")
        why = why_ineffective(name, readers)
        if name in _UNREAD_VARIABLES and why:
            table.note_replaced(words, why)
        else:
            problem = variable_problem(name, value)
            table.take_value(words, "trainer.environment", {name: value}, why or (problem.why if problem else ""))


def _is_single_interface(value: str) -> bool:
    return bool(value.removeprefix("=")) and not {",", "^", ":", "="} & {*value.removeprefix("=")} and value != "lo"


def import_visible_gpus(table: ImportTable, words: str, value: str, *, counted_as_nvidia_smi: bool) -> None:
    """Name the GPUs of a list by comma, or none; indices may be those of CUDA, which counts the fastest first."""
    names = tuple(name.strip() for name in value.split(",") if name.strip())
    if not names or names == ("-1",):
        table.take_value(words, "hardware.device", "cpu")
        return
    why = "the plan names them by UUID"
    if not counted_as_nvidia_smi and all(name.isdecimal() for name in names):
        why += "; counted as nvidia-smi does, CUDA itself begins with the fastest"
    table.take_value(words, "hardware.gpus", names, why)
