"""Expressions for lines that say that the GPU's memory ran out, and where it did."""

from __future__ import annotations

# Where memory runs out, in words. The ladder has attempts for the phases; nothing on it helps at the very start.
TEXT_BY_MEMORY_PHASE = {
    "loss": "in the forward or backward pass",
    "step": "in the optimizer step",
    "load": "while the model was loaded",
    "eval": "in the evaluation",
    "start": "where the processes first meet",
}
FALLBACK_PHASES = tuple(phase for phase in TEXT_BY_MEMORY_PHASE if phase != "start")

# Failure by which the diagnosis names it, and a regular expression.
# Words alone are none: “CUDA out of memory” counts where an error begins with it, not where a hint speaks of it, nor
# where the program says with which smaller batch it continues.
OUT_OF_MEMORY_PATTERNS: tuple[tuple[str, str], ...] = (
    ("cuda_oom", r"(^|: )(CUDA|HIP|XPU) out of memory(?! with batch size \d+, trying)"),
    ("cuda_oom", r"(ERROR|FATAL|CRITICAL)[^a-z]{0,80} (CUDA|HIP|XPU) out of memory"),
    ("cuda_oom", r"(CUDA|HIP|XPU) out of memory\. Tried to allocate"),
    ("cuda_oom", r"(^|[^A-Za-z.]|torch\.|cuda\.|memory\.)OutOfMemoryError(: (?!out of resource)|$)"),
    ("cuda_oom", r"(CUDA|[Cc]uda) (runtime |driver )?error:? (2: )?(\(2\))? ?:? ?out of memory"),
    ("cuda_oom", r"THCudaCheck FAIL.*out of memory"),
    ("cuda_oom", r"Triton Error \[CUDA\]: out of memory"),
    ("cuda_oom", r"(CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation|hipErrorOutOfMemory)"),
    ("cuda_oom", r"cudaMalloc failed:? out of memory"),
    ("cuda_oom", r"RESOURCE_EXHAUSTED: (Out of memory|OOM)"),
    ("cuda_oom", r"ResourceExhaustedError.*OOM"),
    ("cuda_oom", r"Error: out of memory( at .*ops\.c|$)"),
    ("cuda_oom", r"cupy.*[Oo]ut of memory allocating"),
    ("cuda_oom", r"Failed to allocate [^ ]+ bytes .*on (GPU|device)"),
    ("cuda_oom", r"ran out of GPU memory"),
    # By accelerate, whose own search for a batch that fits hides what it met.
    ("cuda_oom", r"No executable batch size found, reached zero"),
    ("cublas_alloc", r"BLAS_STATUS_ALLOC_FAILED"),
    ("cudnn_alloc", r"CUDNN_STATUS_ALLOC_FAILED"),
    ("nccl_cuda_error", r"Cuda failure ([0-9]+ )?'out of memory'"),
)
