"""Checks of kernels: libraries that a choice needs, and packing that keeps samples apart."""

from collections.abc import Iterator

from tui_train.base.text import display_path
from tui_train.checks.finding import Finding, error, warning
from tui_train.profile import fields
from tui_train.profile.changes import Change
from tui_train.setup.blocked_fallbacks import NEEDED_LIBRARY_BY_FALLBACK
from tui_train.setup.recipe import options
from tui_train.setup.recipe.options import UserOption
from tui_train.setup.setup import Setup

_SWITCHES_NEEDING_LIBRARY = ("fused_cross_entropy", "optimizer_8bit")


def libraries_missing_for_choices(setup: Setup) -> Iterator[Finding]:
    """Kernels that are chosen, and whose library the Python that trains does not have."""
    tool = setup.toolchain
    for name in _SWITCHES_NEEDING_LIBRARY if tool else ():
        key, library = f"recipe.{name}", NEEDED_LIBRARY_BY_FALLBACK[name]
        chosen = getattr(setup.profile.recipe, name) and name in setup.ladder_context.accepted_placeholders
        if not tool or not chosen or library in tool.packages:
            continue
        label = fields.get_field(key).label
        yield error(
            key,
            f"{label.lower()} needs {library}, which {display_path(tool.python)} lacks",
            f"Install it there (`{display_path(tool.python)} -m pip install {library}`), or leave it off ({key}).",
            change=Change(f"no {label.lower()}", "it is not installed", ((key, False),)),
        )


def samples_not_kept_apart(setup: Setup) -> Iterator[Finding]:
    """Packing by which samples see each other, and sequences without padding whose length nobody keeps."""
    chosen, words = setup.profile.finetune, setup.profile.trainer.arguments
    given = {each.option: each for each in options.given_options(words)} if chosen.method == "sft" else {}
    strategy, padding_free = given.get("packing_strategy"), given.get("padding_free")
    if chosen.packing and strategy and strategy.value == "wrapped":
        yield warning(
            "trainer.arguments",
            "wrapped packing cuts samples anywhere, and each sees those before it in its sequence",
            "Leave it out: by TRL's own (bfd) samples are whole, and each sees itself alone.",
            change=_leave_out_option_change(setup, strategy),
        )
    if padding_free and padding_free.value.lower() == "true" and not chosen.packing:
        change = _leave_out_option_change(setup, padding_free)
        packed = Change(
            "packing", "it is without padding, and keeps the length", (*change.edits, ("finetune.packing", True))
        )
        yield error(
            "trainer.arguments",
            "without packing nothing keeps the length of sequences without padding: TRL refuses that",
            "Choose packing (finetune.packing=true), which needs no padding either, or leave --padding_free out.",
            change=packed,
        )


def _leave_out_option_change(setup: Setup, option: UserOption) -> Change:
    words = " ".join(option.words)
    rest = option.arguments_without_it(setup.profile.trainer.arguments)
    return Change(f"without {words}", "samples stay whole and apart", (("trainer.arguments", rest),))
