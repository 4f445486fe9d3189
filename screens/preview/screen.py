"""Preview: what will happen in five lines, what is wrong, the one command, and the files that are exported and run."""

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from textual import work
from textual.binding import Binding, BindingType
from textual.content import Content

from tui_train.actions.run_array import ArrayMember, prepare_members, start_members
from tui_train.base.app_paths import expand_home
from tui_train.base.errors import AlreadyExists, BadInput
from tui_train.base.text import capitalised, quantity, visible
from tui_train.checks import Finding
from tui_train.facts.gpus.gpu_sets import are_gpus_in_use, facts_as_if_gpus_idle
from tui_train.facts.machine.folder_names import names_in_local_folder
from tui_train.plan.outside_files import outside_files_text
from tui_train.plan.render.prepare import PreparedPlan, prepare_plan
from tui_train.plan.render.script.plain_command import command_to_paste
from tui_train.profile import fields, store
from tui_train.runs import run_folders
from tui_train.runs.local_start import StartOptions, WhenFree
from tui_train.runs.run_code import code_not_kept_in_time_text
from tui_train.setup.profile_summary import chosen_or_derived_name
from tui_train.trainers import trainer_has_own_field
from tui_train.views.compare import RUN_LETTERS

from ..discovery.machine_queries import FACTS_PARTS_NOT_AWAITED
from ..messages import ApplyFix, CompareRuns, OpenRun, SetProfile
from ..widgets.file_viewer import FileViewer
from ..widgets.hint import Hint
from ..widgets.preview_lines import FIX_KEYS, Fix
from .plan_view import PlanScreen


class PreviewScreen(PlanScreen):
    """The fourth step."""

    HELP = """Preview

What will be trained and how, what is wrong with it, and the command that starts it. Until Enter nothing is started.

Enter    start the training, or submit it as a job of Slurm
w        start it once its GPUs are free; who asked first on this machine
         comes first
a        a sweep: one run for each of several values of a setting, or of an
         argument of your script, one after the other, or side by side where
         more GPUs of that kind are free
F2       make the fix beside which F2 stands; F6 to F9 those of the other
         findings. With an error (✗) nothing can be started
s        save these settings as a profile; runs have its name
f        the files that Enter runs and e writes. They need bash, coreutils and
         the training's Python, nothing of this program
d        which lines of the files differ from the run before
e        write the files to a folder, to run them without this program
c y      copy the command, or the shown file, to your terminal's clipboard

Of the files: ← → another file, / searches in all, Enter there goes to the next place.
With --machine FILE the plan is for that machine: e writes the files, and you copy the folder there."""
    TITLE_OF_STEP = "Preview"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "next", "Run", key_display="Enter"),
        Binding("w", "start_when_free", "When free"),
        Binding("f", "toggle_files", "Files"),
        Binding("d", "toggle_changes", "Changes"),
        Binding("c", "copy_command", "Copy"),
        Binding("y", "copy_file", "Copy file"),
        Binding("s", "save_profile", "Save profile"),
        Binding("e", "export_files", "Export"),
        Binding("a", "start_array", "Sweep"),
        Binding("slash", "search_files", "Search", key_display="/"),
        Binding("left", "show_neighbouring_file(-1)", "File", key_display="←→"),
        Binding("right", "show_neighbouring_file(1)", show=False),
        *(
            Binding(key, f"fix_finding({at})", f"Fix finding {at + 1}", show=False)
            for at, key in enumerate(FIX_KEYS)
            if at
        ),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._starting = False

    def show_hint(self) -> None:
        """Show what Enter does, in the hint."""
        if self._prepared is None:
            return
        forbidding, name = self._first_error_forbidding_plan(), chosen_or_derived_name(self.profile)
        if self._undone_text:
            words = self._undone_text
        elif forbidding and self.finding_to_fix() is not forbidding:
            words = f"Nothing can be started: {forbidding.message}. Esc goes back to change it."
        elif forbidding:
            fix = f"F2: {forbidding.fix.title}. " if forbidding.fix else ""
            words = f"Nothing can be started: {forbidding.message}. {fix}Or Esc goes back to change it."
        elif not self.wizard.can_start:
            words = "This plan is for another machine: e exports the files; then copy them there."
        elif self.unread_text:
            words = f"{capitalised(self.unread_text)}. {name} can be started after that."
        elif self._prepared.errors:
            can = "w starts it when its GPUs are free" if self._can_wait_for_gpus else "It cannot be started here now"
            words = f"{can}; e exports its files all the same."
        elif self._can_wait_for_gpus:
            words = (
                f"Enter starts {name} now, w when its GPUs are free (s saves it under another name). It goes on when "
                "you leave."
            )
        elif self.wizard.uses_slurm:
            where = f" on {self.wizard.other_machine_name}" if self.wizard.other_machine_name else ""
            words = (
                f"Enter submits {name} to Slurm{where} (s saves it under another name): it may wait, and goes on when "
                "you leave."
            )
        else:
            where = f" on {self.wizard.other_machine_name}" if self.wizard.other_machine_name else ""
            words = f"Enter starts {name}{where} (s saves it under another name). It keeps running when you leave."
        self.query_one(Hint).show_text(Content(visible(words)))

    def _first_error_forbidding_plan(self) -> Finding | None:
        """Return the error without which something could be planned."""
        return next((finding for finding in self.findings() if finding.forbids_plan), None)

    @property
    def keys_named_in_texts(self) -> tuple[str, ...]:
        """Keys of the titles and of the hint; and what starts several runs, which is nowhere else."""
        files = ("slash",) if self._is_composed and self.query_one(FileViewer).display else ()
        is_story_shown = not files or self.query_one("#body").display
        return (*files, *(("w", "a", "f", "d") if is_story_shown else ()), *(() if self.wizard.can_start else ("e",)))

    @property
    def footer_text_by_key(self) -> Mapping[str, str]:
        """Offer Run only where it starts something; Enter says then why it does not."""
        stopped = self.unread_text or any(finding.level == "error" for finding in self.findings())
        return {**super().footer_text_by_key, **({"enter": ""} if stopped else {})}

    def finding_to_fix(self) -> Finding | None:
        """Return the finding that F2 fixes: the first that has a change."""
        fix = self._fix_of_key(0)
        return next((finding for finding in self.findings() if fix and finding.fix == fix), None)

    def why_key_refused(self, key: str) -> str:
        """Return why a key of fixes makes no change now: that of a finding may be another one after a change."""
        if key not in FIX_KEYS:
            return super().why_key_refused(key)
        where = "the key of each finding stands beside it" if any(self._fixes) else "no finding has a key"
        return f"{key.upper()} fixes nothing now: {where}."

    def _fix_of_key(self, index: int) -> Fix | None:
        return self._fixes[index] if index < len(self._fixes) else None

    def action_fix_finding(self, index: int) -> None:
        """Make the change of one of the keys."""
        if fix := self._fix_of_key(index):
            self.post_message(ApplyFix(fix))

    # Copying

    def action_copy_command(self) -> None:
        """Copy the command to the terminal's clipboard, which works over SSH."""
        if self._preview_content.command:
            self.app.copy_to_clipboard(command_to_paste(self._preview_content.command))
            self.notify("The command was sent to your terminal's clipboard.", markup=False)

    def action_copy_file(self) -> None:
        """Copy the shown file to the terminal's clipboard."""
        if file := self.query_one(FileViewer).shown_file:
            self.app.copy_to_clipboard(file.text)
            self.notify(f"{visible(file.path)} was sent to your terminal's clipboard.", markup=False)

    # Starting, saving, exporting

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Allow no start with the machine of a file; allow what is about files only where there are some."""
        if action in {"next", "start_array", "start_when_free"}:
            return self._can_wait_for_gpus if action == "start_when_free" else self.wizard.can_start
        if action == "fix_finding":
            return isinstance(parameters[0], int) and self._fix_of_key(parameters[0]) is not None
        if action in {"toggle_files", "search_files", "export_files", "toggle_changes"}:
            needed = self._previous if action == "toggle_changes" else self._prepared
            return bool(needed and self._prepared and self._prepared.files)
        if action == "copy_command":
            return self._preview_content.command is not None
        if action in {"show_neighbouring_file", "copy_file"}:
            return self._is_composed and self.query_one(FileViewer).display
        return super().check_action(action, parameters)

    def action_next(self) -> None:
        """Start what is shown."""
        if not self.wizard.can_start:
            self.app.bell()
            return
        if self._refuse_while_facts_awaited():
            return
        if self._prepared is None:
            self.update()
        prepared = self._prepared
        errors = prepared.errors if prepared else ()
        if wrong := self._first_error_forbidding_plan() or next(iter(errors), None):
            self.app.bell()
            self.wizard.read_changed_files((wrong,))
            raise BadInput(f"It cannot be started: {wrong.message}", wrong.remedy)
        if prepared is None or prepared.plan is None or prepared.profile != self.profile or self._starting:
            self.app.bell()
            return
        self._starting = True
        self._start_run(prepared, "")

    def _refuse_while_facts_awaited(self) -> bool:
        """Return true, with a notice, while what findings may come from is still being asked for or read."""
        words = ""
        if self.awaited_parts - FACTS_PARTS_NOT_AWAITED or self.wizard.are_files_being_compared:
            words = "Still looking at the machine: press the key again in a moment."
        elif self.unread_text:
            words = f"{capitalised(self.unread_text)}: press the key again after that."
        if words:
            self.app.bell()
            self.notify(words, markup=False)
        return bool(words)

    @property
    def _can_wait_for_gpus(self) -> bool:
        """Whether others use GPUs of the plan, which can be waited for."""
        plan, facts = self._prepared.plan if self._prepared else None, self.facts
        if plan is None or facts is None or not plan.may_wait or not self.wizard.can_start:
            return False
        return are_gpus_in_use(facts, plan.gpus)

    def action_start_when_free(self) -> None:
        """Start what is shown once other trainings have left its GPUs."""
        if not self._can_wait_for_gpus or self.facts is None or self._starting:
            self.app.bell()
            return
        if self._refuse_while_facts_awaited():
            return
        setup = self.wizard.setup_for_profile(self.profile, facts_as_if_gpus_idle(self.facts))
        prepared = prepare_plan(setup)
        for wrong in prepared.errors[:1]:
            self.app.bell()
            raise BadInput(f"It cannot be started: {wrong.message}", wrong.remedy)
        self._starting = True
        self._start_run(prepared, "chosen")

    def action_start_array(self) -> None:
        """Ask for the values of a key, and start a run for each."""
        facts = self.facts
        if facts is None or not self.wizard.can_start or self._starting:
            self.app.bell()
            return
        if self._refuse_while_facts_awaited():
            return
        profile, members = self.profile, list[ArrayMember]()

        def prepare(array: str) -> str:
            members[:] = prepare_members(profile, array, facts)
            for member in members:
                if member.errors:
                    wrong = member.errors[0]
                    raise BadInput(f"With {member.edit} it cannot be started: {wrong.message}", wrong.remedy)
            return array

        def start(_array: str) -> None:
            self._starting = True
            self.notify(f"Starting {quantity(len(members), 'run')} …", markup=False)
            self._start_array_members(tuple(members))

        # Nothing is filled in: Enter alone would start runs.
        self.ask_text(self._array_question, "", start, change=prepare)

    @property
    def _array_question(self) -> str:
        plan = self._prepared.plan if self._prepared else None
        has_more = plan and len(plan.gpu_pool) > len(plan.gpus) and not self.profile.hardware.gpus
        elsewhere = " or on other GPUs of that kind" if has_more else ""
        runs = "job for each value" if self.wizard.uses_slurm else f"run for each value, one after the other{elsewhere}"
        own = trainer_has_own_field(self.profile, "trainer.script")
        typed = "--lr=1e-4,2e-4 (an argument of your script)" if own else "recipe.learning_rate=1e-4,2e-4"
        return f"Try several values (a sweep): a {runs}.\nType the setting and its values, such as {typed}:"

    @work(thread=True, group="start")
    def _start_array_members(self, members: tuple[ArrayMember, ...]) -> None:
        place = self.wizard.place_for(members[0].prepared.profile)
        runs = tuple(run for _, run in start_members(members, place))
        self.post_message(CompareRuns(runs[: len(RUN_LETTERS)]) if runs[1:] else OpenRun(runs[0]))
        if runs[len(RUN_LETTERS) :]:
            self.app.notify(f"Shown are the first {len(RUN_LETTERS)} of {len(runs)} runs; Home has all.", markup=False)

    @work(thread=True, group="start")
    def _start_run(self, prepared: PreparedPlan, when_free: WhenFree) -> None:
        assert prepared.plan is not None  # noqa: S101 - whoever calls it has looked
        place = self.wizard.place_for(prepared.profile)
        run = place.submit(prepared, prepared.plan, options=StartOptions(when_free))
        self.post_message(OpenRun(run, code_not_kept_in_time_text(run.path)))

    def on_screen_resume(self) -> None:
        """Let a plan be started again, when the screen is shown again: also by a dialog that has begun a start."""
        self._starting = any(
            worker.group == "start" and worker.node is self and not worker.is_finished for worker in self.workers
        )

    def recover_from_failed_worker(self, worker_group: str) -> None:
        """Let the plan be started again."""
        if worker_group == "start":
            self._starting = False

    def action_save_profile(self) -> None:
        """Ask for a name, then save the profile."""
        question = "Save these settings as a profile named:"
        self.ask_text(question, chosen_or_derived_name(self.profile), self._save_profile_as)

    def _save_profile_as(self, name: str) -> None:
        if not name:
            return
        try:
            profile = fields.profile_with_value(self.profile, "name", name)
            path = store.save_profile(profile)
        except AlreadyExists:
            self._ask_to_replace_profile(name)
        else:
            self.post_message(SetProfile(profile, is_saved=True))
            self.notify(visible(f"Saved {path}"), markup=False)

    def _ask_to_replace_profile(self, name: str) -> None:
        def replace(_answer: str) -> None:
            profile = fields.profile_with_value(self.profile, "name", name)
            store.save_profile(profile, overwrite=True)
            self.post_message(SetProfile(profile, is_saved=True))
            self.notify(visible(f"Replaced {name}"), markup=False)

        answers = (("", "No, keep it"), ("yes", "Yes, replace it"))
        self.ask_choice(f"A profile named {visible(name)} already exists. Replace it?", answers, replace)

    def action_export_files(self) -> None:
        """Ask for a folder, then write the files there."""
        if self._prepared and self._prepared.files:
            folder = str(Path.cwd() / visible(chosen_or_derived_name(self.profile)))
            question = "Write the files to this folder:"
            self.ask_text(question, folder, self._export_files, list_folder_names=names_in_local_folder)

    def _export_files(self, folder: str, *, overwrite: bool = False) -> None:
        if not folder or self._prepared is None:
            return
        target = expand_home(folder).absolute()
        try:
            run_folders.export_plan_files(target, self._prepared.files, overwrite=overwrite)
        except AlreadyExists as error:
            answers = (("", "No, keep what is there"), ("yes", "Yes, overwrite"))
            question = f"{visible(error.message)}. Overwrite the plan's files there?"
            self.ask_choice(question, answers, lambda _answer: self._export_files(folder, overwrite=True))
        else:
            there = (
                f"Copy it to the machine of {self.wizard.other_machine_name}. "
                if self.wizard.other_machine_name
                else ""
            )
            outside = outside_files_text(self._prepared.profile)
            beside = f" Needed too, at the same paths there: {outside}." if outside else ""
            words = f"Written to {target}. {there}Run it with: bash launch.sh.{beside}"
            self.notify(visible(words), timeout=10, markup=False)


SCREEN = PreviewScreen
