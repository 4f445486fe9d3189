"""Common parts of the files for NeMo and Megatron-Bridge: their arguments, and the lines on the model."""

from tui_train.trainers.nemo import NemoFile


def argument_reader_code(file: NemoFile) -> str:
    """Return the function that reads what the attempts change."""
    layers = f'    parser.add_argument("--layers", type=int, default={file.layers})\n' if file.layers else ""
    return f"""def read_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", default=str(HERE / "output"))
    parser.add_argument("--micro-batch", type=int, default={file.micro_batch})
    parser.add_argument("--sequence-length", type=int, default={file.sequence_length})
    parser.add_argument("--activation-checkpointing", action="store_true")
{layers}    return parser.parse_args()
"""


def model_size_lines(file: NemoFile, model_expression: str) -> list[str]:
    """Return the lines that set the chosen size on a model, given as an expression; none where all is the recipe's."""
    lines = []
    if file.layers:
        lines.append(f"    {model_expression}.num_layers = arguments.layers")
    if file.hidden_size and file.heads:
        lines += [
            f"    {model_expression}.hidden_size = {file.hidden_size}",
            "    # Each head has its own keys and values.",
            f"    {model_expression}.num_attention_heads = {file.heads}",
            f"    {model_expression}.num_query_groups = {file.heads}",
            f"    {model_expression}.kv_channels = {file.hidden_size // file.heads}",
        ]
    if ffn := file.ffn_hidden_size or (4 * file.hidden_size if file.hidden_size and file.heads else None):
        lines.append(f"    {model_expression}.ffn_hidden_size = {ffn}")
    return ["", "    # Your model size instead of the recipe's.", *lines] if lines else []


def model_split_lines(file: NemoFile, variable: str, owner_expression: str) -> list[str]:
    """Return the lines that set the chosen split on the owner, called `variable`; none where all is the recipe's."""
    chosen = {
        "tensor_model_parallel_size": file.tensor_parallel,
        "pipeline_model_parallel_size": file.pipeline_parallel,
        "context_parallel_size": file.context_parallel,
    }
    lines = [f"    {variable}.{field} = {size}" for field, size in chosen.items() if size]
    if not lines:
        return []
    lines = ["", "    # Your split over GPUs instead of the recipe's.", f"    {variable} = {owner_expression}", *lines]
    if file.tensor_parallel:
        lines.append(f"    {variable}.sequence_parallel = {file.tensor_parallel > 1}")
    if file.pipeline_parallel:
        lines += [
            "    # Equal layers per pipeline stage: the recipe's distribution is for its own number of stages.",
            f"    {variable}.virtual_pipeline_model_parallel_size = None",
        ]
    return lines


def length_and_recomputing_lines(model: str, data: str) -> list[str]:
    """Return the lines that pass the length of the data on to the model, and recompute activations where asked to."""
    return [
        "    # The model has its own sequence length.",
        f"    {model}.seq_length = {data}.seq_length",
        "    if arguments.activation_checkpointing:",
        f'        {model}.recompute_granularity = "full"',
        f'        {model}.recompute_method = "uniform"',
        f"        {model}.recompute_num_layers = 1",
    ]
