"""Checks an image before a training: what its Python has, and whether the chosen cards are visible inside."""

from msgspec import Struct

from tui_train.base.text import size_text, visible
from tui_train.facts.machine import container_images
from tui_train.facts.machine.child_process import ChildResult
from tui_train.facts.types import ContainerImage, Toolchain
from tui_train.places.host_questions import make_command_runner
from tui_train.setup.machine.container import card_options

_MAX_ANSWER_SECONDS = 60.0
_NEMO_PACKAGE = "nemo_toolkit"
_BRIDGE_PACKAGE = "megatron-bridge"
# Where NeMo and Megatron-Bridge keep their recipes: found without importing them, which takes a minute.
_FIND_RECIPE_SCRIPT = """
import importlib.util, pathlib, re, sys
def below(package, folder):
    found = importlib.util.find_spec(package)
    return [pathlib.Path(place, folder) for place in found.submodule_search_locations] if found else []
there = any((folder / (sys.argv[1] + ".py")).is_file() for folder in below("nemo", "collections/llm/recipes"))
named = re.compile(r"\\b" + re.escape(sys.argv[1]) + r"_(pretrain|sft|peft)_config\\b")
for folder in below("megatron", "bridge/recipes"):
    files = (file for file in folder.rglob("*.py") if file.is_file() and file.stat().st_size < 1 << 22)
    there = there or any(named.search(file.read_text("utf-8", "replace")) for file in files)
print("there" if there else "missing")
"""


class ImageCheckResult(Struct, frozen=True, kw_only=True):
    """Content of an image; `cards` are nvidia-smi's lines inside, `wrong` the reasons why it cannot train."""

    image: ContainerImage
    cards: tuple[str, ...] = ()
    recipe: str = ""
    wrong: tuple[str, ...] = ()


def check_image(
    engine: str, image_name: str, gpus: tuple[str, ...] = (), recipe: str = "", host: str = ""
) -> ImageCheckResult:
    """Return what an image of an engine contains, and whether cards (UUIDs) and a NeMo recipe are visible inside.

    It is looked at on `host`, empty for this machine. Takes up to minutes, so never on a screen's thread.
    """
    run = make_command_runner(host)
    image = container_images.probe_image(engine, image_name, run)
    if image.missing:
        fetch = "" if engine == "apptainer" else f": {engine} pull {image_name}"
        return ImageCheckResult(image=image, wrong=(f"the image is not on {host or 'this machine'}{fetch}",))
    if image.toolchain is None:
        return ImageCheckResult(image=image, wrong=(image.problem or "its Python could not be read",))
    wrong = [] if image.toolchain.torch else ["the image has no torch"]
    cards: tuple[str, ...] = ()
    if gpus:
        words = ("nvidia-smi", "-L")
        answer = container_images.run_in_image(
            engine, image_name, words, _MAX_ANSWER_SECONDS, card_options(engine, gpus), run=run
        )
        cards = _child_output_lines(answer)
        unseen = [uuid for uuid in gpus if not any(uuid in card for card in cards)]
        if answer.exit_code != 0:
            wrong.append(f"nvidia-smi does not answer inside: {answer.why_unusable()}")
        elif unseen:
            wrong.append(f"GPUs not visible inside: {', '.join(unseen)}")
    location = ""
    if recipe:
        answer = container_images.run_in_image(
            engine, image_name, ("python", "-c", _FIND_RECIPE_SCRIPT, recipe), _MAX_ANSWER_SECONDS, run=run
        )
        location = (_child_output_lines(answer) or ("missing",))[-1]
        if location != "there":
            wrong.append(f"the image does not have NeMo's recipe {recipe}")
    return ImageCheckResult(image=image, cards=cards, recipe=recipe if location == "there" else "", wrong=tuple(wrong))


def image_check_text(validation: ImageCheckResult) -> str:
    """Return a validation as lines for people, safe to show."""
    image, tool = validation.image, validation.image.toolchain
    lines = [f"{image.name}, by {image.engine}", *([f"id      {image.id[:19]}"] if image.id else [])]
    lines += [f"size    {size_text(image.size)}"] if image.size else []
    lines += [f"for     {image.architecture}"] if image.architecture else []
    lines += _toolchain_version_lines(tool) if tool else []
    lines += [f"recipe  {validation.recipe}"] if validation.recipe else []
    lines += [f"sees    {card}" for card in validation.cards]
    lines += [f"! {problem}" for problem in validation.wrong] or ["It can train."]
    return "\n".join(map(visible, lines))


def _toolchain_version_lines(tool: Toolchain) -> list[str]:
    cuda = f", CUDA {tool.cuda} for {' '.join(tool.arch_list)}" if tool.cuda else ""
    versions = {"Python": tool.version, "torch": f"{tool.torch}{cuda}" if tool.torch else "none"}
    versions |= {"NeMo": tool.packages.get(_NEMO_PACKAGE, ""), "Bridge": tool.packages.get(_BRIDGE_PACKAGE, "")}
    versions |= {"accelerate": tool.accelerate or "", "transformers": tool.transformers or ""}
    return [f"{name:<7} {version}" for name, version in versions.items() if version]


def _child_output_lines(answer: ChildResult) -> tuple[str, ...]:
    return tuple(filter(None, (line.strip() for line in answer.stdout.decode("utf-8", "replace").splitlines())))
