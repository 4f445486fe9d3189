"""The part of the wizard that makes an environment: the work goes on whatever screen is shown, and ends with it."""

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace
from textual import on, work
from textual.message import Message
from textual.reactive import reactive
from textual.worker import get_current_worker

from tui_train.base.errors import TuiTrainError
from tui_train.base.text import display_path, visible

from ..discovery.discovery import shared_with_screens
from ..install.installation import Installation
from ..messages import ValueChosen
from .navigation import NavigationApp

if TYPE_CHECKING:
    from tui_train.actions.environments.progress import InstallProgress
    from tui_train.actions.machine_facts import MachineSource
    from tui_train.checks.finding import EnvironmentInstall
    from tui_train.facts.types import Machine

_MAX_LINES = 200
_REPORT_SECONDS = 0.3  # seconds between two pictures of what is done


@dataclass
class InstallationChanged(Message):
    """An installation goes on, or has ended."""

    now: Installation


class InstallingApp(NavigationApp):
    """An app that makes one environment at a time; `installation` is what it has come to, None before the first."""

    installation: reactive[Installation | None] = reactive(None, init=False, repaint=False)

    def __init__(self, source: "MachineSource | None" = None) -> None:
        super().__init__(source)
        self._cancel = threading.Event()

    watch_installation = shared_with_screens("installation")

    @property
    def is_installing(self) -> bool:
        """True while an environment is being made."""
        return bool(self.installation and self.installation.is_running)

    def install(self, wanted: "EnvironmentInstall") -> None:
        """Make an environment, unless one is being made, and show what is done."""
        if not self.is_installing and self.facts is not None:
            self._cancel.clear()
            self.installation = Installation(title=wanted.title, began_at=time.monotonic())
            self._make_in_worker(wanted, self.facts.machine, self.installation)
        self.show_installation()

    def show_installation(self) -> None:
        """Show the present installation."""
        from ..install.screen import InstallScreen

        if not self._shows_installation():
            self._push_shared(InstallScreen(self.cancel_installation))

    def _shows_installation(self) -> bool:
        from ..install.screen import InstallScreen

        return isinstance(self.screen, InstallScreen)

    def cancel_installation(self) -> None:
        """End the present installation; what it has made is removed."""
        self._cancel.set()

    @work(thread=True, group="install")
    def _make_in_worker(self, wanted: "EnvironmentInstall", machine: "Machine", now: Installation) -> None:
        reporter, worker = _Reporter(self, now), get_current_worker()

        def cancelled() -> bool:
            reporter.catch_up()
            # The worker is cancelled with the app, however that ends.
            return self._cancel.is_set() or worker.is_cancelled

        try:
            reporter.finish(_make_environment(wanted, machine, reporter, cancelled))
        except TuiTrainError as error:
            reporter.fail(error)
        except BaseException:
            reporter.fail(TuiTrainError("the installation failed", "See its last lines."))
            raise

    @on(InstallationChanged)
    def _take_installation(self, event: InstallationChanged) -> None:
        before, self.installation = self.installation, event.now
        if event.now.python and before and before.is_running:
            self.post_message(ValueChosen("trainer.python", event.now.python))
            words = f"{visible(display_path(event.now.python))} trains from now on. Ctrl+Z takes it back."
            self.notify(words, markup=False)
        elif event.now.failure and before and before.is_running and not self._shows_installation():
            self.notify(visible(event.now.failure), severity="error", timeout=10, markup=False)


class _Reporter:
    """Reports the state of an installation to the app, not more often than can be seen."""

    def __init__(self, app: InstallingApp, now: Installation) -> None:
        from tui_train.actions.environments.progress import InstallOutputReader

        self._app = app
        self._now = now
        self._reader = InstallOutputReader()
        self._reported = 0.0
        self._last_reported = now

    def set_place(self, place: str) -> None:
        """Name the folder."""
        self._report(replace(self._now, place=place), at_once=True)

    def begin_step(self, line: str) -> None:
        """Add a line that says what is done from now on."""
        self._add(line, self._reader.begin_step(visible(line)))

    def follow(self, line: str) -> None:
        """Add a line of uv or pip."""
        self._add(line, self._reader.read_line(line))

    def _add(self, line: str, progress: "InstallProgress") -> None:
        lines = (*self._now.lines, visible(line))[-_MAX_LINES:]
        self._report(replace(self._now, lines=lines, progress=progress))

    def catch_up(self) -> None:
        """Report what has come since the last report."""
        self._report(self._now)

    def finish(self, python: str) -> None:
        """Say that it is there."""
        self._end(python=python)

    def fail(self, error: TuiTrainError) -> None:
        """Say why there is none."""
        self._end(failure=f"{error.message[:1].upper()}{error.message[1:]}. {error.remedy}")

    def _end(self, **how: Any) -> None:
        self._report(replace(self._now, seconds=time.monotonic() - self._now.began_at, **how), at_once=True)

    def _report(self, now: Installation, *, at_once: bool = False) -> None:
        self._now = now
        if now is not self._last_reported and (at_once or time.monotonic() - self._reported > _REPORT_SECONDS):
            self._reported, self._last_reported = time.monotonic(), now
            self._app.post_message(InstallationChanged(now))


def _make_environment(wanted: "EnvironmentInstall", machine: "Machine", reporter: _Reporter, cancelled: Any) -> str:
    """Make an environment in a folder that does not exist yet, and return its Python."""
    from tui_train.actions import environments
    from tui_train.actions.environments import create
    from tui_train.base.app_paths import environments_folder
    from tui_train.facts.gpus.verdicts import recommended_wheel

    package_set = environments.find_package_set(wanted.set_name)
    place = create.first_free_path(environments_folder() / package_set.name)
    reporter.set_place(display_path(str(place)))
    wheel = create.choose_torch_build(machine, "")
    plan = create.plan_install(package_set, place, create.find_supported_python(package_set), wheel, create.find_uv())
    # Whatever index the user has set: it is made for the GPUs.
    plan = replace(plan, cuda=plan.cuda or recommended_wheel(machine).cuda)
    create.create_environment(plan, machine, reporter.begin_step, reporter.follow, cancelled)
    return str(plan.python)
