"""Recipe: the model's size, the batch, the optimisation, and what is tried after an out-of-memory."""

from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text
from textual import on
from textual.widget import Widget
from textual.widgets import Static

from tui_train.errors import BadInput
from tui_train.memory import ladder
from tui_train.plan import batch
from tui_train.plan.resolve import Resolved
from tui_train.text import counted

from .messages import Become, Chosen, Complaint
from .step import Step, row_of
from .widgets.dialogs import Ask
from .widgets.picks import Pick, Picks
from .widgets.rows import TextRow, row_id


class Recipe(Step):
    """The third step."""

    HELP = """Recipe

Micro batch is what one process takes at a time, global batch what one optimizer step sees. Their quotient over all
processes is the accumulation; it must divide exactly.
The ladder says what is tried when a GPU runs out of memory, from top to bottom: Space picks a rung, [ and ] move it.
The first three keep the training the same; the others ask for your consent."""
    TITLE_OF_STEP = "Recipe"
    KEYS = (
        "recipe.layers",
        "recipe.hidden_size",
        "recipe.heads",
        "recipe.sequence_length",
        "recipe.micro_batch",
        "recipe.global_batch",
        "recipe.learning_rate",
        "recipe.lr_scaling",
        "recipe.lr_base_batch",
        "recipe.precision",
        "recipe.steps",
        "recipe.checkpoint_every",
        "recipe.activation_checkpointing",
        "recipe.seed",
        "ladder.rungs",
        "ladder.consent",
    )
    _ROWS: ClassVar[tuple[str, ...]] = KEYS[:-2]

    def content(self) -> Sequence[Widget]:
        """The rows, then the ladder."""
        return [
            *(row_of(key) for key in self._ROWS),
            Static("\n  After a GPU runs out of memory, try in this order:", classes="head"),
            Picks(id="ladder", ordered=True),
        ]

    def refresh_rest(self, resolved: Resolved) -> None:
        """Show what follows from the values, and the ladder."""
        recipe, world = self.profile.recipe, resolved.copies
        steps = batch.accumulation(recipe.global_batch, recipe.micro_batch, world)
        one = ("process", "processes") if world == resolved.world_size else ("copy", "copies")
        processes = counted(world, *one)
        shown = (
            f"= {recipe.micro_batch} x accumulation {steps} x {processes}"
            if steps
            else f"does not divide ({processes})"
        )
        self.query_one(f"#{row_id('recipe.global_batch')}", TextRow).note(shown)
        base = "" if recipe.lr_base_batch else "the global batch above"
        self.query_one(f"#{row_id('recipe.lr_base_batch')}", TextRow).note(base)
        rate = batch.learning_rate(recipe)
        scaled = f"scaled to {rate:.3g}" if rate != recipe.learning_rate else ""
        self.query_one(f"#{row_id('recipe.learning_rate')}", TextRow).note(scaled)
        picks = self.query_one("#ladder", Picks)
        chosen = [name for name in self.profile.ladder.rungs if name in ladder.RUNGS]
        rest = [name for name in ladder.RUNGS if name not in chosen]
        if set(chosen) != set(picks.picked) or not picks.picks:
            order = (*chosen, *rest)
        else:
            order = tuple(pick.value for pick in picks.picks)
        picks.picks = tuple(_pick(name, resolved) for name in order)
        picks.picked = tuple(chosen)

    @on(Picks.Picked)
    def _picked(self, event: Picks.Picked) -> None:
        event.stop()
        new = set(event.values) - set(self.profile.ladder.rungs)
        asking = [name for name in new if ladder.rung(name).changes_training]
        if asking and asking[0] not in self.profile.ladder.consent:
            found = ladder.rung(asking[0])
            question = f"“{found.label}” changes the training ({found.cost}).\nMay it be done without asking you then?"
            answers = (("", "No, leave it out"), ("yes", "Yes, I consent"))
            self.app.push_screen(
                Ask(question, answers), lambda answer: self._consented(event.values, asking[0], answer)
            )
        else:
            self.post_message(Chosen("ladder.rungs", event.values))

    def _consented(self, rungs: tuple[str, ...], name: str, answer: str | None) -> None:
        if not answer:
            self.update()
            return
        consent = tuple(dict.fromkeys((*self.profile.ladder.consent, name)))
        try:
            from tui_train.changes import Change, apply

            edits = (("ladder.rungs", rungs), ("ladder.consent", consent))
            self.post_message(Become(apply(Change("consent", "given", edits), self.profile)))
        except BadInput as error:
            self.post_message(Complaint(error))


def _pick(name: str, resolved: Resolved) -> Pick:
    found = ladder.rung(name)
    reason = ladder.why_not(name, resolved.room)
    return Pick(
        name,
        Text.assemble(f"{found.label:<26}", (reason or found.cost, "dim")),
        reason,
        f"{found.label}: {reason or found.cost}. [ and ] move it.",
    )


SCREEN = Recipe
