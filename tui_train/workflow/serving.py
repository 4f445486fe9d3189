"""The commands that serve a result, quoted for a shell; where one cannot, why not."""

from pathlib import Path

from msgspec import Struct

from tui_train.render.quoting import quoted
from tui_train.runs.result import Result

# The ranks that vLLM takes for --max-lora-rank, and its default.
_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
_DEFAULT_RANK = 16


class Served(Struct, frozen=True):
    """A server and the command that starts it; without a command, `why` says what to do first."""

    server: str
    command: str = ""
    why: str = ""


def servers(found: Result) -> tuple[Served, ...]:
    """Return how a result is served by vLLM and by transformers; none where there is nothing to serve."""
    weights = found.weights
    if weights is None or weights.problem or weights.scores:
        return ()
    if weights.kind == "model":
        return tuple(Served(name, command(name, "serve", weights.path)) for name in ("vllm", "transformers"))
    first = "merge the adapter first"
    return (_vllm(found, first), Served("transformers", why=first))


def command(*words: str) -> str:
    """Return words as one command."""
    return " ".join(map(quoted, words))


def _vllm(found: Result, first: str) -> Served:
    weights = found.weights
    if weights is None or weights.method != "LORA" or not weights.plain or not found.base or weights.rank > _RANKS[-1]:
        return Served("vllm", why=first)
    at = ["--revision", found.revision] if found.revision else []
    words = ["vllm", "serve", found.base, *at, "--enable-lora", "--lora-modules", f"{_name(found)}={weights.path}"]
    if weights.rank > _DEFAULT_RANK:
        words += ["--max-lora-rank", str(next(rank for rank in _RANKS if rank >= weights.rank))]
    if (Path(weights.path) / "generation_config.json").is_file():
        # The base's own may name another end than the adapter was trained with.
        words += ["--generation-config", weights.path]
    return Served("vllm", command(*words))


def _name(found: Result) -> str:
    """Return the name under which clients ask for an adapter: the run's, without what separates name and path."""
    return Path(found.run).name.replace("=", "-")
