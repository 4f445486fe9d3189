"""Installs an environment in a worker of the app, whatever screen is shown."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace
from textual.worker import get_current_worker

from tui_train.base.errors import TuiTrainError
from tui_train.base.text import capitalised, display_path, visible

from ..discovery.discovery import DiscoveryApp
from ..install.installation import Installation

if TYPE_CHECKING:
    from tui_train.actions.environments.progress import InstallProgress
    from tui_train.checks.finding import EnvironmentInstall
    from tui_train.facts.types import Machine

_MAX_OUTPUT_LINES = 200
_MIN_SECONDS_BETWEEN_REPORTS = 0.3  # seconds between two pictures of what is done


class _NotFollowedError(TuiTrainError):
    """The wizard ends while an environment is being made."""


class EnvironmentInstaller:
    """Installs one environment at a time; the app's `installation` is its state."""

    def __init__(self, app: DiscoveryApp, show: Callable[[Installation], object]) -> None:
        """Begin with none; `show` is called on the app's thread as the state of an installation changes."""
        self._app = app
        self._show = show
        self._cancel, self._leave = threading.Event(), threading.Event()

    @property
    def is_busy(self) -> bool:
        """True while an environment is being made."""
        return bool(self._app.installation and self._app.installation.is_running)

    def install_unless_busy(self, environment: "EnvironmentInstall") -> None:
        """Make an environment, unless one is being made."""
        if self.is_busy or self._app.facts is None:
            return
        self._cancel.clear()
        host = self._app.facts.host
        installation = Installation(title=environment.title, began_at=time.monotonic(), host=host)
        self._app.installation = installation
        work = partial(self._install_in_worker, environment, self._app.facts.machine, installation)
        self._app.run_worker(work, name="install", group="install", thread=True)

    def cancel(self) -> None:
        """End the present installation; what it has made is removed."""
        self._cancel.set()

    def leave(self) -> None:
        """Follow the present installation no longer; it goes on, and the same fix follows it again."""
        self._leave.set()

    def _install_in_worker(
        self, environment: "EnvironmentInstall", machine: "Machine", installation: Installation
    ) -> None:
        reporter, worker = (
            _InstallationReporter(partial(self._app.call_later, self._show), installation),
            get_current_worker(),
        )

        def cancelled() -> bool:
            reporter.report_pending()
            if self._cancel.is_set():
                return True
            # Before its first line it is not known whether it has been started there.
            if self._leave.is_set() and reporter.has_begun:
                raise _NotFollowedError("the installation goes on", "")
            # The worker is cancelled with the app, however that ends.
            return worker.is_cancelled and not self._leave.is_set()

        try:
            reporter.report_end(python=_create_in_free_folder(environment, machine, reporter, cancelled))
        except TuiTrainError as error:
            reporter.report_end(failure=f"{capitalised(error.message)}. {error.remedy}")
        except BaseException:
            reporter.report_end(failure="The installation failed. See its last lines.")
            raise


class _InstallationReporter:
    """Reports the state of an installation to the app, not more often than can be seen."""

    def __init__(self, report: Callable[[Installation], object], installation: Installation) -> None:
        from tui_train.actions.environments.progress import InstallOutputReader

        self._report_state = report
        self._installation = installation
        self._reader = InstallOutputReader()
        self._reported = 0.0
        self._last_reported = installation

    @property
    def host(self) -> str:
        """The host of the environment, empty for this machine."""
        return self._installation.host

    @property
    def has_begun(self) -> bool:
        """True once a line of it has come."""
        return bool(self._installation.lines)

    def report_folder(self, folder: str) -> None:
        """Report the folder of the environment."""
        self._report(replace(self._installation, folder=folder), at_once=True)

    def begin_step(self, line: str) -> None:
        """Add a line that says what is done from now on."""
        self._add_line(line, self._reader.begin_step(visible(line)))

    def add_output_line(self, line: str) -> None:
        """Add a line of uv or pip."""
        self._add_line(line, self._reader.read_line(line))

    def _add_line(self, line: str, progress: "InstallProgress") -> None:
        lines = (*self._installation.lines, visible(line))[-_MAX_OUTPUT_LINES:]
        self._report(replace(self._installation, lines=lines, progress=progress))

    def report_pending(self) -> None:
        """Report what has come since the last report."""
        self._report(self._installation)

    def report_end(self, *, python: str = "", failure: str = "") -> None:
        """Report the Python of the finished environment, or why there is none."""
        seconds = time.monotonic() - self._installation.began_at
        self._report(replace(self._installation, seconds=seconds, python=python, failure=failure), at_once=True)

    def _report(self, installation: Installation, *, at_once: bool = False) -> None:
        self._installation = installation
        if installation is not self._last_reported and (
            at_once or time.monotonic() - self._reported > _MIN_SECONDS_BETWEEN_REPORTS
        ):
            self._reported, self._last_reported = time.monotonic(), installation
            self._report_state(installation)


def _create_in_free_folder(
    environment: "EnvironmentInstall", machine: "Machine", reporter: _InstallationReporter, is_cancelled: Any
) -> str:
    """Make an environment on the reporter's host in a folder that does not exist yet, and return its Python."""
    from tui_train.actions import environments
    from tui_train.actions.environments import create
    from tui_train.facts.gpus.verdicts import recommended_torch_build

    package_set, host = environments.find_package_set(environment.set_name), reporter.host
    installers = create.ask_for_installers(host, package_set, first_free=True)
    reporter.report_folder(installers.folder if host else display_path(installers.folder))
    wheel = create.choose_torch_build(machine, host=host)
    with suppress(TuiTrainError):
        # Whatever index the user has set: it is made for the GPUs.
        wheel = replace(wheel, cuda=wheel.cuda or recommended_torch_build(machine).cuda)
    plan = create.plan_install(host, package_set, installers, wheel)
    create.create_environment(plan, machine, reporter.begin_step, reporter.add_output_line, is_cancelled)
    return str(plan.python)
