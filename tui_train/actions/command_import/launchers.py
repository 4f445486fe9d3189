"""The options of torchrun, deepspeed and accelerate launch: a key of the profile, or why the plan needs none."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, get_args

from tui_train.actions.command_import.shell import Word
from tui_train.actions.command_import.table import ImportTable
from tui_train.actions.command_import.variables import import_visible_gpus
from tui_train.base.errors import BadInput
from tui_train.base.text import visible
from tui_train.facts.yaml_documents import read_document
from tui_train.launchers import accelerate_config
from tui_train.profile.fields import FieldValue
from tui_train.profile.types import Precision
from tui_train.runner.system.paths import path_state

_RANK_REASON = "each machine is given its own rank"
_RENDEZVOUS_REASON = "the plan has the processes find each other"
_LOG_REASON = "the run keeps one log of all processes"
_RESTART_REASON = "not needed: the plan has fallbacks, and a run can be resumed"
_ONE_MACHINE_REASON = "one machine: the plan takes a free port of its own"
_NO_KEY_REASON = "no key of a profile says this"
_REASON_BY_OPTION = {
    **dict.fromkeys(("node_rank", "machine_rank"), _RANK_REASON),
    **dict.fromkeys(
        ("rdzv_backend", "rdzv_id", "rdzv_conf", "standalone", "local_addr", "same_network"), _RENDEZVOUS_REASON
    ),
    **dict.fromkeys(("log_dir", "redirects", "r", "tee", "t", "local_ranks_filter", "role", "quiet", "q"), _LOG_REASON),
    **dict.fromkeys(("duplicate_stdout_filters", "duplicate_stderr_filters", "enable_each_rank_log"), _LOG_REASON),
    "max_restarts": _RESTART_REASON,
    "use_env": "torchrun always does",
    "no_local_rank": "torchrun passes none",
}
_TORCHRUN_SWITCHES = frozenset({"standalone", "no_python", "run_path", "virtual_local_rank", "use_env"})
_TORCHRUN_OPTIONS = frozenset({
    *_TORCHRUN_SWITCHES, "nnodes", "nproc_per_node", "rdzv_backend", "rdzv_endpoint", "rdzv_id", "rdzv_conf",
    "max_restarts", "monitor_interval", "start_method", "event_log_handler", "role", "log_dir", "redirects", "r", "tee",
    "t", "local_ranks_filter", "duplicate_stdout_filters", "duplicate_stderr_filters", "node_rank", "master_addr",
    "master_port", "local_addr", "logs_specs", "numa_binding", "signals_to_handle", "shutdown_timeout",
})  # fmt: skip
_DEEPSPEED_SWITCHES = frozenset(
    {"no_local_rank", "no_python", "save_pid", "no_ssh", "force_multi", "bind_cores_to_rank"}
)
_DEEPSPEED_OPTIONS = frozenset({
    *_DEEPSPEED_SWITCHES, "hostfile", "H", "include", "i", "exclude", "e", "num_nodes", "num_gpus", "master_port",
    "master_addr", "node_rank", "launcher", "launcher_args", "enable_each_rank_log",
})  # fmt: skip
_ACCELERATE_SWITCHES = frozenset({
    "quiet", "q", "cpu", "multi_gpu", "tpu", "enable_cpu_affinity", "dynamo_use_fullgraph", "dynamo_use_dynamic",
    "dynamo_use_regional_compilation", "use_deepspeed", "use_fsdp", "use_parallelism_config", "use_megatron_lm",
    "same_network", "no_python", "tpu_cluster", "no_tpu_cluster", "tpu_use_sudo", "downcast_bf16",
    "fp8_use_autocast_during_eval", "debug",
})  # fmt: skip
_ACCELERATE_OPTIONS = frozenset({
    *_ACCELERATE_SWITCHES, "config_file", "mixed_precision", "num_processes", "num_machines", "gpu_ids", "machine_rank",
    "num_cpu_threads_per_process", "main_process_ip", "main_process_port", "tee", "t", "log_dir", "role",
    "rdzv_backend", "rdzv_conf", "max_restarts", "monitor_interval", "main_training_function", "vm", "env",
    "mpirun_hostfile", "aws_access_key_id", "aws_secret_access_key",
})  # fmt: skip
_DEEPSPEED_SETTINGS = frozenset({
    "zero_stage", "offload_optimizer_device", "offload_param_device", "offload_optimizer_nvme_path",
    "offload_param_nvme_path", "gradient_accumulation_steps", "gradient_clipping", "zero3_init_flag",
    "zero3_save_16bit_model",
})  # fmt: skip
_OFFLOADING_SETTINGS = ("offload_optimizer_device", "offload_param_device", "fsdp_offload_params")
_ACCELERATE_SECTION_PREFIXES = ("fsdp_", "dynamo_", "fp8_", "megatron_lm_", "parallelism_config_", "deepspeed_")
# What they are unless something else is said, by accelerate and by the plan.
_USUAL_ACCELERATE_VALUES = {
    "compute_environment": "local_machine", "main_training_function": "main", "downcast_bf16": "no", "use_cpu": "false",
    "debug": "false", "dynamo_backend": "no", "gpu_ids": "all", "offload_optimizer_device": "none",
    "offload_param_device": "none", "fsdp_offload_params": "false", "gradient_accumulation_steps": "1",
    "gradient_clipping": "1.0", "fsdp_auto_wrap_policy": "transformer_based_wrap", "tpu_use_cluster": "false",
    "tpu_use_sudo": "false", "tpu_env": "[]", "fsdp_cpu_ram_efficient_loading": "true", "fsdp_version": "2",
    "fsdp_sharding_strategy": "full_shard", "fsdp_reshard_after_forward": "true",
    "fsdp_state_dict_type": "sharded_state_dict", "enable_cpu_affinity": "false",
}  # fmt: skip


class Option(NamedTuple):
    """An option of a launcher as written, its name with underscores, and its value, `true` for a switch."""

    words: str
    name: str
    value: Word


def import_torchrun_options(table: ImportTable, words: Sequence[Word]) -> Sequence[Word]:
    """Take the options of torchrun, and return the words from its program on."""
    options, rest = _split_options("torchrun", words, _TORCHRUN_SWITCHES, _TORCHRUN_OPTIONS.__contains__)
    for option in (each for each in options if each.name == "nnodes"):
        if option.value.text.partition(":")[0] != option.value.text.rpartition(":")[2]:
            table.leave_out(option.words, "the number of machines changes while it trains, which is not supported")
        else:
            table.take(option.words, "nodes.count", option.value._replace(text=option.value.text.partition(":")[0]))
    for option in (each for each in options if each.name != "nnodes"):
        if option.name == "nproc_per_node" and option.value.text in {"gpu", "auto"}:
            table.note_replaced(option.words, "tui-train starts a process for each chosen GPU")
        elif option.name == "nproc_per_node":
            table.take(option.words, "hardware.processes", option.value)
        else:
            _import_common_option(table, option)
    if not any(option.name == "nproc_per_node" for option in options):
        why = "without --nproc_per_node it starts one process"
        table.take_value("torchrun", "hardware.processes", 1, why)
    return rest


def import_deepspeed_options(table: ImportTable, words: Sequence[Word]) -> Sequence[Word]:
    """Take the options of the deepspeed launcher, and return the words from its program on."""
    options, rest = _split_options("deepspeed", words, _DEEPSPEED_SWITCHES, _DEEPSPEED_OPTIONS.__contains__)
    key_by_name = {"num_nodes": "nodes.count", "num_gpus": "hardware.processes"}
    for option in sorted(options, key=lambda option: option.name != "num_nodes"):
        host, colon, cards = option.value.text.partition(":")
        if key := key_by_name.get(option.name):
            table.take(option.words, key, option.value)
        elif option.name in {"include", "i"} and host == "localhost" and colon and "@" not in cards:
            import_visible_gpus(table, option.words, cards, counted_as_nvidia_smi=False)
        else:
            _import_common_option(table, option)
    return rest


def import_accelerate_options(table: ImportTable, words: Sequence[Word]) -> Sequence[Word]:
    """Take the options of accelerate launch and of its config file, and return the words from its program on."""
    options, rest = _split_options("accelerate launch", words, _ACCELERATE_SWITCHES, _is_accelerate_option)
    config: dict[str, Any] = {}
    for option in (each for each in options if each.name == "config_file"):
        table.take(option.words, "trainer.accelerate_config", option.value)
        path = table.profile.trainer.accelerate_config
        if path_state(path) == "file":
            config = read_accelerate_config(path)
            import_accelerate_config(table, config)
        else:
            table.leave_out(option.words, "that file is not here: its processes and sharding are not known")
    given = {option.name: option.value.text for option in options if not option.value.problem}
    config = _with_options(config, given)
    for option in sorted(options, key=lambda option: option.name != "num_machines"):
        if option.name == "config_file":
            continue
        if option.value.problem and option.name not in _REASON_BY_OPTION:
            table.leave_out(option.words, option.value.problem)
        else:
            _import_accelerate_setting(table, option, config, in_file=False)
    return rest


def read_accelerate_config(path: str) -> dict[str, Any]:
    """Return the config in a file of accelerate; BadInput if it is none."""
    document = read_document(path)
    why = document.problem or accelerate_config.why_config_unusable(document.values)
    if why:
        raise BadInput(f"the accelerate config {visible(path)}: {why}", "Write it again with `accelerate config`.")
    return dict(document.values)


def import_accelerate_config(table: ImportTable, config: Mapping[str, Any]) -> None:
    """Take what a config of accelerate says of processes and sharding."""
    refused = dict.fromkeys(accelerate_config.unsupported_keys(config), "is not supported")
    refused |= accelerate_config.reason_by_dropped_setting(config, accelerate_config.read_strategy(config))
    for section_or_name, value in sorted(config.items(), key=lambda item: item[0] != "num_machines"):
        inner = value if isinstance(value, dict) else {section_or_name: value}
        for name, text in inner.items():
            words = f"{section_or_name}.{name}: {text}" if inner is value else f"{name}: {text}"
            option = Option(words, name, Word(str(text)))
            if why := next(
                (
                    refused[key]
                    for key in (name, section_or_name, f"{name}: {text}", f"{section_or_name}.{name}")
                    if key in refused
                ),
                "",
            ):
                table.leave_out(words, why)
            elif text is not None:
                _import_accelerate_setting(table, option, config, in_file=True)


def _is_accelerate_option(name: str) -> bool:
    return name in _ACCELERATE_OPTIONS | _DEEPSPEED_SETTINGS or name.startswith(_ACCELERATE_SECTION_PREFIXES)


def _with_options(config: Mapping[str, Any], given: Mapping[str, str]) -> dict[str, Any]:
    """Return a config with what options say in its place, as accelerate merges them."""
    kinds = {"use_fsdp": "FSDP", "use_deepspeed": "DEEPSPEED", "multi_gpu": "MULTI_GPU"}
    kind = next((kinds[name] for name in kinds if name in given), config.get("distributed_type", "NO"))
    fsdp = {name: value for name, value in given.items() if name.startswith("fsdp_")}
    deepspeed = {name: value for name, value in given.items() if name in _DEEPSPEED_SETTINGS}
    sections = {
        "fsdp_config": {**(config.get("fsdp_config") or {}), **fsdp},
        "deepspeed_config": {**(config.get("deepspeed_config") or {}), **deepspeed},
    }
    return {**config, **given, **sections, "distributed_type": kind}


def _import_accelerate_setting(table: ImportTable, option: Option, config: Mapping[str, Any], *, in_file: bool) -> None:
    """Take a setting of accelerate, given as an option or in a file, which the plan goes on reading."""
    words, name, value = option.words, option.name, option.value.text
    gpus = accelerate_config.read_gpu_ids({name: value}) if name == "gpu_ids" else ()
    if name == "num_machines":
        table.take(words, "nodes.count", value)
    elif name == "num_processes":
        _take_process_count(table, words, value, config)
    elif gpus:
        import_visible_gpus(table, words, ",".join(gpus), counted_as_nvidia_smi=False)
    elif edits := _edits_of_accelerate_setting(name, value, config, in_file=in_file):
        table.take_values(words, edits)
    elif name in {"multi_gpu", "distributed_type"}:
        table.note_replaced(words, "follows from the processes")
    elif str(_USUAL_ACCELERATE_VALUES.get(name)) == value.lower():
        table.note_replaced(words, "as the plan has it")
    elif in_file and name not in {*_REASON_BY_OPTION, "main_process_ip", "main_process_port"}:
        table.keep_in_file(words)
    else:
        _import_common_option(table, option)


def _edits_of_accelerate_setting(
    name: str, value: str, config: Mapping[str, Any], *, in_file: bool
) -> Mapping[str, FieldValue]:
    """Return the keys that say the same as a setting, none where no key does."""
    strategy, is_on = accelerate_config.read_strategy(config), value.lower() in {"true", "cpu"}
    precision = accelerate_config.read_precision({name: value}) if name == "mixed_precision" and not in_file else ""
    if name in {"use_fsdp", "use_deepspeed", "zero_stage", "distributed_type"} and strategy != "ddp":
        return {"trainer.strategy": strategy}
    if precision in get_args(Precision):
        return {"recipe.precision": precision}
    if name == "num_cpu_threads_per_process":
        return {"trainer.environment": {"OMP_NUM_THREADS": value}}
    edits_by_name: dict[str, dict[str, FieldValue]] = {
        "cpu": {"hardware.device": "cpu"},
        "use_cpu": {"hardware.device": "cpu"},
        **{offloading: {"trainer.offload": True} for offloading in _OFFLOADING_SETTINGS},
        "enable_cpu_affinity": {"trainer.environment": {"ACCELERATE_CPU_AFFINITY": "1"}},
    }
    return edits_by_name.get(name, {}) if is_on else {}


def _take_process_count(table: ImportTable, words: str, value: str, config: Mapping[str, Any]) -> None:
    """Take the processes of all machines, as those of each."""
    total = accelerate_config.parse_positive_integer(value)
    machines = accelerate_config.parse_positive_integer(config.get("num_machines")) or 1
    if total is None or total % machines:
        table.leave_out(words, "is no number of processes that these machines can share")
    else:
        table.take_value(words, "hardware.processes", total // machines, "on each machine" if machines > 1 else "")


def _import_common_option(table: ImportTable, option: Option) -> None:
    """Take an option that several launchers have."""
    several = table.profile.nodes.count > 1
    address, _, port = option.value.text.partition(":")
    if option.name in {"master_addr", "main_process_ip", "rdzv_endpoint", "master_port", "main_process_port"}:
        if not several:
            table.note_replaced(option.words, _ONE_MACHINE_REASON)
        elif option.name.endswith("port"):
            table.take(option.words, "nodes.port", option.value)
        else:
            table.take(option.words, "nodes.address", option.value._replace(text=address))
            if port and not option.value.problem:
                table.take(option.words, "nodes.port", port)
    elif why := _REASON_BY_OPTION.get(option.name):
        table.note_replaced(option.words, why)
    else:
        table.leave_out(option.words, option.value.problem or _NO_KEY_REASON)


def _split_options(
    launcher: str, words: Sequence[Word], switches: Iterable[str], is_known: Callable[[str], bool]
) -> tuple[list[Option], Sequence[Word]]:
    """Return the options before the program, and the words from it on; BadInput for an option that it has not."""
    options: list[Option] = []
    position = 0
    while (
        position < len(words)
        and words[position].text.startswith("-")
        and words[position].text not in {"-m", "--module"}
    ):
        word = words[position]
        written, equals, value = word.text.partition("=")
        name = written.lstrip("-").replace("-", "_")
        if not is_known(name):
            raise BadInput(f"{launcher} has no option {visible(written)}", f"See `{launcher} --help`.")
        takes_next = not equals and name not in switches
        if takes_next and position + 1 == len(words):
            raise BadInput(f"{visible(written)} has no value", "Give the whole command.")
        given = words[position + 1] if takes_next else Word(value if equals else "true", word.problem)
        options.append(Option(f"{word.text} {given.text}" if takes_next else word.text, name, given))
        position += 1 + takes_next
    return options, words[position:]
