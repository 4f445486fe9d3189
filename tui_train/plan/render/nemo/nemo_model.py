"""The lines that size a model and split it over GPUs, which the files for NeMo and for Megatron-Bridge share."""

from tui_train.trainers.nemo_file import NemoFile


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
