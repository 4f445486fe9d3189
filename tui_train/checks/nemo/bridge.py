"""Checks of Megatron-Bridge in place of NeMo: what that means, and the weights that it starts from."""

from collections.abc import Iterator

from tui_train.base.text import visible
from tui_train.base.versions import at_least
from tui_train.checks.finding import Finding, error, note
from tui_train.setup.setup import Setup

# The first version that reads Hugging Face weights directly.
_READS_HF = "0.6"


def replaces_nemo(setup: Setup) -> Iterator[Finding]:
    """Megatron-Bridge in place of NeMo's recipes, and a checkpoint that it can start from."""
    profile = setup.profile
    if setup.nemo_flavour != "bridge" or setup.toolchain is None:
        return
    packages = setup.toolchain.packages
    version, toolkit = packages["megatron-bridge"], packages.get("nemo_toolkit")
    why = f"nemo_toolkit {toolkit} has no recipes any more" if toolkit else "this Python has no nemo_toolkit"
    yield note(
        "trainer.kind",
        f"{why}: Megatron-Bridge {version} trains its recipe of that name instead",
        "It reads the model's config.json from huggingface.co, or from the cache in HF_HOME if it is there.",
    )
    model = profile.trainer.model
    convert = 'python -c \'from megatron.bridge import AutoBridge; AutoBridge.import_ckpt("HF", "FOLDER")\''
    if profile.nemo.task == "finetune" and not model:
        yield error(
            "trainer.model",
            "no model is named: a finetune by Megatron-Bridge starts from a checkpoint",
            f"Name its folder (trainer.model). From Hugging Face: {convert}.",
        )
    elif model and not at_least(version, _READS_HF) and setup.facts.paths.get(f"{model}/config.json") == "file":
        yield error(
            "trainer.model",
            f"{visible(model)} is a Hugging Face folder: Megatron-Bridge {version} needs it converted",
            f"{convert}, and name FOLDER (trainer.model).",
        )
