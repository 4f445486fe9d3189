"""Prints device and waits of each rank of a script; can change its backend, keep its micro batch, let it save and end.

The script stays as it is: Python runs this at its start.

It lies first on PYTHONPATH, and runs the module of the same name that it hides. It imports nothing that the script does
not import itself, starts no GPU, and leaves out whatever fails in here. TUI_TRAIN_SHOW_DEVICES=0 turns it off.

A process is a rank when it joins a process group, starts its only GPU, or computes gradients: launchers, data loaders
and compilers import torch as well, and are none.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

    # Given the arguments of a call; returns the positional and named ones, changed, or None to leave them as they are.
    ActionBeforeCall = Callable[..., "tuple[tuple[Any, ...], dict[str, Any]] | None"]
    ActionAfterCall = Callable[..., object]

OWN_MODULE_NAME = "sitecustomize"
_REDUCER_RELEASE_DELAY_SECONDS = 0.1
_FIRST_REPORTED_PASS = 10
_MEASURED_PASS_POLL_SECONDS = 0.5


def call_quietly(act: Callable[..., Any], /, *positional: Any, **named: Any) -> Any:
    """Return the result of `act`, None if it fails: nothing in here may end a training."""
    try:
        return act(*positional, **named)
    except Exception:  # noqa: BLE001 - whatever it is, the training goes on without it
        return None


class ImportHook:
    """An import hook that changes certain modules after they are executed, and calls of their functions."""

    tui_train = True

    def __init__(self) -> None:
        self.acts_by_module: dict[str, list[Callable[[ModuleType], object]]] = {}

    def register_after_import(self, module_name: str, act: Callable[[ModuleType], object]) -> None:
        """Have a module given to `act` once it is executed."""
        self.acts_by_module.setdefault(module_name, []).append(act)

    def register_around_calls(
        self,
        module_name: str,
        function: str,
        before: ActionBeforeCall | None = None,
        after: ActionAfterCall | None = None,
    ) -> None:
        """Have actions called before and after each call of a function, or of CLASS.METHOD, of a module."""
        self.register_after_import(module_name, lambda module: wrap_call(module, function, before, after))

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Return the spec of a hooked module, None for all others."""
        return call_quietly(self._find_hooked_spec, name, path, target) if name in self.acts_by_module else None

    def _find_hooked_spec(self, name: str, path: Any, target: Any) -> Any:
        others = [finder for finder in sys.meta_path if finder is not self]
        specs = (finder.find_spec(name, path, target) for finder in others)
        spec = next((spec for spec in specs if spec), None)
        if spec:
            call_quietly(self._call_after_import, spec.loader, self.acts_by_module[name])
        return spec

    def _call_after_import(self, loader: Any, acts: list[Callable[[ModuleType], object]]) -> None:
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            del loader.exec_module
            execute(module)
            for act in acts:
                call_quietly(act, module)

        loader.exec_module = exec_module


def wrap_call(
    module: Any, function: str, before: ActionBeforeCall | None = None, after: ActionAfterCall | None = None
) -> Callable[[], None]:
    """Wrap a function, or CLASS.METHOD, of a module; return what restores it, unless others have replaced it since."""
    from functools import wraps

    class_name, _, name = function.rpartition(".")
    owner = getattr(module, class_name) if class_name else module
    original = getattr(owner, name)

    @wraps(original)
    def call(*positional: Any, **named: Any) -> Any:
        if before:
            positional, named = call_quietly(before, *positional, **named) or (positional, named)
        result = original(*positional, **named)
        if after:
            call_quietly(after, *positional, **named)
        return result

    def restore() -> None:
        if getattr(owner, name) is call:
            setattr(owner, name, original)

    setattr(owner, name, call)
    return restore


class RankDevicePrinter:
    """The rank and device of this process; prints its line once, when both are known."""

    def __init__(self) -> None:
        self.restorers: list[Callable[[], None]] = []
        self.group: tuple[int, int, str] | None = None
        self.card: int | None = None
        self.pid = 0
        self.device = "?"
        self.shown = False

    def watch_cuda(self, module: Any) -> None:
        """Watch the start of CUDA, and the choice of a device."""
        module._lazy_call(lambda: call_quietly(self.print_if_certain_at_cuda_start))  # noqa: SLF001 - each release has it, and it costs nothing
        self.restorers.append(wrap_call(module, "set_device", after=self.record_chosen_device))

    def watch_autograd(self, module: Any) -> None:
        """Watch the first gradients."""
        self.restorers.append(wrap_call(module, "backward", self.print_device_of_loss))

    def record_process_group(self, *_: Any, device_id: Any = None, **__: Any) -> None:
        """Record the process group after it was joined."""
        distributed = sys.modules["torch.distributed.distributed_c10d"]
        if self.group:
            return
        backend = str(distributed.get_backend())
        if backend == "undefined":
            backend = str(distributed.get_backend_config())
        self.group = (distributed.get_rank(), distributed.get_world_size(), backend)
        self.pid = os.getpid()
        if device_id is not None:
            self.card = device_id if isinstance(device_id, int) else device_id.index
        if self.shown:
            # It computed before it joined, and printed rank 0 of 1.
            self.shown = False
            self.print_line_once(self.device)
        call_quietly(self._print_if_certain)
        if not self.shown:
            import atexit

            atexit.register(call_quietly, self.print_rank_without_device)

    def print_if_certain_at_cuda_start(self) -> None:
        """Print the line as CUDA starts if the device is certain: the first is still current in every process."""
        if self.group or self._is_single_process():
            self._print_if_certain()

    def record_chosen_device(self, *_: Any, **__: Any) -> None:
        """Record the device that the script chose."""
        cuda = sys.modules["torch.cuda"]
        if cuda.is_initialized():
            self.card = cuda.current_device()
            if self.group or self._is_single_process():
                self._print_if_certain()

    def print_device_of_loss(self, tensors: Any, *_: Any, **__: Any) -> None:
        """Print the device of the loss, the most reliable sign of where a training computes."""
        device = (tensors if hasattr(tensors, "device") else next(iter(tensors))).device
        self.print_line_once(cuda_device_text(device.index) if device.type == "cuda" else str(device))

    def print_rank_without_device(self) -> None:
        """Print a rank of a group without a known device, unless this is a fork of its process."""
        if self.pid == os.getpid() and not self.shown:
            self.print_line_once("?" if sys.modules["torch.cuda"].is_initialized() else "cpu")

    def print_line_once(self, device: str) -> None:
        """Print the line, and restore the modules of the script."""
        if self.shown:
            return
        self.shown, self.device = True, device
        for restore in self.restorers:
            restore()
        self.restorers.clear()
        rank, world, backend = self.group or (0, 1, "none")
        _print_rank_line(rank, world, f"device {device} | backend {backend}")

    def _print_if_certain(self) -> None:
        """Print the line if the device is certain."""
        torch, cuda = sys.modules["torch"], sys.modules["torch.cuda"]
        versions = [getattr(torch.version, name, None) for name in ("cuda", "hip", "xpu")]
        if os.environ.get("CUDA_VISIBLE_DEVICES") == "" or not any(versions):
            self.print_line_once("cpu")
        elif self.card is not None and _is_cuda_running(cuda):
            self.print_line_once(cuda_device_text(self.card))
        elif _is_cuda_running(cuda) and cuda.device_count() == 1:
            self.print_line_once(cuda_device_text(0))
        elif cuda.is_initialized() and cuda.current_device():
            # The script chose it: the default is the first device.
            self.print_line_once(cuda_device_text(cuda.current_device()))

    @staticmethod
    def _is_single_process() -> bool:
        """Return whether this process is alone, and not a helper of another one."""
        processes = sys.modules.get("multiprocessing.process")
        helps = processes is not None and processes.parent_process() is not None
        return os.environ.get("WORLD_SIZE", "1") in {"", "1"} and not helps


class GradientExchangePrinter:
    """Prints how long a rank exchanges gradients in some passes, by which the slowest one is known.

    DistributedDataParallel measures that in its first passes and in each hundredth. All ranks print the same passes:
    the tenth, the hundredth, and then at double numbers.
    """

    def __init__(self) -> None:
        self.model: Any = None
        self.next_pass = _FIRST_REPORTED_PASS

    def start_printing_exchange_times(self, model: Any, *_: Any, **__: Any) -> None:
        """Watch the passes of the first model that lives."""
        if self.model is not None:
            return
        import atexit
        import threading
        import weakref

        ended = threading.Event()
        self.model = weakref.ref(model)
        thread = threading.Thread(target=call_quietly, args=(self._print_exchange_times, ended), daemon=True)
        thread.start()
        atexit.register(ended.set)

    def _print_exchange_times(self, ended: Any) -> None:
        distributed = sys.modules["torch.distributed.distributed_c10d"]
        rank, world = distributed.get_rank(), distributed.get_world_size()
        while not ended.wait(_MEASURED_PASS_POLL_SECONDS):
            model = self.model()
            if model is None:
                self.model = None
                return
            measured = model._get_ddp_logging_data()  # noqa: SLF001 - nothing public tells
            del model
            number = measured.get("iteration", 0)
            if number < self.next_pass:
                continue
            self.next_pass = 100 if number < 100 else number * 2
            exchange = measured["backward_comm_time"]
            whole = measured["backward_comm_time_end"] - measured["forward_compute_time_start"]
            if exchange > 0 and whole > 0:
                _print_rank_line(
                    rank, world, f"pass {number}: {exchange / 1e9:.6f} of {whole / 1e9:.6f} s exchange gradients"
                )


def _print_rank_line(rank: int, world: int, text: str) -> None:
    """Print a line of a rank in one write, because ranks share a log."""
    sys.stderr.write(f"rank {rank}/{world} | host {os.uname().nodename} | {text}\n")
    sys.stderr.flush()


class BackendOverride:
    """Makes every process group use the backend TUI_TRAIN_BACKEND, whatever the script requests."""

    def __init__(self, wanted: str) -> None:
        self.wanted = wanted

    def override_group_backend(self, module: Any) -> None:
        """Change the arguments of the functions that create groups."""
        for name in ("init_process_group", "new_group", "barrier"):
            if hasattr(module, name):
                wrap_call(module, name, self._make_backend_change(getattr(module, name), name))

    def set_backend_of_accelerate(self, *positional: Any, **named: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Have accelerate begin with it: by the backend's name it chooses which collectives it calls."""
        if self._must_replace_backend(named.get("backend")):
            named = {**named, "backend": self.wanted}
        return positional, named

    @staticmethod
    def _must_replace_backend(backend: Any) -> bool:
        return backend is None or "nccl" in str(backend).lower()

    def _make_backend_change(self, function: Any, name: str) -> ActionBeforeCall:
        from inspect import signature

        parameters = signature(function)

        def change(*positional: Any, **named: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
            given = dict(parameters.bind_partial(*positional, **named).arguments)
            backend = given.get("backend")
            inherits = name == "new_group" and backend is None
            if name == "barrier":
                given.pop("device_ids", None)
            elif not inherits and self._must_replace_backend(backend):
                given["backend"] = self.wanted
                # Options and device are for NCCL.
                given.pop("pg_options", None)
                given.pop("device_id", None)
            return (), given

        return change


def limit_gpu_memory(module: Any) -> None:
    """Have torch run out of memory beyond so many bytes, as on a smaller GPU, if TUI_TRAIN_GPU_MEMORY names them."""
    allowed = int(os.environ.get("TUI_TRAIN_GPU_MEMORY", "0"))

    def limit() -> None:
        share = allowed / module.get_device_properties(0).total_memory
        module.set_per_process_memory_fraction(min(1.0, share), 0)

    if allowed:
        module._lazy_call(lambda: call_quietly(limit))  # noqa: SLF001 - each release has it, and it costs nothing


def override_resumed_micro_batch(module: Any, wanted: int) -> None:
    """Have the Hugging Face Trainer resume with the micro batch that it is told: TUI_TRAIN_MICRO_BATCH names it.

    Older ones take the one that the checkpoint was written with, and multiply it with the new accumulation.
    """
    load = module.TrainerState.load_from_json

    def load_from_json(*positional: Any, **named: Any) -> Any:
        state = load(*positional, **named)
        if state.train_batch_size is not None:
            state.train_batch_size = wanted
        return state

    module.TrainerState.load_from_json = staticmethod(load_from_json)


def accept_several_trackers(arguments: Any) -> None:
    """Have the Hugging Face Trainer report to all trackers that --report_to names with commas; its parser takes one."""
    if isinstance(arguments.report_to, str) and "," in arguments.report_to:
        arguments.report_to = arguments.report_to.split(",")


class WholeModelSaving:
    """Has the Hugging Face Trainer save the model that a script asks it to save, also where FSDP shards it.

    Its checkpoints are sharded, as the configuration wants them; `save_model` by itself would then save nothing.
    """

    sharded: Any = None

    def gather_whole_model(
        self, trainer: Any, output_dir: Any = None, _internal_call: bool = False, *_: Any, **__: Any
    ) -> None:
        """Have the ranks gather the whole model, unless it is for a checkpoint."""
        del output_dir
        plugin = getattr(trainer.accelerator.state, "fsdp_plugin", None)
        if plugin is not None and not _internal_call and "SHARDED" in str(plugin.state_dict_type):
            self.sharded = plugin.state_dict_type
            plugin.set_state_dict_type("FULL_STATE_DICT")

    def shard_checkpoints_again(self, trainer: Any, *_: Any, **__: Any) -> None:
        """Have checkpoints sharded again."""
        if self.sharded is not None:
            trainer.accelerator.state.fsdp_plugin.set_state_dict_type(self.sharded)
            self.sharded = None


class TurnEndToken:
    """Has the Hugging Face Trainer end texts with the token that ends a turn in the chat template.

    The preparation of the data wrote it where the model would not stop there. Not all of TRL's trainers have an option
    for it, and an adapter is saved without the generation_config.json that names it.
    """

    def __init__(self, token: str) -> None:
        self.token = token

    def set_as_tokenizer_end(self, trainer: Any, *_: Any, **__: Any) -> None:
        """Make it the end of the tokenizer, to which the trainer aligns the model."""
        known = getattr(trainer.processing_class, "tokenizer", trainer.processing_class)
        if self.token in known.get_vocab():
            known.eos_token = self.token
            held = trainer.model.generation_config
            own = held.eos_token_id if isinstance(held.eos_token_id, list) else [held.eos_token_id]
            others = [number for number in own if number not in {None, known.eos_token_id}]
            held.eos_token_id = [known.eos_token_id, *others]
            # Trainers that generate have read the ends before, and use their list from now on.
            ends = getattr(trainer, "eos_token_ids", None)
            if isinstance(ends, list) and known.eos_token_id not in ends:
                ends.insert(0, known.eos_token_id)

    def save_generation_config_beside_adapter(self, trainer: Any, output_dir: Any = None, *_: Any, **__: Any) -> None:
        """Write beside an adapter how its model generates."""
        if trainer.args.should_save and hasattr(trainer.model, "peft_config"):
            trainer.model.generation_config.save_pretrained(output_dir or trainer.args.output_dir)


def learn_answers_only(_trainer: Any, model: Any = None, args: Any = None, *_: Any, **__: Any) -> None:
    """Have TRL learn the answers of chats alone, where the preparation found that the chat template marks them."""
    del model
    args.assistant_only_loss = True


class ReducerHolder:
    """Holds the reducer of the newest model that several processes share, until the script has ended.

    torch frees it, and with it gloo, while it holds the lock of Python, and waits for gloo's threads. These may need it
    to free the tensors of the last gather: the training would not end (pytorch#56297, pytorch#190489).
    """

    def __init__(self) -> None:
        self.held: Any = None

    def hold_reducer(self, model: Any, *_: Any, **__: Any) -> None:
        """Hold that of a model which communicates over gloo."""
        distributed = sys.modules["torch.distributed.distributed_c10d"]
        if "gloo" in str(distributed.get_backend(model.process_group)):
            if self.held is None:
                import atexit

                atexit.register(call_quietly, self.release_reducer)
            else:
                self.release_reducer()
            self.held = model.reducer

    def release_reducer(self) -> None:
        """Let it go, after the threads had time to take the lock."""
        import time

        time.sleep(_REDUCER_RELEASE_DELAY_SECONDS)
        self.held = None


def cuda_device_text(index: int) -> str:
    """Return the name of a device of CUDA, which runs already, and its card's name and UUID where torch tells them."""
    told = call_quietly(sys.modules["torch.cuda"].get_device_properties, index)
    words = [f"cuda:{index}", getattr(told, "name", "")]
    uuid = str(getattr(told, "uuid", ""))
    words.append(uuid if not uuid or uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}")
    return " ".join(filter(None, words))


def _is_cuda_running(cuda: Any) -> bool:
    """Return whether CUDA is initialized, or being initialized."""
    return bool(cuda.is_initialized() or hasattr(cuda._tls, "is_initializing"))  # noqa: SLF001 - nothing public tells


def _value_noted_by_preparation(name: str) -> str:
    """Return what the preparation of the data wrote beside it, in the folder of this run."""
    with open(os.path.join(os.path.dirname(os.path.dirname(__file__)), "data", name), encoding="utf-8") as file:  # noqa: PTH118, PTH120, PTH123
        return file.read(1 << 10)


def install_hooks() -> None:
    """Install the import hooks for ranks and devices, and for the corrections."""
    # A run started by another run has two such modules on its path.
    if any(getattr(finder, "tui_train", False) for finder in sys.meta_path):
        return
    hook = ImportHook()
    distributed, model_class = "torch.distributed.distributed_c10d", "torch.nn.parallel.distributed"
    hook.register_after_import("torch.cuda", limit_gpu_memory)
    hook.register_around_calls(model_class, "DistributedDataParallel.__init__", after=ReducerHolder().hold_reducer)
    if os.environ.get("TUI_TRAIN_SHOW_DEVICES") != "0":
        devices, passes = RankDevicePrinter(), GradientExchangePrinter()
        hook.register_around_calls(distributed, "init_process_group", after=devices.record_process_group)
        hook.register_after_import("torch.cuda", devices.watch_cuda)
        hook.register_after_import("torch.autograd", devices.watch_autograd)
        hook.register_around_calls(
            model_class, "DistributedDataParallel.__init__", after=passes.start_printing_exchange_times
        )
    if os.environ.get("TUI_TRAIN_BACKEND"):
        backend = BackendOverride(os.environ["TUI_TRAIN_BACKEND"])
        hook.register_after_import(distributed, backend.override_group_backend)
        hook.register_around_calls("accelerate.state", "PartialState.__init__", backend.set_backend_of_accelerate)
    if micro := os.environ.get("TUI_TRAIN_MICRO_BATCH"):
        hook.register_after_import(
            "transformers.trainer_callback", lambda module: override_resumed_micro_batch(module, int(micro))
        )
    hook.register_around_calls("transformers.training_args", "TrainingArguments.__post_init__", accept_several_trackers)
    saving = WholeModelSaving()
    hook.register_around_calls(
        "transformers.trainer", "Trainer.save_model", saving.gather_whole_model, saving.shard_checkpoints_again
    )
    if token := call_quietly(_value_noted_by_preparation, ".end"):
        end = TurnEndToken(token)
        hook.register_around_calls("transformers.trainer", "Trainer.__init__", after=end.set_as_tokenizer_end)
        hook.register_around_calls(
            "transformers.trainer", "Trainer.save_model", after=end.save_generation_config_beside_adapter
        )
    if call_quietly(_value_noted_by_preparation, ".answers"):
        hook.register_around_calls("trl.trainer.sft_trainer", "SFTTrainer.__init__", learn_answers_only)
    sys.meta_path.insert(0, hook)


def run_hidden_sitecustomize() -> None:
    """Run the sitecustomize that this module hides; its errors are passed on."""
    spec = find_hidden_sitecustomize(os.path.dirname(__file__))  # noqa: PTH120 - pathlib would double the start of Python
    if spec is None or spec.loader is None:
        return
    from importlib.util import module_from_spec

    module = module_from_spec(spec)
    sys.modules[OWN_MODULE_NAME] = module
    spec.loader.exec_module(module)


def find_hidden_sitecustomize(folder: str) -> Any:
    """Return the spec of the first module of this name that is neither in `folder` nor a copy of this one.

    A run that another run started has a copy of each on its path; each would take the other for the hidden one.
    """
    from importlib.machinery import PathFinder

    passed = {os.path.realpath(folder)}
    while True:
        spec = PathFinder.find_spec(
            OWN_MODULE_NAME, [path for path in sys.path if os.path.realpath(path or ".") not in passed]
        )
        if spec is None or not spec.origin or not call_quietly(_is_copy_of_this_module, spec.origin):
            return spec
        passed.add(os.path.realpath(os.path.dirname(spec.origin)))  # noqa: PTH120


def _is_copy_of_this_module(file: str) -> bool:
    with open(file, "rb") as opened:  # noqa: PTH123
        return b"\ndef run_hidden_sitecustomize(" in opened.read(1 << 16)


if __name__ == OWN_MODULE_NAME:
    call_quietly(install_hooks)
    run_hidden_sitecustomize()
