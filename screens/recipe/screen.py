"""Recipe: the model's size, the batch, the optimisation, and what is tried after an out-of-memory."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from msgspec.structs import replace
from textual import on, work
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widget import Widget
from textual.worker import get_current_worker

from tui_train.base.errors import BadInput
from tui_train.base.text import quantity
from tui_train.checks import Finding
from tui_train.facts.models.hub import HubCache
from tui_train.facts.types import ScriptSource
from tui_train.memory import trace
from tui_train.memory.ladder.rungs import RUNGS, get_rung, why_rung_unusable
from tui_train.memory.predict import Prediction, predict_memory, rung_effects
from tui_train.memory.trace import CountedMemory
from tui_train.profile import batch, fields
from tui_train.profile.types import Profile
from tui_train.setup.recipe import no_effect
from tui_train.setup.recipe.given_arguments import script_source
from tui_train.setup.recipe.placeholder_values import effective_accumulation
from tui_train.setup.setup import Setup
from tui_train.trainers import trainer_has_own_field
from tui_train.views import finetune_notes
from tui_train.views.overview import training_outline_lines

from ..messages import SetProfile, ValueChosen
from ..steps.step import ADVANCED_GROUP_KEY, StepScreen, label_in_sentence
from ..steps.step_rows import Section
from ..widgets.dialogs import ChoiceDialog
from ..widgets.findings_pane import FindingsPane
from ..widgets.form.form_lines import FormGroup, FormRow
from ..widgets.lines import Lines
from ..widgets.memory_lines import memory_lines, memory_lines_of_unparsable_field, phase_lines
from ..widgets.multi_select import MultiSelect, SelectRow
from ..widgets.preview_lines import outline_lines
from ..widgets.text_layout import MUTED, StyledPiece, heading
from . import script_rows

_LADDER_GROUP_KEY, _UNUSED_GROUP_KEY = "ladder", "unused"
_UNUSED_SECTION = Section(
    title="Not used",
    key=_UNUSED_GROUP_KEY,
    folds=True,
    hint="Settings that your script does not take. Space opens and closes them.",
)
_CONFIG_WORKER_GROUP = "config"


class RecipeScreen(StepScreen):
    """The third step."""

    HELP = """Recipe

Micro batch is what one process takes at a time, global batch what one optimizer step sees.
Accumulation = global batch / (micro batch x processes), which must be a whole number.

F3   a second estimate of the memory: it runs the model's own code without
     weights, in the Python that trains, and adds up its tensors, in some
     seconds and without a GPU. For a model that is not here and not known,
     F3 asks whether it may fetch config.json, a few kB
F4   try micro batches in short real trainings, and choose the fastest

Memory at the top is estimated by a formula, and ✓ fits is judged by that. Fragments are what PyTorch's allocator
reserves between tensors. What other programs take of a GPU later is in neither estimate.

Out of memory: when memory runs out, the changes with [x] are tried from top to bottom, each only where it helps: a
smaller evaluation batch in an evaluation, a fused optimizer in the optimizer step. Space picks one, [ and ] move it.
Those with – have no effect here and are left out.
Those that change the result are picked only after a question, the others keep it the same."""
    TITLE_OF_STEP = "Recipe"
    SECTIONS = (
        Section(
            title="Model",
            keys=("recipe.layers", "recipe.hidden_size", "recipe.ffn_hidden_size", "recipe.heads"),
        ),
        Section(
            title="Batch",
            keys=(
                "recipe.sequence_length",
                "recipe.micro_batch",
                "recipe.global_batch",
                "finetune.generations",
                "finetune.completion_length",
            ),
        ),
        Section(title="Learning", keys=("recipe.epochs", "recipe.steps", "recipe.learning_rate", "recipe.precision")),
        Section(title="Adapter", keys=("finetune.rank", "finetune.alpha", "finetune.dropout", "finetune.targets")),
        Section(
            title="Advanced",
            key=ADVANCED_GROUP_KEY,
            folds=True,
            keys=(
                "finetune.answers_only",
                "finetune.packing",
                "finetune.freeze_vision",
                "data.max_pixels",
                "finetune.beta",
                "finetune.completions",
                "recipe.warmup",
                "recipe.schedule",
                "recipe.weight_decay",
                "recipe.activation_checkpointing",
                "recipe.checkpoint_every",
                "recipe.evaluate_every",
                "recipe.seed",
                "recipe.lr_scaling",
                "recipe.lr_base_batch",
            ),
        ),
        Section(title="Out of memory", key=_LADDER_GROUP_KEY, folds=True),
    )
    KEYS_OUTSIDE_FORM = ("ladder.rungs", "ladder.consent")
    IS_LIST_ORDERED_BY_GROUP_KEY: ClassVar[Mapping[str, bool]] = {_LADDER_GROUP_KEY: True}
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f3", "trace_memory", "Second estimate"),
        Binding("f4", "open_tuning", "Tune speed"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._prediction: Prediction | None = None
        self._traced_memory: dict[object, CountedMemory] = {}
        self._traced_workload: object = None
        self._fetching = False

    @property
    def _model_with_fetchable_config(self) -> str:
        """The model of the Hub whose config.json would give an estimate, and can be fetched; empty for none."""
        if self._prediction is None or self.facts is None or self.facts.hub is None or self.wizard.other_machine_name:
            return ""
        return self._prediction.workload.unknown_model

    @property
    def keys_named_in_texts(self) -> tuple[str, ...]:
        """F3 stands in the title of Memory, where there is something to estimate, or sizes to fetch for that."""
        estimates = self._prediction is not None and self._prediction.estimate is not None
        return ("f3",) if estimates or self._model_with_fetchable_config else ()

    @property
    def footer_text_by_key(self) -> Mapping[str, str]:
        """F3 fetches the sizes of a model that nothing is known of; F4 is not named where no batch can be tried."""
        return {
            **super().footer_text_by_key,
            **({"f3": "Fetch config.json"} if self._model_with_fetchable_config else {}),
            # The key itself says why.
            **({"f4": ""} if self.setup and no_effect.why_no_effect("recipe.micro_batch", self.setup) else {}),
        }

    def widgets_above(self) -> Iterable[Widget]:
        """Return the lines about memory, which stay while one types."""
        return [Lines(id="memory")]

    def step_widgets(self) -> Sequence[Widget]:
        """Return the form, and what follows from it where rows are to spare."""
        return [*super().step_widgets(), Lines(id="follows")]

    def make_group(self, section: Section, rows: tuple[FormRow, ...], setup: Setup | None) -> FormGroup:
        """Return a section; that of the fallbacks is opened to a list."""
        group = super().make_group(section, rows, setup)
        if section.key == _UNUSED_GROUP_KEY:
            return replace(group, value=quantity(len(rows), "value"))
        if section.key != _LADDER_GROUP_KEY:
            return group
        chosen = [name for name in self.profile.ladder.rungs if name in RUNGS]
        able = [name for name in chosen if setup is None or not why_rung_unusable(name, setup.ladder_context)]
        value = f"{quantity(len(able), 'fallback')}" if able else "the run fails"
        note = ", ".join(label_in_sentence(get_rung(name).label) for name in able) or "nothing is tried"
        hint = "If memory runs out, the run starts again with these changes, in this order."
        return replace(group, value=value, note=note, hint=f"{hint} {self.list_key_text(section.key)}")

    def _make_groups(self, setup: Setup | None) -> Iterable[FormGroup]:
        """Return the sections, the script's own arguments first: they are what surely reaches it."""
        source = self._script_source(setup)
        found = {finding.form_row_key: finding for finding in reversed(self.findings()) if finding.argument}
        if source and setup:
            yield script_rows.make_own_arguments_group(source, self.profile.trainer.arguments, setup, found)
        yield from super()._make_groups(setup)

    def section_rows(self, setup: Setup | None) -> Iterable[tuple[Section, tuple[FormRow, ...]]]:
        """Yield the sections, and in one of their own the rows that are nothing to a script of the user's."""
        sections = [*super().section_rows(setup)]
        # Before its source is read, nothing reaches it.
        if self._script_source(setup) is None:
            yield from sections
            return
        unused: list[FormRow] = []
        last = sections.pop()  # its list opens below all groups
        for section, rows in sections:
            idle = [row for row in rows if row.why_disabled and not fields.is_chosen(self.profile, row.key)]
            unused += idle
            yield section, tuple(row for row in rows if row not in idle)
        if unused:
            yield _UNUSED_SECTION, tuple(unused)
        yield last

    def _script_source(self, setup: Setup | None) -> ScriptSource | None:
        if setup is None or self.facts is None or not trainer_has_own_field(self.profile, "trainer.script"):
            return None
        return script_source(self.profile, self.facts, setup.preset)

    @classmethod
    def owns_finding(cls, finding: Finding) -> bool:
        """Return whether a finding is of this step's fields, or of an argument that the script declares."""
        return bool(finding.argument) or super().owns_finding(finding)

    @on(ValueChosen)
    def _post_arguments_with_value(self, event: ValueChosen) -> None:
        """Put what was chosen for an argument of the script among the arguments."""
        key, source = "trainer.arguments", self._script_source(self.setup)
        if event.key.startswith(f"{key} ") and source:
            event.stop()
            words = script_rows.arguments_with_value(source, self.profile.trainer.arguments, event.key, event.value)
            self.post_message(ValueChosen(key, words, event.key))

    def notes_by_key(self, setup: Setup) -> Mapping[str, str]:
        """Return what follows from the values."""
        recipe, world = setup.effective_profile.recipe, setup.model_copies
        one = ("process", "processes") if world == setup.world_size else ("copy", "copies")
        processes = quantity(world, *one)
        notes = {"recipe.lr_base_batch": "" if recipe.lr_base_batch else "same as the global batch"}
        if recipe.global_batch and recipe.micro_batch:
            steps = effective_accumulation(setup.effective_profile, world)
            divided = f"= {recipe.micro_batch} × accumulation {steps} × {processes}"
            notes["recipe.global_batch"] = divided if steps else f"does not divide ({processes})"
        rate = batch.scaled_learning_rate(recipe)
        if rate is not None and rate != recipe.learning_rate:
            notes["recipe.learning_rate"] = f"scaled to {rate:.3g}"
        if recipe.lr_scaling == "none":
            notes["recipe.lr_scaling"] = "the rate as it is set"
        if self.facts and trainer_has_own_field(self.profile, "finetune"):
            notes = {**finetune_notes.recipe_screen_notes(setup), **notes}
        return notes

    def update_outside_form(self, setup: Setup) -> None:
        """Show the memory, and the ladder where it is open."""
        self._show_memory(setup)
        for picks in self.query("#ladder").results(MultiSelect):
            chosen = [name for name in self.profile.ladder.rungs if name in RUNGS]
            rest = [name for name in RUNGS if name not in chosen]
            if set(chosen) != set(picks.picked) or not picks.select_rows:
                order = (*chosen, *rest)
            else:
                order = tuple(pick.value for pick in picks.select_rows)
            picks.show_select_rows((_rung_row(name, setup) for name in order), chosen)

    def _show_memory(self, setup: Setup) -> None:
        if self.facts is None:
            return
        self._prediction = found = predict_memory(setup)
        counted = self._traced_memory.get(found.workload)
        busy = self._traced_workload is not None and self._traced_workload == found.workload
        changes = () if busy else rung_effects(setup)
        note = (
            "making a second estimate …; F3 cancels it"
            if busy
            else "estimated" + "; F3 makes a second estimate" * (not self.wizard.other_machine_name)
        )
        remedy = ""
        if self._model_with_fetchable_config:
            remedy = "fetching config.json …" if self._fetching else "F3 fetches config.json alone, a few kB"
        unread, sound = (
            self.form.state.unparsable_row_label,
            not any(finding.forbids_plan for finding in self.findings()),
        )
        beside = self.query_one(FindingsPane)
        outline = training_outline_lines(setup) if sound and not unread and self.has_class("-tall") else ()

        def details_of_plan(width: int) -> Sequence[Content]:
            phases = phase_lines(found, width)
            # Of a pane that is not wide this is the end of the room; "What starts" says most of the rest.
            if self.has_class("-medium"):
                return phases
            return (*phases, Content(), heading("One run", "", width), *outline_lines(outline, width))

        # In the form's column only where there is no other.
        below = outline and not beside.has_room
        self.query_one("#follows", Lines).show(details_of_plan if below else lambda _width: ())
        beside.show_details_of_plan(details_of_plan if outline else None)
        self.query_one("#memory", Lines).show(
            lambda width: (
                memory_lines_of_unparsable_field(unread, width)
                if unread
                else memory_lines(found, changes, counted, note=note, width=width, is_allowed=sound, remedy=remedy)
            )
        )

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Tracing runs here, and says nothing of another machine; trials run here and on a host, and not by Slurm."""
        if action == "trace_memory" and self.wizard.other_machine_name:
            return False
        if action == "open_tuning" and (self.wizard.uses_slurm or not self.wizard.can_start):
            return False
        return super().check_action(action, parameters)

    def _require_trainable_profile(self) -> None:
        """Raise BadInput, which says what is wrong, where the profile could not be trained."""
        if label := self.form.state.unparsable_row_label:
            raise BadInput(f"{label} cannot be read", "Correct that value first.")
        if wrong := next((finding for finding in self._all_findings if finding.forbids_plan), None):
            raise BadInput(wrong.message, wrong.remedy)

    def action_trace_memory(self) -> None:
        """Trace the memory in the training Python, or cancel the trace that is running."""
        if self._traced_workload is not None:
            self.workers.cancel_group(self, "trace")
            self._store_trace(self._traced_workload, None)
            return
        if self._model_with_fetchable_config:
            self._ask_to_fetch_config(self._model_with_fetchable_config)
            return
        self._require_trainable_profile()
        setup = self.setup
        asked = self._prediction.workload if self._prediction else None
        if setup is None or setup.toolchain is None or asked is None or asked.model is None or asked.settings is None:
            why = self._prediction.why_no_estimate if self._prediction else ""
            raise BadInput(
                f"there is no second estimate{why and ': '}{why}",
                "Choose a model, and a Python that can train (Backend).",
            )
        if why := trace.why_not_traceable(asked.model, asked.settings):
            raise BadInput(f"there is no second estimate: {why}", "Use the first one.")
        self._traced_workload = asked
        self.update()
        question = trace.memory_child_request(asked.model, asked.settings, asked.model_folder)
        self._trace_memory(asked, setup.toolchain.python, question)

    def _ask_to_fetch_config(self, name: str) -> None:
        """Ask whether a model's config.json may be fetched, unless that is under way, and fetch it."""
        hub = self.facts.hub if self.facts else None
        if hub is None or self._fetching:
            return
        from tui_train.actions import model_config

        profile = self.profile

        def fetch(_answer: str) -> None:
            self._fetching = True
            self.update()
            self._fetch_config(profile, hub, name)

        question = model_config.config_fetch_question(profile, hub, name)
        self.ask_choice(question, (("yes", "Yes, fetch it"), ("", "No")), fetch)

    @work(thread=True, exclusive=True, group=_CONFIG_WORKER_GROUP)
    def _fetch_config(self, profile: Profile, hub: HubCache, name: str) -> None:
        from tui_train.actions import model_config

        model_config.fetch_model_config(profile, hub, name)
        self.app.call_from_thread(self._show_fetched_config)

    def _show_fetched_config(self) -> None:
        self._fetching = False
        self.wizard.refresh_part_quietly("paths")
        self.wizard.refresh_part_quietly("hub")
        self.update()

    def action_open_tuning(self) -> None:
        """Open the tuning screen, where trials can run."""
        setup = self.setup
        if setup is None:
            return
        self._require_trainable_profile()
        from tui_train.actions.tune.space import make_search_space

        from ..tuning import TuningScreen

        make_search_space(setup)  # raises where no trials can be made
        self.app.push_screen(TuningScreen(setup))

    @work(thread=True, exclusive=True, group="trace")
    def _trace_memory(self, workload: object, python: str, question: dict[str, Any]) -> None:
        worker = get_current_worker()
        memory_count = trace.run_memory_trace(python, question, lambda: worker.is_cancelled)
        self.call_unless_cancelled(self._store_trace, workload, memory_count)

    def recover_from_failed_worker(self, worker_group: str) -> None:
        """Allow another trace or fetch after one failed."""
        if worker_group == "trace":
            self._store_trace(None, None)
        elif worker_group == _CONFIG_WORKER_GROUP:
            self._fetching = False
            self.update()

    def _store_trace(self, workload: object, memory: CountedMemory | None) -> None:
        self._traced_workload = None
        if memory:
            self._traced_memory[workload] = memory
        self.update()

    @on(MultiSelect.Picked)
    def _post_rungs_or_ask_consent(self, event: MultiSelect.Picked) -> None:
        event.stop()
        new = set(event.values) - set(self.profile.ladder.rungs)
        asking = [name for name in new if get_rung(name).changes_training]
        if asking and asking[0] not in self.profile.ladder.consent:
            found = get_rung(asking[0])
            question = f"“{found.label}”: {found.cost}.\nMay a run that is out of memory do this without asking you?"
            answers = (("", "No, leave it out"), ("yes", "Yes, allow it"))
            self.update()  # The list shows it picked only after the answer.
            self.app.push_screen(
                ChoiceDialog(question, answers),
                lambda answer: self._post_rungs_if_consented(event.values, asking[0], answer),
            )
        elif removed := set(self.profile.ladder.consent).intersection(self.profile.ladder.rungs) - set(event.values):
            consent = tuple(name for name in self.profile.ladder.consent if name not in removed)
            self._post_rungs_and_consent(event.values, consent)
        else:
            self.post_message(ValueChosen("ladder.rungs", event.values))

    def _post_rungs_if_consented(self, rungs: tuple[str, ...], rung: str, answer: str | None) -> None:
        if answer:
            self._post_rungs_and_consent(rungs, tuple(dict.fromkeys((*self.profile.ladder.consent, rung))))
        else:
            self.update()

    def _post_rungs_and_consent(self, rungs: tuple[str, ...], consent: tuple[str, ...]) -> None:
        from tui_train.profile.changes import Change, apply_change

        edits = (("ladder.rungs", rungs), ("ladder.consent", consent))
        self.post_message(SetProfile(apply_change(Change("consent", "given", edits), self.profile)))


def _rung_row(name: str, setup: Setup) -> SelectRow:
    found = get_rung(name)
    reason = why_rung_unusable(name, setup.ladder_context)
    beside: StyledPiece = reason or (found.cost, MUTED)
    words = f"{found.label} is left out here: {reason}" if reason else f"{found.label}: {found.cost}"
    return SelectRow(
        name,
        ((found.label, 26), (beside, 0)),
        reason,
        f"{words}. [ and ] change its place.",
        # Consent to one that changes the result can always be taken back.
        is_left_out=bool(reason) and not found.changes_training,
    )


SCREEN = RecipeScreen
