"""NemoFile: the content of the file that configures NeMo, as data."""

from msgspec import Struct

from tui_train.base.command import PlainData


class NemoFile(Struct, frozen=True, kw_only=True):
    """The training that the file describes; None leaves a value to the recipe."""

    path: str
    """Its name, which depends on the flavour of NeMo."""
    recipe: str
    task: str
    peft: str
    data: tuple[str, ...]
    """Empty: mock data."""
    validation: bool
    """There is validation data."""
    tokenizer: str
    model: str
    """A folder of initial weights."""
    gpus: int
    nodes: int
    tensor_parallel: int | None
    pipeline_parallel: int | None
    context_parallel: int | None
    layers: int | None
    hidden_size: int | None
    ffn_hidden_size: int | None
    heads: int | None
    sequence_length: int | None
    micro_batch: int | None
    global_batch: int | None
    learning_rate: float | None
    precision: str | None
    steps: int | None
    warmup: float | None
    checkpoint_every: int | None
    seed: int | None
    validation_data: tuple[str, ...] = ()
    test_data: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    """Model settings to turn off because their libraries are missing."""
    more: tuple[tuple[str, PlainData], ...] = ()
    """Settings of the user."""
