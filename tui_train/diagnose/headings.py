"""What a failure is called on screen: its class in plain words."""

# Those whose class, with blanks for underscores, is no phrase that a user would know.
HEADING_BY_FAILURE = {
    "abort": "crashed in native code",
    "api_mismatch": "script for another library version",
    "bad_data": "malformed data",
    "batch_config": "batch sizes do not fit",
    "chat_roles": "chat refused by the template",
    "collate_shape": "examples that form no batch",
    "config_invalid": "invalid setting",
    "hub_network": "download failed",
    "import_mismatch": "incompatible libraries",
    "launcher_arg_mismatch": "needs torchrun",
    "lora_target_modules": "LoRA targets not in the model",
    "nan_loss": "NaN loss",
    "not_distributed_silent": "processes trained separately",
    "resume_ignored": "checkpoint not loaded",
    "segfault": "crashed in native code",
    "sighup": "terminal closed",
    "sigkill": "killed by signal 9",
    "sigterm": "ended by SIGTERM",
    "user_args": "wrong arguments",
    "user_exception": "error in the script",
}


def failure_heading(failure: str) -> str:
    """Return a class of failures in words."""
    return HEADING_BY_FAILURE.get(failure, failure.replace("_", " "))
