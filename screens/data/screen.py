"""Data: what the training data holds, and its first samples as the model gets them."""

from collections.abc import Iterator, Sequence
from typing import ClassVar

from msgspec.structs import replace
from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.reactive import reactive

from tui_train.base.text import visible
from tui_train.checks import Finding
from tui_train.facts.data.data_report import DataQuestion, DataReport
from tui_train.facts.data.data_use import learns_whole_chats
from tui_train.facts.types import Facts
from tui_train.profile.types import Profile
from tui_train.runs.run_folders import RunFolder
from tui_train.setup.recipe.data_questions import (
    data_report_at_length_in_force,
    question_with_length_in_force,
    training_epoch_size,
)
from tui_train.setup.setup import Setup
from tui_train.views import data_text
from tui_train.views.previous_run import PreviousRun, expected_pace, find_previous_run

from ..base import WizardScreen
from ..messages import ApplyFix
from ..screen_words import is_shown_on_recipe_alone
from ..themes import needs_plain_colours
from ..widgets.file_viewer import ScrollingPage
from ..widgets.hint import Hint
from ..widgets.key_bar import KeyBar
from ..widgets.lines import Lines
from ..widgets.preview_lines import FIX_KEYS, join_panels
from ..widgets.step_bar import StepBar
from ..widgets.text_layout import MUTED, heading, styled
from .data_lines import (
    bad_row_lines,
    data_finding_lines,
    data_summary_lines,
    image_lines,
    longest_row_lines,
    sample_lines,
)

_DATA_FACTS_PART, _DATA_KEY = "data", "trainer.data"
_FINDING_LEVELS_IN_ORDER = ("error", "warning", "note")
_DATA_FIELD_KEYS = frozenset(
    {
        _DATA_KEY,
        "trainer.validation_data",
        "data.evaluation",
        "data.weights",
        "data.max_pixels",
        "recipe.sequence_length",
        "recipe.evaluate_every",
        "finetune.method",
        "finetune.rewards",
        "finetune.answers_only",
        "finetune.freeze_vision",
        "finetune.packing",
    }
)
_SAMPLE_LEGEND_TEXT = "Grey text is context; beside ▌ stands what the model learns to write."
_LEGEND_BY_SAMPLE_TEXT_STATE = {"rejected": "✗ what it learns to avoid", "cut": "┊ what is cut off"}


class DataPreviewScreen(WizardScreen):
    """The data of a fine-tuning."""

    HELP = """Data

What is in your data. It is only read, by the Python that trains, and nothing of it is sent anywhere.

▌       beside what the model learns to say
✗       beside what it learns to avoid (the rejected answer of a pair)
┊       beside what is cut off at the sequence length
← →     the sample before and after, as the model gets it through its own
        chat template
b       rows that are left out, as nothing can be learned from them, by line
F2      fix the first finding, where a change of the settings does; F6 to F9
        the others
r       read the file again

The bars show how many rows have how many tokens; what lies beyond the sequence length is cut."""
    SHARED_VALUES = ("profile", "facts", "awaited_parts")
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "show_next_sample(-1)", "Sample", key_display="←→"),
        Binding("right", "show_next_sample(1)", show=False),
        Binding("f2", "fix(0)", "Fix it"),
        Binding("r", "app.refresh_facts", "Look again"),
        Binding("b", "go_to_bad_rows_or_top", "Bad rows"),
        Binding("enter", "app.back", show=False),
        Binding("f5", "app.back", show=False),
        Binding("escape", "app.back", "Back", key_display="Esc"),
        Binding("ctrl+z", "app.undo", "Undo", show=False),
        *(Binding(key, f"fix({at})", f"Fix finding {at + 1}", show=False) for at, key in enumerate(FIX_KEYS) if at),
    ]
    profile: reactive[Profile] = reactive(Profile, init=False, repaint=False)
    facts: reactive[Facts | None] = reactive(None, init=False, repaint=False)
    awaited_parts: reactive[frozenset[str]] = reactive(frozenset, init=False, repaint=False)

    def __init__(self, opened_from: str = "") -> None:
        """Begin on the first sample; `opened_from` is the title of the step before."""
        super().__init__()
        self._opened_from = opened_from
        self._is_composed = False
        self._sample = 0
        self._previous: PreviousRun | None = None
        self._findings: tuple[Finding, ...] = ()
        self._is_install_offered = False
        self._report: DataReport | None = None

    def compose(self) -> ComposeResult:
        """Put the numbers on top, a sample below them and the findings at the end; beside them what is wrong."""
        yield StepBar(title=f"{self._opened_from} › Data" if self._opened_from else "Data")
        with Horizontal(id="middle"):
            with Vertical(id="data"):
                yield Lines(id="set")
                with ScrollingPage(id="samples"):
                    yield Lines(id="sample")
                yield Lines(id="found")
            with VerticalScroll(id="side", can_focus=False):
                yield Lines(id="beside")
        yield Hint()
        yield KeyBar()

    def on_screen_resume(self) -> None:
        """Read the data again where it was changed."""
        self.wizard.read_changed_files()

    def on_mount(self) -> None:
        """Show what is known, and find out how fast a run like this one was."""
        self._is_composed = True
        self.query_one("#samples").focus()
        self.update()
        if not self.wizard.other_machine_name:
            self._find_previous_run(self.profile, self.wizard.run_being_edited)

    @work(thread=True, exclusive=True, group="previous run")
    def _find_previous_run(self, profile: Profile, run_being_edited: RunFolder | None) -> None:
        self.call_unless_cancelled(self._show_previous_run, find_previous_run(profile, run_being_edited))

    def _show_previous_run(self, previous: PreviousRun | None) -> None:
        self._previous = previous
        self.update()

    def watch_profile(self) -> None:
        """Show what is read for a changed profile, or that it is being read."""
        self.update()

    watch_facts = watch_awaited_parts = watch_profile

    def on_resize(self) -> None:
        """Arrange for the new size, once its classes are set."""
        self.call_after_refresh(self.update)

    def update(self) -> None:
        """Show what was read in the data, or that it is being read."""
        if not self._is_composed or self.facts is None:
            return
        made = self.wizard.setup_for_profile(self.profile, self.facts)
        setup = None if made.preset_error else made
        found = self.wizard.findings_for(made)
        mine = [each for each in found if each.key in _DATA_FIELD_KEYS and not is_shown_on_recipe_alone(each)]
        self._is_install_offered = any(finding.install for finding in found)
        # Rows are named by line elsewhere too: first what settings can change.
        self._findings = tuple(
            sorted(mine, key=lambda each: (_FINDING_LEVELS_IN_ORDER.index(each.level), each.key == _DATA_KEY))
        )
        self._report = data_report_at_length_in_force(setup) if setup else None
        if self._report and self._report.problem:
            self._report = None
        self._show_panels(setup)
        self.refresh_bindings()

    def _show_panels(self, setup: Setup | None) -> None:
        report, question = self._report, question_with_length_in_force(setup) if setup else None
        tall, wide = self.has_class("-tall"), self.has_class("-wide")
        findings = self._findings
        if report is None or question is None or setup is None:
            waits = _DATA_FACTS_PART in self.awaited_parts
            why = data_text.why_data_unread(setup) if setup else "the settings cannot be used"
            words = data_text.reading_data_text(self.profile) if waits else why
            if findings and not waits:
                unread, findings = findings, ()  # in the place of what would be said of the data
                self.query_one("#set", Lines).show(lambda width: data_finding_lines(unread, width, tall=tall))
            else:
                self.query_one("#set", Lines).show(lambda width: [heading("Data", "", width), styled((words, MUTED))])
            self.query_one("#sample", Lines).show_lines_of_any_width()
            self.query_one("#beside", Lines).show_lines_of_any_width()
        else:
            epoch = training_epoch_size(setup)
            pace = expected_pace(self._previous, self.profile)
            time = pace.time_text(epoch.steps) if pace and epoch else ""
            self.query_one("#set", Lines).show(lambda width: data_summary_lines(report, question, epoch, time, width))
            self.query_one("#sample", Lines).show(
                lambda width: self._samples_and_bad_rows_lines(report, question, width, tall=tall, wide=wide)
            )
            reasons = findings if wide else ()
            self.query_one("#beside", Lines).show(
                lambda width: join_panels(*_lines_beside_samples(report, question, reasons, width)) if wide else []
            )
            self.query_one(StepBar).show_at_right(
                styled((f"{data_text.data_title(report)}   {data_text.data_size_text(report)}", MUTED))
            )
        below = () if wide and report else findings
        self.query_one("#found", Lines).show(lambda width: data_finding_lines(below, width, tall=tall))
        self.query_one("#found").display = bool(below)
        self.query_one("#side").set_class(not report, "covered")
        self._show_hint()

    def _samples_and_bad_rows_lines(
        self, report: DataReport, question: DataQuestion, width: int, *, tall: bool, wide: bool
    ) -> list[Content]:
        """Return the sample that was chosen, those after it where there is room, and the rows that are wrong."""
        count = len(report.samples)
        shown = report.samples[self._sample_index : None if tall else self._sample_index + 1]
        several = report.file_count > 1
        drawn = not needs_plain_colours()
        parts = [
            [
                *sample_lines(
                    sample,
                    (self._sample_index + number, count),
                    width,
                    several_files=several,
                    learns_all=learns_whole_chats(report, question),
                ),
                *image_lines(sample, width, drawn=drawn),
            ]
            for number, sample in enumerate(shown, start=1)
        ]
        return join_panels(*parts, *(() if wide else (bad_row_lines(report, width),)))

    @property
    def _sample_index(self) -> int:
        return min(self._sample, max(0, len(self._report.samples) - 1)) if self._report else 0

    def _show_hint(self) -> None:
        samples = self._report.samples if self._report else ()
        states = data_text.sample_text_states(self._report) if self._report else frozenset()
        if self._findings and not self.has_class("-tall"):
            first = self._findings[0]
            self.query_one(Hint).show_text(Content(visible(f"{first.message}. {first.remedy}")))
        elif samples and states == {"read"}:
            self.query_one(Hint).show_text(Content(f"{data_text.LEARNED_BY_TEMPLATE_TEXT}, which is not known."))
        elif samples:
            more = ", ".join(words for state, words in _LEGEND_BY_SAMPLE_TEXT_STATE.items() if state in states)
            self.query_one(Hint).show_text(Content(f"{_SAMPLE_LEGEND_TEXT} {more}{'.' * bool(more)}".strip()))
        elif _DATA_FACTS_PART in self.awaited_parts:
            self.query_one(Hint).show_text(Content("Reading your data; you can go on meanwhile."))
        else:
            words = (
                "Esc goes back, where F2 installs what reads it." if self._is_install_offered else "r reads it again."
            )
            self.query_one(Hint).show_text(Content(words))

    # What the keys do

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Allow only actions that have something to act on."""
        if action == "fix":
            at = parameters[0]
            return isinstance(at, int) and at < len(self._fixable_findings())
        if action == "show_next_sample":
            return bool(self._report and len(self._report.samples) > 1)
        if action == "go_to_bad_rows_or_top":
            return bool(self._report and self._report.problems) and not self.has_class("-wide")
        return True

    def _fixable_findings(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self._findings if finding.fix)

    def action_fix(self, index: int) -> None:
        """Make the change that fixes one of the findings."""
        found = self._fixable_findings()
        if index < len(found) and (fix := found[index].fix):
            self.post_message(ApplyFix(fix))

    def action_show_next_sample(self, by: int) -> None:
        """Show the next sample, or the one before."""
        if self._report and self._report.samples:
            self._sample = (self._sample_index + by) % len(self._report.samples)
            self.update()
            self.query_one("#samples", ScrollingPage).scroll_home(animate=False)

    def action_go_to_bad_rows_or_top(self) -> None:
        """Go to the rows that are wrong, or back to the top."""
        page = self.query_one("#samples", ScrollingPage)
        if page.scroll_y:
            page.scroll_home(animate=False)
        else:
            page.scroll_end(animate=False)


def _lines_beside_samples(
    report: DataReport, question: DataQuestion, findings: Sequence[Finding], width: int
) -> Iterator[list[Content]]:
    """Yield what is wrong, then the longest rows and those that are left out, which findings need not name as well."""
    yield data_finding_lines([replace(each, details=()) for each in findings], width, tall=True)
    yield longest_row_lines(report, question, width)
    yield bad_row_lines(report, width)
