"""The commands that serve a result, quoted for a shell; where one cannot, why not."""

from pathlib import Path

from msgspec import Struct

from tui_train.plan.render.quoting import quoted_word
from tui_train.runs.results.result import RunResult
from tui_train.runs.results.weights import Weights

# The ranks that vLLM takes for --max-lora-rank, and its default.
_VLLM_MAX_LORA_RANK_CHOICES = (8, 16, 32, 64, 128, 256, 320, 512)
_VLLM_DEFAULT_MAX_LORA_RANK = 16


class ServeCommand(Struct, frozen=True):
    """A server and the command that starts it; without a command, `why` says what to do first."""

    server: str
    command: str = ""
    why: str = ""


def serve_commands(run_result: RunResult) -> tuple[ServeCommand, ...]:
    """Return how a result is served by vLLM and by transformers; none where there is nothing to serve."""
    weights = run_result.weights
    if weights is None or weights.problem or weights.scores:
        return ()
    if weights.kind == "model":
        return tuple(
            ServeCommand(name, shell_command(name, "serve", weights.path)) for name in ("vllm", "transformers")
        )
    by_transformers = ServeCommand("transformers", why="load it with peft, or merge it first")
    return (_vllm_adapter_command(run_result, weights), by_transformers)


def shell_command(*words: str) -> str:
    """Return words as one command."""
    return " ".join(map(quoted_word, words))


def _vllm_adapter_command(run_result: RunResult, weights: Weights) -> ServeCommand:
    if (
        weights.method != "LORA"
        or not weights.plain
        or not run_result.base
        or weights.rank > _VLLM_MAX_LORA_RANK_CHOICES[-1]
    ):
        return ServeCommand("vllm", why="merge the adapter first")
    revision = ["--revision", run_result.revision] if run_result.revision else []
    # The name under which clients ask for it: the run's, without what separates name and path.
    name = Path(run_result.run).name.replace("=", "-")
    words = ["vllm", "serve", run_result.base, *revision, "--enable-lora", "--lora-modules", f"{name}={weights.path}"]
    if weights.rank > _VLLM_DEFAULT_MAX_LORA_RANK:
        words += ["--max-lora-rank", str(next(rank for rank in _VLLM_MAX_LORA_RANK_CHOICES if rank >= weights.rank))]
    if (Path(weights.path) / "generation_config.json").is_file():
        # The base's own may name another end than the adapter was trained with.
        words += ["--generation-config", weights.path]
    return ServeCommand("vllm", shell_command(*words))
