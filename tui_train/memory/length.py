"""What the data that was read decides: the sequence length, what is learned of chats, what is kept for evaluations."""

from collections.abc import Iterator

from msgspec.structs import replace

from tui_train.base.text import thousands
from tui_train.facts.data import DataReport, RowLengths
from tui_train.facts.data_use import answers_are_marked, question_key
from tui_train.facts.types import Facts
from tui_train.memory.predict import on_empty
from tui_train.profile.types import Profile
from tui_train.resolve import data
from tui_train.resolve.in_force import EffectiveValue, is_default
from tui_train.resolve.setup import Setup
from tui_train.trainers import takes_field, trainer_of
from tui_train.trainers.finetune import evaluated

# Of the rows, what a default may cut; and a length up to which none is cut.
_CUT, _SHORT = 0.01, 1024
_LONGEST = 1 << 20
# From so many rows on a share is kept for evaluations, which take so many of them at most; so often they are made.
_MANY, _SHARE, _MOST_EVALUATED, _EVALUATIONS = 500, 0.05, 1000, 5


def set_up(profile: Profile, facts: Facts) -> Setup:
    """Return what the profile means on this machine, with the defaults that follow from its data."""
    first = Setup(profile, facts)
    if first.problem:
        return first
    if by_data := _by_data(first):
        first = first.with_defaults(by_data)
    ours = by_data | _defaults(first) | _saved(first)
    return first.with_defaults(ours) if ours else first


def longest(setup: Setup) -> int:
    """Return the longest sequence length that memory and the model allow, 0 where neither is known.

    Memory is that of an empty card, so that a length that was planned holds when a run is resumed.
    """
    asked = data.question(setup)
    look = setup.facts.data.get(question_key(asked)) if asked else None
    limit = look.limit if look else 0
    lengths = [length for length in _lengths(look) if not limit or length <= limit]
    return next((length for length, _ in _fitting(setup, lengths)), limit)


def _by_data(setup: Setup) -> dict[str, EffectiveValue]:
    """Return whether answers alone are learned, and the share for evaluations, where the user chose neither."""
    profile, look = setup.rung, data.look_of(setup)
    if look is None or not look.usable:
        return {}
    ours = {}
    if profile.finetune.answers_only is None and answers_are_marked(look, profile.finetune.method):
        ours[data.ANSWERS] = EffectiveValue(True, "the chat template marks the answers")
    if profile.data.evaluation is None and not profile.trainer.validation_data and look.usable >= _MANY:
        share = round(min(_SHARE, _MOST_EVALUATED / look.usable), 4)
        ours[data.EVALUATION] = EffectiveValue(share, f"default for {thousands(_MANY)} rows or more")
    return ours


def _saved(setup: Setup) -> dict[str, EffectiveValue]:
    """Return after how many steps to save where each checkpoint is evaluated: several times, each evaluated as well."""
    profile, held = setup.rung, setup.values["checkpoint_every"]
    if not (takes_field(profile, "finetune") and evaluated(profile) and is_default(held)):
        return {}
    usual = held.value if isinstance(held.value, int) else 1
    if every := profile.recipe.evaluate_every:
        return {"checkpoint_every": EffectiveValue(-(-usual // every) * every, "as evaluations fall on it")}
    steps = data.steps_of(setup)
    if not steps or steps >= usual * _EVALUATIONS:
        return {}
    return {
        "checkpoint_every": EffectiveValue(-(-steps // _EVALUATIONS), f"{_EVALUATIONS} times in all, each evaluated")
    }


def _defaults(setup: Setup) -> dict[str, EffectiveValue]:
    """Return the sequence length and the micro batch that follow from the data; none where a user set the length."""
    facts = setup.facts
    asked, held = data.question(setup), setup.values["sequence_length"]
    if asked is None or not is_default(held):
        return {}
    if facts.elsewhere:
        return {"sequence_length": EffectiveValue(held.value, "default; the data is not known here")}
    look = facts.data.get(question_key(asked))
    if look is None or look.lengths is None or not look.usable:
        folder = facts.models.get(setup.profile.trainer.model)
        usual, limit = setup.rung.recipe.sequence_length or 0, folder.limit if folder else 0
        return {"sequence_length": EffectiveValue(limit, "the model's limit")} if 0 < limit < usual else {}
    wanted, why = _wanted(look.lengths, look.usable, packed=setup.rung.finetune.packing)
    if 0 < look.limit < wanted:
        wanted, why = look.limit, f"the model's limit; {why}"
    fitting = _fitting(setup, _lengths(look))
    most, _ = next(fitting, (0, 0))
    if not most:
        return {"sequence_length": EffectiveValue(wanted, why)}
    length = min(wanted, most)
    why += f", memory allows {thousands(most)}" if length == most < wanted or most <= look.lengths.longest else ""
    _, micro = next(_fitting(setup, [length]), (length, setup.rung.recipe.micro_batch))
    ours = {"sequence_length": EffectiveValue(length, why)}
    if micro != setup.rung.recipe.micro_batch:
        ours["micro_batch"] = EffectiveValue(micro, "default")
    return ours


def _wanted(lengths: RowLengths, usable: int, *, packed: bool) -> tuple[int, str]:
    """Return the length that the rows need, and why."""
    guess = " estimated from bytes" if lengths.estimated else ""
    every = next(cut.length for cut in lengths.at if not cut.rows)
    most = next(cut.length for cut in lengths.at if cut.rows <= usable * _CUT)
    if packed and every < _SHORT:
        return _SHORT, "several rows in each sequence"
    if every <= max(most, _SHORT):
        return every, f"all rows, longest {thousands(lengths.longest)}{guess}"
    return most, f"99 % of the rows, p99 {thousands(lengths.p99)}{guess}"


def _lengths(look: DataReport | None) -> list[int]:
    """Return the lengths to choose from: those that cut otherwise, and powers of two beyond them."""
    known = [cut.length for cut in look.lengths.at] if look and look.lengths else [_SHORT]
    beyond, length = [], known[-1]
    while (length := 1 << length.bit_length()) <= _LONGEST:
        beyond.append(length)
    return [*known, *beyond]


def _fitting(setup: Setup, lengths: list[int]) -> Iterator[tuple[int, int]]:
    """Yield the lengths that fit into an empty card, the longest first, each with the largest micro batch for it.

    A micro batch that the user chose stays as it is.
    """
    micro, recipe = setup.values["micro_batch"], setup.rung.recipe
    sizes = [recipe.micro_batch or 1]
    least = trainer_of(setup.rung).least_micro(setup.rung)
    while is_default(micro) and sizes[-1] % 2 == 0 and sizes[-1] // 2 >= least:
        sizes.append(sizes[-1] // 2)
    for length in sorted(lengths, reverse=True):
        for size in sizes:
            changed = replace(recipe, sequence_length=length, micro_batch=size)
            if on_empty(setup.at(replace(setup.rung, recipe=changed))).band == "fits":
                yield length, size
                break
