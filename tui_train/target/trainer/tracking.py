"""TensorBoard and Weights & Biases: what the first rank reports to, where that was asked for."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from arguments import BadInput, Options

_RUN = ".wandb-run"  # in the output folder: which run at W&B a resumed training continues


def check(options: Options) -> None:
    """Raise BadInput where what is asked for is not installed."""
    for name in ("tensorboard", "wandb"):
        if getattr(options, name) and find_spec(name) is None:
            raise BadInput(f"--{name}: this Python has no {name}", f"Install it (pip install {name}), or leave it out.")


class Tracker:
    """Reports numbers by step; without a logger it does nothing."""

    def __init__(self) -> None:
        """Begin without a logger."""
        self.writer: Any = None
        self.run: Any = None

    def begin(self, options: Options, step: int, settings: dict[str, Any]) -> None:
        """Open the loggers at a step; what was written after it, before a resume, counts no longer."""
        if options.tensorboard:
            from torch.utils.tensorboard import SummaryWriter

            self.writer = SummaryWriter(str(options.output / "tensorboard"), purge_step=step + 1)
        if options.wandb:
            import wandb

            kept = options.output / _RUN
            name = _known(kept) if step else ""
            # A resumed run continues its own curve.
            self.run = wandb.init(config=settings, id=name or None, resume="allow" if name else None)
            kept.write_text(str(self.run.id), encoding="utf-8")

    def log(self, step: int, numbers: dict[str, float]) -> None:
        """Report the numbers of a step."""
        if self.writer is not None:
            for name, value in numbers.items():
                self.writer.add_scalar(f"train/{name}", value, step)
        if self.run is not None:
            self.run.log({f"train/{name}": value for name, value in numbers.items()}, step=step)

    def end(self, code: int) -> None:
        """Write what is still held back."""
        if self.writer is not None:
            self.writer.close()
        if self.run is not None:
            self.run.finish(exit_code=code)


def _known(kept: Path) -> str:
    try:
        return kept.read_text(encoding="utf-8").strip()
    except OSError:
        return ""
