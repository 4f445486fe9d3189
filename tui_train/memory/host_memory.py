"""The host memory that a training on GPUs needs, by its model and its settings; pure."""

from msgspec import Struct
from msgspec.structs import replace

from tui_train.memory.estimate import estimate_memory
from tui_train.memory.predict import predict_memory
from tui_train.memory.trainer_conventions import DTYPE_BY_NAME
from tui_train.memory.types import BYTES_BY_DTYPE, MemoryEstimate
from tui_train.setup.setup import Setup
from tui_train.trainers import trainer_of

_OFFLOADED_PARTS = frozenset({"weights", "gradients", "optimizer states"})


class HostMemoryPerProcess(Struct, frozen=True, kw_only=True):
    """The bytes that each process has in the host's memory: while the model is loaded, and for what is offloaded."""

    loaded_bytes: int
    offloaded_bytes: int
    relative_error: float
    """The relative error of both."""


def host_memory_per_process(setup: Setup) -> HostMemoryPerProcess | None:
    """Return what a process on a GPU has in the host's memory; None where its model is not known."""
    prediction = predict_memory(setup)
    model, how = prediction.workload.model, prediction.workload.settings
    if prediction.estimate is None or model is None or how is None or setup.device != "cuda":
        return None
    # TRL loads on the CPU where there are several processes. Weights of the files' own type stay in the files, mapped
    # (transformers 5.23: 94 MiB of 381); of another type they are copied (856 MiB of 762). FSDP loads them once.
    file_dtype = DTYPE_BY_NAME.get(model.dtype)
    is_weight_copy_needed = (
        trainer_of(setup.effective_profile).library_preset_name() == "trl"
        and how.sharding in {"ddp", "zero1", "zero2"}
        and not how.quantization
        and file_dtype not in {None, how.weight_dtype}
    )
    on_cards = estimate_memory(model, replace(how, offload=False)) if how.offload else prediction.estimate
    return HostMemoryPerProcess(
        loaded_bytes=model.parameters * BYTES_BY_DTYPE[how.weight_dtype] if is_weight_copy_needed else 0,
        offloaded_bytes=_offloadable_bytes_on_gpu(on_cards) - _offloadable_bytes_on_gpu(prediction.estimate),
        relative_error=prediction.estimate.relative_error,
    )


def _offloadable_bytes_on_gpu(estimate: MemoryEstimate) -> int:
    """Return the bytes on a GPU, in the optimizer's step, of what can be offloaded."""
    step = next(phase for phase in estimate.phases if phase.name == "optimizer step")
    return sum(size for part, size in step.parts if part in _OFFLOADED_PARTS)
