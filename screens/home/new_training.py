"""Starting a new training from Home: a start option, or a path, model name or command that is pasted or typed."""

from typing import TYPE_CHECKING

from textual import work
from textual.events import Paste

from tui_train.base.errors import TuiTrainError
from tui_train.base.text import visible

from ..base import WizardScreen
from ..messages import OpenStep, SetProfile
from ..widgets.text_layout import MUTED, styled
from .start_options import START_OPTIONS

if TYPE_CHECKING:
    from tui_train.actions.command_import.table import Import
    from tui_train.profile.types import Profile
    from tui_train.runs.run_folders import RunFolder

_PATH_QUESTION = """Data, a .py script, a .toml profile, a model (folder or ORG/NAME), or a torchrun command:

Separate several files, or a model and its data, with spaces."""


class ScreenWithNewTraining(WizardScreen):
    """A screen from which a new training is started."""

    def open_step_with_profile(
        self,
        profile: "Profile",
        step: str = "hardware",
        *,
        save_as_draft: bool = True,
        notice: str = "",
        run: "RunFolder | None" = None,
    ) -> None:
        """Open a step with a profile, and say something there."""
        self.post_message(SetProfile(profile, save_as_draft=save_as_draft, run=run))
        self.post_message(OpenStep(step, self, notice))

    def action_choose_start_option(self) -> None:
        """Ask for one of the start options; a path or a command can be pasted there as well."""
        answers = {each.key: styled((each.title, "b"), (f"\n{each.note}", MUTED)) for each in START_OPTIONS}

        def start(answer: str) -> None:
            if answer in answers:
                self.open_start_option(answer)
            else:
                self.open_pasted_text(answer)

        self.ask_choice("New training", answers.items(), start).takes_paste = True

    def open_start_option(self, option_key: str) -> None:
        """Open the first step of a start option, with defaults; the draft stays until one is changed."""
        from tui_train.profile.fields import profile_with_value
        from tui_train.profile.types import Profile

        if option_key in {"finetune", "script"}:
            self.open_step_with_profile(profile_with_value(Profile(), "trainer.kind", option_key), save_as_draft=False)
        elif option_key == "quickstart":
            self.open_step_with_profile(Profile(), "preview", save_as_draft=False)
        elif option_key == "open":
            self._ask_path()

    def on_paste(self, event: Paste) -> None:
        """Open what is pasted, as if it were typed for the question."""
        event.stop()
        if event.text.strip():
            self.open_pasted_text(event.text)

    @work(thread=True, group="paste", exclusive=True)
    def open_pasted_text(self, text: str) -> None:
        """Open what a text begins, or ask about a command; where that is nothing, ask on with the text at hand."""
        try:
            if imported := _import_of_text(text):
                self.call_later(self._ask_import, imported)
                return
            profile, notice = _profile_and_notice_of_text(text)
        except TuiTrainError as error:
            self.call_later(self._ask_path, " ".join(text.splitlines()), error)
        else:
            self.call_later(self.open_step_with_profile, profile, save_as_draft=False, notice=notice)

    def _ask_import(self, imported: "Import") -> None:
        """Show what becomes of each word of a command, and open the steps where that is taken."""
        from .import_dialog import ImportDialog

        def answered(is_taken: bool | None) -> None:
            if is_taken:
                notice = f"A draft named {imported.profile.name}: Enter on Preview starts it, s there saves it."
                self.open_step_with_profile(imported.profile, save_as_draft=False, notice=visible(notice))

        if self.app.screen is self:
            self.app.push_screen(ImportDialog(imported), answered)

    def _ask_path(self, text: str = "", refusal: TuiTrainError | None = None) -> None:
        """Ask for a path or a model's name until it begins something."""
        from tui_train.facts.machine.folder_names import names_in_local_folder

        recognised: list[Profile] = []
        commands: list[Import] = []

        def recognise(typed: str) -> str:
            commands[:] = filter(None, (_import_of_text(typed),))
            if commands:
                return ""
            profile, notice = _profile_and_notice_of_text(typed)
            recognised[:] = [profile]
            return notice

        def answered(notice: str) -> None:
            if commands:
                self._ask_import(commands[0])
            else:
                self.open_step_with_profile(recognised[0], save_as_draft=False, notice=notice)

        if self.app.screen is self:
            names = names_in_local_folder
            self.ask_text(_PATH_QUESTION, text, answered, change=recognise, list_folder_names=names, refusal=refusal)


def _import_of_text(text: str) -> "Import | None":
    """Return what a command or the file of one means, None for what is neither; for a worker: disks may be slow.

    A script that is not in the current folder is looked for above it and in the home folder.
    """
    from pathlib import Path

    from tui_train.actions.command_import import imports
    from tui_train.profile.fields import absolute_path
    from tui_train.runner.system.paths import path_state

    path = absolute_path(text.strip(), Path.cwd()) if text.strip().endswith(imports.IMPORTABLE_SUFFIXES) else ""
    if path and path_state(path) == "file":
        return imports.import_file(Path(path), Path.cwd())
    if not imports.looks_like_command(text):
        return None
    imported = imports.import_text(text, Path.cwd())
    if _is_script_missing(imported.profile):
        above = (folder for folder in Path.cwd().parents if folder.is_relative_to(Path.home()))
        elsewhere = (imports.import_text(text, folder) for folder in dict.fromkeys((*above, Path.home())))
        found = next((each for each in elsewhere if not _is_script_missing(each.profile)), None)
        return _import_noting_script_elsewhere(found) if found else imported
    return imported


def _import_noting_script_elsewhere(imported: "Import") -> "Import":
    """Return an import that says of its script that it is not in the current folder."""
    from msgspec.structs import replace

    rows = (
        replace(row, text=f"{row.text}, not in the current folder") if row.text.startswith("trainer.script=") else row
        for row in imported.rows
    )
    return replace(imported, rows=tuple(rows))


def _is_script_missing(profile: "Profile") -> bool:
    from tui_train.runner.system.paths import path_state

    is_here = not profile.hardware.host and profile.container.engine == "none"
    return bool(profile.trainer.script) and is_here and path_state(profile.trainer.script) == "missing"


def _profile_and_notice_of_text(text: str) -> "tuple[Profile, str]":
    """Return the profile that a text begins, and what was recognised; for a worker: disks may be slow."""
    from tui_train.actions.pasted_text import profile_content_text, profile_from_pasted_text

    profile = profile_from_pasted_text(text)
    return profile, profile_content_text(profile)
