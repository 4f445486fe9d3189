"""Prints the device of each rank of a script; can change its backend, keep its micro batch, let it save and end.

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

    # Given the positional and the named arguments of a call; returns both, changed, or None to leave them as they are.
    Before = Callable[[tuple[Any, ...], dict[str, Any]], "tuple[tuple[Any, ...], dict[str, Any]] | None"]
    After = Callable[[tuple[Any, ...], dict[str, Any]], object]

NAME = "sitecustomize"
_DRAIN = 0.1  # seconds


def quietly(act: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of `act`, None if it fails: nothing in here may end a training."""
    try:
        return act(*arguments)
    except Exception:  # noqa: BLE001 - whatever it is, the training goes on without it
        return None


class Imports:
    """An import hook that calls a function after certain modules are executed."""

    tui_train = True

    def __init__(self, after: dict[str, Callable[[ModuleType], object]]) -> None:
        """Set the functions to call, by module name."""
        self.after = after

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Return the spec of a hooked module, None for all others."""
        return quietly(self._found, name, path, target) if name in self.after else None

    def _found(self, name: str, path: Any, target: Any) -> Any:
        others = [finder for finder in sys.meta_path if finder is not self]
        specs = (finder.find_spec(name, path, target) for finder in others)
        spec = next((spec for spec in specs if spec), None)
        if spec:
            quietly(self._act_after, spec.loader, self.after[name])
        return spec

    def _act_after(self, loader: Any, act: Callable[[ModuleType], object]) -> None:
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            del loader.exec_module
            execute(module)
            quietly(act, module)

        loader.exec_module = exec_module


class Calls:
    """Wrapped functions of modules, with code before or after each call."""

    def __init__(self) -> None:
        """Start without wrapped functions."""
        self.replaced: list[tuple[ModuleType, str, Any, Any]] = []

    def around(self, module: ModuleType, name: str, before: list[Before], after: list[After]) -> None:
        """Wrap a function of a module with the two lists of actions, before and after each call."""
        from functools import wraps

        original = getattr(module, name)

        @wraps(original)
        def call(*positional: Any, **named: Any) -> Any:
            for change in before:
                positional, named = quietly(change, positional, named) or (positional, named)
            result = original(*positional, **named)
            for act in after:
                quietly(act, positional, named)
            return result

        setattr(module, name, call)
        self.replaced.append((module, name, call, original))

    def put_back(self) -> None:
        """Restore the functions, except those replaced by others since."""
        for module, name, call, original in self.replaced:
            if getattr(module, name) is call:
                setattr(module, name, original)
        self.replaced.clear()


class Devices:
    """The rank and device of this process; prints its line once, when both are known."""

    def __init__(self) -> None:
        """Start without rank and device."""
        self.calls = Calls()
        self.group: tuple[int, int, str] | None = None
        self.card: int | None = None
        self.pid = 0
        self.device = "?"
        self.shown = False

    def on_cuda(self, module: Any) -> None:
        """Watch the start of CUDA, and the choice of a device."""
        module._lazy_call(lambda: quietly(self.cuda_starts))  # noqa: SLF001 - each release has it, and it costs nothing
        self.calls.around(module, "set_device", [], [self.card_is_chosen])

    def on_autograd(self, module: Any) -> None:
        """Watch the first gradients."""
        self.calls.around(module, "backward", [self.gradients], [])

    def joined(self, positional: tuple[Any, ...], named: dict[str, Any]) -> None:
        """Record the process group after it was joined."""
        del positional
        distributed = sys.modules["torch.distributed.distributed_c10d"]
        if self.group:
            return
        backend = str(distributed.get_backend())
        if backend == "undefined":
            backend = str(distributed.get_backend_config())
        self.group = (distributed.get_rank(), distributed.get_world_size(), backend)
        self.pid = os.getpid()
        device = named.get("device_id")
        if device is not None:
            self.card = device if isinstance(device, int) else device.index
        if self.shown:
            # It computed before it joined, and printed rank 0 of 1.
            self.shown = False
            self.show(self.device)
        quietly(self._settle)
        if not self.shown:
            import atexit

            atexit.register(quietly, self.at_exit)

    def cuda_starts(self) -> None:
        """Record the start of CUDA, when the first device is still current in every process."""
        if self.group or self._is_alone():
            self._settle()

    def card_is_chosen(self, positional: tuple[Any, ...], named: dict[str, Any]) -> None:
        """Record the device that the script chose."""
        del positional, named
        cuda = sys.modules["torch.cuda"]
        if cuda.is_initialized():
            self.card = cuda.current_device()
            if self.group or self._is_alone():
                self._settle()

    def gradients(self, positional: tuple[Any, ...], named: dict[str, Any]) -> None:
        """Print the device of the loss, the most reliable sign of where a training computes."""
        loss = positional[0] if positional else named["tensors"]
        device = (loss if hasattr(loss, "device") else next(iter(loss))).device
        self.show(card(device.index) if device.type == "cuda" else str(device))

    def at_exit(self) -> None:
        """Print a rank of a group without a known device, unless this is a fork of its process."""
        if self.pid == os.getpid() and not self.shown:
            self.show("?" if sys.modules["torch.cuda"].is_initialized() else "cpu")

    def show(self, device: str) -> None:
        """Print the line in one write, because ranks share a log, and restore the modules of the script."""
        if self.shown:
            return
        self.shown, self.device = True, device
        self.calls.put_back()
        rank, world, backend = self.group or (0, 1, "none")
        sys.stderr.write(f"rank {rank}/{world} | host {os.uname().nodename} | device {device} | backend {backend}\n")
        sys.stderr.flush()

    def _settle(self) -> None:
        """Print the line if the device is certain."""
        torch, cuda = sys.modules["torch"], sys.modules["torch.cuda"]
        versions = [getattr(torch.version, name, None) for name in ("cuda", "hip", "xpu")]
        if os.environ.get("CUDA_VISIBLE_DEVICES") == "" or not any(versions):
            self.show("cpu")
        elif self.card is not None and _runs(cuda):
            self.show(card(self.card))
        elif _runs(cuda) and cuda.device_count() == 1:
            self.show(card(0))
        elif cuda.is_initialized() and cuda.current_device():
            # The script chose it: the default is the first device.
            self.show(card(cuda.current_device()))

    @staticmethod
    def _is_alone() -> bool:
        """Return whether this process is alone, and not a helper of another one."""
        processes = sys.modules.get("multiprocessing.process")
        helps = processes is not None and processes.parent_process() is not None
        return os.environ.get("WORLD_SIZE", "1") in {"", "1"} and not helps


class Backend:
    """Makes every process group use the backend TUI_TRAIN_BACKEND, whatever the script requests."""

    def __init__(self, wanted: str) -> None:
        """Set the backend."""
        self.wanted = wanted
        self.calls = Calls()

    def on_distributed(self, module: Any) -> None:
        """Change the arguments of the functions that create groups."""
        for name in ("init_process_group", "new_group", "barrier"):
            if hasattr(module, name):
                self.calls.around(module, name, [self._change(getattr(module, name), name)], [])

    def on_accelerate(self, module: Any) -> None:
        """Have accelerate begin with it: by the backend's name it chooses which collectives it calls."""
        self.calls.around(module.PartialState, "__init__", [self._begin], [])

    def _begin(self, positional: tuple[Any, ...], named: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if self._is_ours(named.get("backend")):
            named = {**named, "backend": self.wanted}
        return positional, named

    @staticmethod
    def _is_ours(backend: Any) -> bool:
        return backend is None or "nccl" in str(backend).lower()

    def _change(self, function: Any, name: str) -> Before:
        from inspect import signature

        parameters = signature(function)

        def change(positional: tuple[Any, ...], named: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
            given = dict(parameters.bind_partial(*positional, **named).arguments)
            backend = given.get("backend")
            inherits = name == "new_group" and backend is None
            if name == "barrier":
                given.pop("device_ids", None)
            elif not inherits and self._is_ours(backend):
                given["backend"] = self.wanted
                # Options and device are for NCCL.
                given.pop("pg_options", None)
                given.pop("device_id", None)
            return (), given

        return change


class MicroBatch:
    """Has the Hugging Face Trainer resume with the micro batch that it is told: TUI_TRAIN_MICRO_BATCH names it.

    Older ones take the one that the checkpoint was written with, and multiply it with the new accumulation.
    """

    def __init__(self, wanted: int) -> None:
        """Set the micro batch."""
        self.wanted = wanted

    def on_callbacks(self, module: Any) -> None:
        """Replace the micro batch of a checkpoint."""
        load = module.TrainerState.load_from_json

        def load_from_json(*positional: Any, **named: Any) -> Any:
            state = load(*positional, **named)
            if state.train_batch_size is not None:
                state.train_batch_size = self.wanted
            return state

        module.TrainerState.load_from_json = staticmethod(load_from_json)


class WholeModel:
    """Has the Hugging Face Trainer save the model that a script asks it to save, also where FSDP shards it.

    Its checkpoints are sharded, as the configuration wants them; `save_model` by itself would then save nothing.
    """

    sharded: Any = None

    def on_trainer(self, module: Any) -> None:
        """Watch models being saved."""
        Calls().around(module.Trainer, "save_model", [self.gather], [self.go_on])

    def gather(self, positional: tuple[Any, ...], named: dict[str, Any]) -> None:
        """Have the ranks gather the whole model, unless it is for a checkpoint."""
        plugin = getattr(positional[0].accelerator.state, "fsdp_plugin", None)
        internal = named.get("_internal_call") or any(word is True for word in positional[2:])
        if plugin is not None and not internal and "SHARDED" in str(plugin.state_dict_type):
            self.sharded = plugin.state_dict_type
            plugin.set_state_dict_type("FULL_STATE_DICT")

    def go_on(self, positional: tuple[Any, ...], named: dict[str, Any]) -> None:
        """Have checkpoints sharded again."""
        del named
        if self.sharded is not None:
            positional[0].accelerator.state.fsdp_plugin.set_state_dict_type(self.sharded)
            self.sharded = None


class TurnEnd:
    """Has the Hugging Face Trainer end texts with the token that ends a turn in the chat template.

    The preparation of the data wrote it where the model would not stop there. Not all of TRL's trainers have an option
    for it, and an adapter is saved without the generation_config.json that names it.
    """

    def __init__(self, token: str) -> None:
        """Set the token."""
        self.token = token

    def on_trainer(self, module: Any) -> None:
        """Watch trainers being made, and models being saved."""
        Calls().around(module.Trainer, "__init__", [], [self.set])
        Calls().around(module.Trainer, "save_model", [], [self.save])

    def set(self, positional: tuple[Any, ...], named: dict[str, Any]) -> None:
        """Make it the end of the tokenizer, to which the trainer aligns the model."""
        del named
        trainer = positional[0]
        known = getattr(trainer.processing_class, "tokenizer", trainer.processing_class)
        if self.token in known.get_vocab():
            known.eos_token = self.token
            held = trainer.model.generation_config
            own = held.eos_token_id if isinstance(held.eos_token_id, list) else [held.eos_token_id]
            others = [number for number in own if number not in {None, known.eos_token_id}]
            held.eos_token_id = [known.eos_token_id, *others]

    def save(self, positional: tuple[Any, ...], named: dict[str, Any]) -> None:
        """Write beside an adapter how its model generates."""
        trainer = positional[0]
        folder = named.get("output_dir") or next(iter(positional[1:]), None) or trainer.args.output_dir
        if trainer.args.should_save and hasattr(trainer.model, "peft_config"):
            trainer.model.generation_config.save_pretrained(folder)


class Answers:
    """Has TRL learn the answers of chats alone, where the preparation found that the chat template marks them."""

    def on_trl(self, module: Any) -> None:
        """Watch trainers being made."""
        Calls().around(module.SFTTrainer, "__init__", [self.set], [])

    def set(self, positional: tuple[Any, ...], named: dict[str, Any]) -> None:
        """Set its option before the trainer reads it."""
        (named.get("args") or positional[2]).assistant_only_loss = True


class Reducer:
    """Holds the reducer of the newest model that several processes share, until the script has ended.

    torch frees it, and with it gloo, while it holds the lock of Python, and waits for gloo's threads. These may need it
    to free the tensors of the last gather: the training would not end (pytorch#56297, pytorch#190489).
    """

    def __init__(self) -> None:
        """Start without one."""
        self.held: Any = None

    def on_parallel(self, module: Any) -> None:
        """Watch models being wrapped."""
        Calls().around(module.DistributedDataParallel, "__init__", [], [self.hold])

    def hold(self, positional: tuple[Any, ...], named: dict[str, Any]) -> None:
        """Hold that of a model which communicates over gloo."""
        del named
        model, distributed = positional[0], sys.modules["torch.distributed.distributed_c10d"]
        if "gloo" in str(distributed.get_backend(model.process_group)):
            if self.held is None:
                import atexit

                atexit.register(quietly, self.release)
            else:
                self.release()
            self.held = model.reducer

    def release(self) -> None:
        """Let it go, after the threads had time to take the lock."""
        import time

        time.sleep(_DRAIN)
        self.held = None


def card(index: int) -> str:
    """Return the name of a device of CUDA, which runs already, and its card's name and UUID where torch tells them."""
    told = quietly(sys.modules["torch.cuda"].get_device_properties, index)
    words = [f"cuda:{index}", getattr(told, "name", "")]
    uuid = str(getattr(told, "uuid", ""))
    words.append(uuid if not uuid or uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}")
    return " ".join(filter(None, words))


def _runs(cuda: Any) -> bool:
    """Return whether CUDA is initialized, or being initialized."""
    return bool(cuda.is_initialized() or hasattr(cuda._tls, "is_initializing"))  # noqa: SLF001 - nothing public tells


def _noted(name: str) -> str:
    """Return what the preparation of the data wrote beside it, in the folder of this run."""
    with open(os.path.join(os.path.dirname(os.path.dirname(__file__)), "data", name), encoding="utf-8") as file:  # noqa: PTH118, PTH120, PTH123
        return file.read(1 << 10)


def install() -> None:
    """Install the import hooks for ranks and devices, and for the corrections."""
    # A run started by another run has two such modules on its path.
    if any(getattr(finder, "tui_train", False) for finder in sys.meta_path):
        return
    waits: dict[str, Callable[[ModuleType], object]] = {}
    distributed: list[Callable[[ModuleType], object]] = []
    if os.environ.get("TUI_TRAIN_SHOW_DEVICES") != "0":
        devices = Devices()
        distributed.append(lambda module: Calls().around(module, "init_process_group", [], [devices.joined]))
        waits["torch.cuda"] = devices.on_cuda
        waits["torch.autograd"] = devices.on_autograd
    if os.environ.get("TUI_TRAIN_BACKEND"):
        backend = Backend(os.environ["TUI_TRAIN_BACKEND"])
        distributed.append(backend.on_distributed)
        waits["accelerate.state"] = backend.on_accelerate
    if micro := os.environ.get("TUI_TRAIN_MICRO_BATCH"):
        waits["transformers.trainer_callback"] = MicroBatch(int(micro)).on_callbacks
    waits["torch.nn.parallel.distributed"] = Reducer().on_parallel
    trainer = [WholeModel().on_trainer]
    if end := quietly(_noted, ".end"):
        trainer.append(TurnEnd(end).on_trainer)
    if quietly(_noted, ".answers"):
        waits["trl.trainer.sft_trainer"] = Answers().on_trl
    waits["transformers.trainer"] = lambda module: [quietly(act, module) for act in trainer]
    if distributed:
        waits["torch.distributed.distributed_c10d"] = lambda module: [quietly(act, module) for act in distributed]
    sys.meta_path.insert(0, Imports(waits))


def run_the_hidden_one() -> None:
    """Run the sitecustomize that this module hides; its errors are passed on."""
    spec = hidden(os.path.dirname(__file__))  # noqa: PTH120 - pathlib would double the start of Python
    if spec is None or spec.loader is None:
        return
    from importlib.util import module_from_spec

    module = module_from_spec(spec)
    sys.modules[NAME] = module
    spec.loader.exec_module(module)


def hidden(folder: str) -> Any:
    """Return the spec of the first module of this name that is neither in `folder` nor a copy of this one.

    A run that another run started has a copy of each on its path; each would take the other for the hidden one.
    """
    from importlib.machinery import PathFinder

    passed = {os.path.realpath(folder)}
    while True:
        spec = PathFinder.find_spec(NAME, [path for path in sys.path if os.path.realpath(path or ".") not in passed])
        if spec is None or not spec.origin or not quietly(_is_a_copy, spec.origin):
            return spec
        passed.add(os.path.realpath(os.path.dirname(spec.origin)))  # noqa: PTH120


def _is_a_copy(file: str) -> bool:
    with open(file, "rb") as opened:  # noqa: PTH123
        return b"\ndef run_the_hidden_one(" in opened.read(1 << 16)


if __name__ == NAME:
    quietly(install)
    run_the_hidden_one()
