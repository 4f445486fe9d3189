"""What may be tried for speed with a profile, and the short training that tries one setting; pure."""

import math
from collections.abc import Iterable, Iterator

from tui_train.changes import Change, apply
from tui_train.errors import BadInput, Unavailable
from tui_train.facts.types import Facts
from tui_train.memory.foretell import Foretold, foretell
from tui_train.memory.verdict import Band
from tui_train.plan import batch
from tui_train.plan.resolve import Resolved, resolve
from tui_train.presets import PLACEHOLDER
from tui_train.profile import fields
from tui_train.profile.types import Profile
from tui_train.tune.search import Setting, Space, Trial

# Micro batches that are closer to each other differ little in speed.
_APART = 1.5
# A trial is ended long before: its training is not to end, save, and hand on what it has, by itself.
_STEPS = 1000
_SILENT = {"WANDB_MODE": "disabled"}


def space(profile: Profile, facts: Facts, resolved: Resolved, precisions: tuple[str, ...] = ()) -> Space:
    """Return what may be tried: with these precisions besides the profile's own; BadInput where nothing can be."""
    _refuse(profile, resolved)
    recipe = profile.recipe
    share, rest = divmod(recipe.global_batch, resolved.copies)
    if rest or share % recipe.micro_batch:
        raise BadInput("the global batch does not divide", "Mend that first: tui-train plan says how.")
    switch = "activation_checkpointing" in resolved.room.takes
    own = Setting(recipe.micro_batch, recipe.activation_checkpointing and switch, recipe.precision)
    known = tuple(dict.fromkeys((recipe.precision, *(precisions if "precision" in resolved.room.takes else ()))))
    settings = [
        Setting(micro, saving, precision)
        for micro in _apart(share, recipe.micro_batch)
        for saving in ((False, True) if switch else (False,))
        for precision in known
    ]
    foretold = {one: foretell(_with(profile, one), facts, _resolved(profile, one, facts)) for one in settings}
    hopeless = frozenset(one for one, found in foretold.items() if _hopeless(found))
    micros = {one.micro_batch for one in settings if one not in hopeless}
    bands: dict[Setting, Band] = {one: found.band for one, found in foretold.items() if found.band}
    return Space(
        own=own,
        micro_batches=tuple(sorted(micros)),
        precisions=known,
        checkpointing=switch,
        bands=bands,
        hopeless=hopeless,
    )


def trial_profile(profile: Profile, wanted: Setting, among: Space, copies: int) -> Profile:
    """Return the short training that tries a setting.

    All trials have one global batch, so that they can be compared: the least in which each micro batch comes at least
    twice, as gradients are kept between. They write nowhere but in a folder of their own, and save nothing.
    """
    share = profile.recipe.global_batch // copies
    change = Change(
        "trial",
        "to see how fast it is",
        (
            ("recipe.global_batch", min(share, 2 * math.lcm(*among.micro_batches)) * copies),
            ("recipe.lr_scaling", "none"),
            ("recipe.steps", _STEPS),
            ("recipe.checkpoint_every", _STEPS),
            ("ladder.rungs", ()),
            ("trainer.output", ""),
            ("trainer.environment", {**profile.trainer.environment, **_SILENT}),
        ),
    )
    return apply(change, _with(profile, wanted))


def change_to(found: Trial, profile: Profile, own: Trial | None) -> Change | None:
    """Return the change to a setting that was tried, None where it is the profile's own."""
    recipe, one = profile.recipe, found.setting
    titles = {
        "recipe.micro_batch": f"micro batch {recipe.micro_batch} -> {one.micro_batch}",
        "recipe.activation_checkpointing": f"{'with' if one.checkpointing else 'without'} activation checkpointing",
        "recipe.precision": f"precision {one.precision}",
    }
    differ = [(key, value) for key, value in _edits(one) if fields.get(profile, key) != value]
    if not differ or (own and own.setting == one):
        return None
    faster = f"{found.rate / own.rate:.2f} times as fast" if own and own.rate else "it fits, and was the fastest"
    title = ", ".join(titles[key] for key, _ in differ)
    return Change(title, f"{faster} in short trials; the global batch stays", tuple(differ))


def _edits(one: Setting) -> tuple[tuple[str, fields.Value], ...]:
    return (
        ("recipe.micro_batch", one.micro_batch),
        ("recipe.activation_checkpointing", one.checkpointing),
        ("recipe.precision", one.precision),
    )


def _with(profile: Profile, wanted: Setting) -> Profile:
    return apply(Change("setting", "to be tried", _edits(wanted)), profile)


def _resolved(profile: Profile, wanted: Setting, facts: Facts) -> Resolved:
    return resolve(_with(profile, wanted), facts)


def _hopeless(found: Foretold) -> bool:
    """Tell whether a setting is not to be tried: a card refuses what is too much, a host may end other programs."""
    if not found.estimate or not found.places:
        return False
    place = found.places[0][0]
    if not place.cuda:
        return found.band == "will not fit"
    return found.estimate.peak.total * (1 - found.estimate.error) > place.free


def _apart(share: int, own: int) -> Iterator[int]:
    """Yield micro batches that divide a share, the own one and, from it on, those well apart."""
    yield own
    yield from _spread((one for one in batch.divisors(share) if one > own), own)
    yield from _spread((one for one in reversed(batch.divisors(share)) if one < own), own)


def _spread(numbers: Iterable[int], last: int) -> Iterator[int]:
    for number in numbers:
        if max(number, last) >= _APART * min(number, last):
            yield number
            last = number


def _refuse(profile: Profile, resolved: Resolved) -> None:
    taken = resolved.room.takes
    if profile.nodes.count > 1:
        raise BadInput(
            "trials run on one machine, and this profile trains on several", "Tune with --set nodes.count=1."
        )
    if not taken & {"micro_batch", "total_batch"} or not taken & {"accumulation", "total_accumulation", "global_batch"}:
        remedy = "Choose a preset that passes both, or say them in your arguments: {micro_batch}, {accumulation}."
        raise BadInput("the trainer is told neither micro batch nor accumulation: there is nothing to tune", remedy)
    if resolved.nemo:
        return
    if "output" not in taken:
        remedy = "Say in your arguments how it is told its output folder: --the-option={output}."
        raise BadInput("the trainer is not told where to write: trials would write where your training does", remedy)
    if own := _own_output(profile, resolved):
        remedy = "Take it from the arguments, and set trainer.output."
        raise Unavailable(f"your own {own} says where it writes: trials would write there too", remedy)


def _own_output(profile: Profile, resolved: Resolved) -> str:
    """Return the user's own word for the output folder, by which a trial would write where the training does."""
    told = [word for argument in resolved.preset.arguments for word in argument.words]
    options = {word.partition("=")[0] for word in told if "output" in PLACEHOLDER.findall(word)}
    mine = (word for word in profile.trainer.arguments if "{output}" not in word)
    return next((word for word in mine if word.partition("=")[0] in options), "")
