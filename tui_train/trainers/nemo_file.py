"""The file by which NeMo is configured, as data."""

from msgspec import Struct

from tui_train.base.command import Plain


class NemoFile(Struct, frozen=True, kw_only=True):
    """The file by which NeMo is told the training, as data; None leaves a value to the recipe.

    `path` tells for which NeMo it is written. `model` is a folder of weights to begin with, `validation` whether there
    is data for it; an empty `data` is mock data. `without` names settings of the model that need libraries which
    are not there, `more` are settings that the user named.
    """

    path: str
    recipe: str
    task: str
    peft: str
    data: tuple[str, ...]
    validation: bool
    tokenizer: str
    model: str
    gpus: int
    nodes: int
    tensor_parallel: int
    pipeline_parallel: int
    context_parallel: int
    layers: int | None
    hidden_size: int | None
    heads: int | None
    sequence_length: int | None
    micro_batch: int | None
    global_batch: int | None
    learning_rate: float | None
    precision: str | None
    steps: int | None
    checkpoint_every: int | None
    seed: int | None
    validation_data: tuple[str, ...] = ()
    test_data: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    more: tuple[tuple[str, Plain], ...] = ()
