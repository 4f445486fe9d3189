"""The code that a run started from: its commit, and the patch that makes of it what ran."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from tui_train.base.parse import Unparsable, parse_json_as, read_file_to_parse
from tui_train.base.text import names_text, quantity, visible
from tui_train.runs.remote_run import read_run_location
from tui_train.runs.run_folders import RunFolder

CODE_FILE_NAME, PATCH_FILE_NAME = "code.json", "code.diff"
_MAX_CODE_FILE_BYTES = 4 << 20
_SHORT_ID_LENGTH = 12
_MAX_NAMES = 5
GitId = Annotated[str, Meta(pattern="^[0-9a-f]{0,64}$")]


class ChangedFile(Struct, frozen=True):
    """A file that differs from the commit, and the git id of its content (empty: deleted)."""

    name: str
    id: GitId


class LeftOutFile(Struct, frozen=True):
    """A file that differs from the commit and is not in the patch, and why."""

    name: str
    why: str


class RunCode(Struct, frozen=True, kw_only=True):
    """The project of a script as it was when its run was started.

    `problem` is why there is no commit, or no patch of the changes; it `is_late` where a start did not wait for them.
    `host` is the machine that has the repository (empty: this one), `sent_to` one to which the project was sent.
    """

    script: str = ""
    folder: str = ""
    commit: GitId = ""
    branch: str = ""
    shallow: bool = False
    problem: str = ""
    is_late: bool = False
    changed: tuple[ChangedFile, ...] = ()
    left_out: tuple[LeftOutFile, ...] = ()
    left_out_more: int = 0
    host: str = ""
    sent_to: str = ""

    @property
    def short_commit(self) -> str:
        """The commit as git shortens it."""
        return self.commit[:_SHORT_ID_LENGTH]

    @property
    def commit_and_changes_text(self) -> str:
        """Commit and changes in words, or why they are not known."""
        if not self.commit:
            return f"not kept: {visible(self.problem) or 'no commit'}"
        branch = f" ({visible(self.branch)})" if self.branch else ""
        shallow = ", shallow clone" if self.shallow else ""
        sent = f", sent to {visible(self.sent_to)}" if self.sent_to else ""
        return f"{self.short_commit}{branch}{shallow}, {self._changes_text()}{sent}"

    def _changes_text(self) -> str:
        if self.problem:
            return f"changes not kept: {visible(self.problem)}"
        if not self.changed:
            return "no changes kept" if self.left_out else "no changes"
        names = names_text([visible(file.name) for file in self.changed], _MAX_NAMES)
        return f"{quantity(len(self.changed), 'file')} changed: {names}"

    @property
    def left_out_text(self) -> str:
        """Changed files that are not in the patch, in words; empty for none."""
        named = [f"{visible(file.name)} ({visible(file.why)})" for file in self.left_out]
        return names_text([*named, *[""] * self.left_out_more], _MAX_NAMES)

    def restore_command(self, run_folder: str) -> str:
        """Return the command that restores the project in a new folder, on the machine that has the repository.

        `run_folder` is that of the run on that machine. Empty where no commit is known.
        """
        if not self.commit:
            return ""
        # git takes a relative NEW_FOLDER as one below the first -C, both times.
        git = f"git -C {shlex.quote(self.folder)}"
        commands = [f"{git} worktree add --detach NEW_FOLDER {self.commit}"]
        apply = f"{git} -C NEW_FOLDER apply --whitespace=nowarn"
        patch = shlex.quote(f"{run_folder}/{PATCH_FILE_NAME}")
        if any(file.name.rpartition("/")[2] == ".gitattributes" for file in self.changed):
            # By these the line ends of the other files are written.
            commands += [f"{apply} {way}='*.gitattributes' {patch}" for way in ("--include", "--exclude")]
        elif self.changed:
            commands.append(f"{apply} {patch}")
        return " && ".join(commands)


def read_run_code(run_folder: Path) -> RunCode | None:
    """Return the code of a run; None where it was started from none of the user's own, or the file is damaged."""
    try:
        return parse_json_as(read_file_to_parse(run_folder / CODE_FILE_NAME, _MAX_CODE_FILE_BYTES), RunCode)
    except Unparsable:
        return None


def labelled_code_texts(run: RunFolder) -> tuple[tuple[str, str], ...]:
    """Return what is known of the code of a run, each a label and safe words; nothing without code of the user's."""
    if (code := read_run_code(run.path)) is None:
        return ()
    texts = [("Code", code.commit_and_changes_text)]
    if code.left_out:
        texts.append(("Not kept", code.left_out_text))
    if code.commit:
        there = read_run_location(run.path).folder if code.host else str(run.path)
        label = f"Restore on {visible(code.host)}" if code.host else "Restore"
        texts.append((label, visible(code.restore_command(there))))
    return tuple(texts)


def code_not_kept_in_time_text(run_folder: Path) -> str:
    """Return in a line what a run does not keep of its code because reading it took too long; empty for nothing."""
    code = read_run_code(run_folder)
    if code is None or not code.is_late:
        return ""
    what = "uncommitted changes of your project are" if code.commit else "code of your project is"
    return f"The {what} not kept with the run: {visible(code.problem)}"


def state_text_by_changed_file(code: RunCode) -> Mapping[str, str]:
    """Return what is known of each file that differs from the commit, by its name, in words."""
    states = {file.name: f"changed {file.id[:_SHORT_ID_LENGTH]}" if file.id else "deleted" for file in code.changed}
    return {**states, **{file.name: f"not kept: {visible(file.why)}" for file in code.left_out}}
