"""Checks of images in the data of a fine-tuning, and of the options for models that see."""

import shlex
from collections.abc import Iterator

from tui_train.base.text import quantity
from tui_train.checks.finding import EnvironmentInstall, Finding, error, warning
from tui_train.facts.machine.torch_builds import torchvision_install_words
from tui_train.facts.types import Toolchain
from tui_train.profile.changes import Change
from tui_train.setup.recipe import data_questions
from tui_train.setup.setup import Setup

_PACKAGE_SET_WITH_TORCHVISION = "hf-images"
_NAME_PARTS_OF_VISION_LAYERS = ("vision", "visual", "language_model")


def images_that_cannot_be_trained_on(setup: Setup) -> Iterator[Finding]:
    """Images for a model that reads text only, or a processor or pictures that the training Python cannot read."""
    report = data_questions.data_report_at_length_in_force(setup)
    images, named = report.images if report else None, setup.profile.trainer.model
    if report and report.processor:
        message = f"TRL loads the processor of {named} for text too: {report.processor}"
        yield _torchvision_finding(setup, message)
    if images is None:
        return
    if images.text_only:
        yield error(
            "trainer.model",
            f"{quantity(images.rows, 'row has', 'rows have')} images, and {named} reads text only",
            "Choose one that reads images: Qwen/Qwen2.5-VL-3B-Instruct (trainer.model), or data without images.",
        )
    elif images.problem:
        message = f"the images cannot be read as {named} reads them: {images.problem}"
        if images.needs_torchvision:
            yield _torchvision_finding(setup, message)
        else:
            yield error("trainer.python", message, "Choose another Python (trainer.python), or model (trainer.model).")
    if not images.checked:
        yield error(
            "trainer.python",
            "the images cannot be read: this Python has no Pillow",
            "Install it there (`pip install pillow`), or choose another Python (trainer.python).",
        )


def _torchvision_finding(setup: Setup, message: str) -> Finding:
    new = EnvironmentInstall(_PACKAGE_SET_WITH_TORCHVISION, "make a Python with torchvision")
    install = new if setup.facts.can_create_environment else None
    return error("trainer.python", message, _torchvision_remedy(setup.toolchain), install=install)


def _torchvision_remedy(toolchain: Toolchain | None) -> str:
    """Return the command that installs the torchvision for the torch of a Python, or makes a Python with both."""
    new = f"tui-train env create {_PACKAGE_SET_WITH_TORCHVISION} makes a Python with it (3 GB, with CUDA 8 GB)"
    words = torchvision_install_words(toolchain.torch or "") if toolchain else ()
    if not toolchain or not words:
        return f"{new}."
    pip: tuple[str, ...] = (toolchain.python, "-m", "pip", "install")
    if toolchain.modules and "pip" not in toolchain.modules:
        pip = ("uv", "pip", "install", "--python", toolchain.python)
    return f"Install it there (25 MB): {shlex.join((*pip, *words))}. Or: {new}."


def packed_images(setup: Setup) -> Iterator[Finding]:
    """Packing of rows with images, which TRL refuses."""
    report = data_questions.data_report_at_length_in_force(setup)
    if setup.profile.finetune.packing and report and report.images and report.images.rows:
        yield error(
            "finetune.packing",
            "the data has images, which TRL does not pack",
            "Leave packing off (finetune.packing=false).",
            change=Change("no packing", "TRL does not pack images", (("finetune.packing", False),)),
        )


def vision_options_without_effect(setup: Setup) -> Iterator[Finding]:
    """A frozen vision tower that TRL's options cannot give, or limits of images that the data does not have."""
    profile = setup.profile
    chosen = profile.finetune
    thaw = Change("train it too", "no option freezes it", (("finetune.freeze_vision", False),))
    if chosen.freeze_vision and chosen.tuning == "full":
        yield error(
            "finetune.freeze_vision",
            "TRL trains all weights of a full fine-tuning: no option of it freezes the vision tower",
            "Choose LoRA (finetune.tuning=lora), or train the tower as well (finetune.freeze_vision=false).",
            change=thaw,
        )
    elif chosen.freeze_vision and chosen.targets:
        yield error(
            "finetune.freeze_vision",
            "layers are named for LoRA (finetune.targets), so that those of the vision tower cannot be left out",
            "Leave finetune.targets empty, or finetune.freeze_vision off.",
            change=Change("no targets", "all of the language part", (("finetune.targets", ()),)),
        )
    elif chosen.freeze_vision and has_no_vision_tower(setup):
        yield error(
            "finetune.freeze_vision",
            f"{profile.trainer.model} reads no images: there is no vision part to freeze",
            "Leave finetune.freeze_vision off, or choose a model that sees (trainer.model).",
            change=thaw,
        )
    report = data_questions.data_report_at_length_in_force(setup)
    if profile.data.max_pixels and report and report.usable and report.images is None:
        yield warning(
            "data.max_pixels",
            "Image pixels is set, but the data has no images",
            "Leave data.max_pixels out.",
            change=Change("no limit", "there are no images", (("data.max_pixels", None),)),
        )


def has_no_vision_tower(setup: Setup) -> bool:
    """Return whether the model is known to read no images."""
    model = setup.facts.models.get(setup.profile.trainer.model)
    paths = model.layer_paths if model else ()
    return bool(paths) and not any(part in path for path in paths for part in _NAME_PARTS_OF_VISION_LAYERS)
