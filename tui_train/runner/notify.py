"""Notices to the user that a run ended, or waits no longer: a command, and a POST; neither holds a run up."""

from __future__ import annotations

import errno
import json
import os
import threading
from typing import Mapping

from .run import StartOutcome
from .run_folder.start import print_message
from .run_folder.supervisor_plan import SupervisorPlan
from .system import other_programs
from .system.safe_open import open_regular_file, user_name
from .system.safe_text import visible
from .system.signals import reset_signals

_NOTICE_TIMEOUT_SECONDS = 30.0  # seconds
_MAX_SHOWN_CHARACTERS = 200
_MAX_ADDRESS_BYTES = 4096
_MAX_DESCRIPTORS = 4096


def notify_user(planned: SupervisorPlan, run_dir: str, outcome: StartOutcome) -> None:
    """Run the command and post to the webhook of a plan; what fails is said and changes nothing."""
    if planned.notify_command:
        variables = {
            "TUI_TRAIN_RUN": run_dir,
            "TUI_TRAIN_STATE": outcome.state,
            "TUI_TRAIN_EXIT_CODE": str(outcome.code),
        }
        _run_notify_command(planned.notify_command, {**os.environ, **variables})
    if planned.notify_webhook:
        _post_to_webhook(planned.notify_webhook, os.path.basename(run_dir), outcome)


def notify_user_in_background(planned: SupervisorPlan, run_dir: str, outcome: StartOutcome) -> None:
    """Notify in a process that is nobody's child, so that it neither holds a training up nor counts as part of it."""
    try:
        pid = os.fork()
    except OSError as error:
        print_message(f"nobody is notified of the start: {error.strerror}")
        return
    if pid == 0:
        try:
            reset_signals()
            if os.fork() == 0:
                # Not the locks, which end with their last descriptor.
                os.closerange(3, _MAX_DESCRIPTORS)
                notify_user(planned, run_dir, outcome)
        finally:
            os._exit(0)
    os.waitpid(pid, 0)


def _run_notify_command(words: tuple[str, ...], environment: Mapping[str, str]) -> None:
    answer = other_programs.run_program(words, _NOTICE_TIMEOUT_SECONDS, environment, interruptible=False)
    if answer.code is None:
        print_message(
            "notify.command: "
            f"{visible(answer.err)[:_MAX_SHOWN_CHARACTERS] or f'it did not end within {_NOTICE_TIMEOUT_SECONDS:g} s'}"
        )
    elif answer.code != 0:
        last_line = visible(answer.err.strip().rpartition("\n")[2])[:_MAX_SHOWN_CHARACTERS]
        print_message(f"notify.command ended with exit code {answer.code}{f': {last_line}' if last_line else ''}")


def webhook_address_and_problem(source: str) -> tuple[str, str]:
    """Return the address in a variable ($NAME) or a file, and what is wrong with it, which never shows the address."""
    if "://" in source or not source.startswith(("/", "$")):
        what = "notify.webhook is neither a variable nor the path of a file"
        return "", f"{what}{_webhook_host_text(source)}: write the address to a file (mode 0600), and name that"
    shown = visible(source)
    try:
        url = os.environ.get(source[1:], "") if source.startswith("$") else _read_private_file(source)
    except OSError as error:
        return "", f"cannot read {shown}: {error.strerror or error}"
    if not url:
        what = "is not set: export it" if source.startswith("$") else "is empty: write the address there"
        return "", f"{shown} {what}, then start again"
    if not url.startswith(("http://", "https://")):
        return "", f"{shown} holds no http:// or https:// address"
    return url, ""


def _webhook_host_text(address: str) -> str:
    """Return in words the host of an address: the rest is secret."""
    from urllib.parse import urlsplit

    try:
        host = urlsplit(address.strip()).hostname
    except ValueError:
        host = None
    return f", but an address at {visible(host)}" if host else ""


def _read_private_file(path: str) -> str:
    """Return the text of a file that is the user's and that only they may read; OSError says why it is not."""
    with open_regular_file(path) as file:
        status = os.fstat(file.fileno())
        if status.st_mode & 0o066:
            what = "read" if status.st_mode & 0o044 else "change"
            raise OSError(errno.EACCES, f"others may {what} it, and it holds a secret: chmod 600 it")
        if status.st_uid not in (os.geteuid(), 0) and not _is_root_in_folder_of_owner(path, status.st_uid):
            raise OSError(errno.EACCES, f"it belongs to {visible(user_name(status.st_uid))}: name a file of yours")
        return file.read(_MAX_ADDRESS_BYTES).decode("utf-8", "replace").strip()


def _is_root_in_folder_of_owner(path: str, owner: int) -> bool:
    """Return whether we are root, as in a container, and the file lies in a folder of its owner, as a mounted home."""
    return os.geteuid() == 0 and os.stat(os.path.dirname(os.path.realpath(path))).st_uid == owner


def _post_to_webhook(source: str, name: str, outcome: StartOutcome) -> None:
    """Post in a thread of its own, which ends with this process: a name server may never answer."""
    url, problem = webhook_address_and_problem(source)
    if problem:
        print_message(f"notify.webhook: {problem}")
        return
    problems: list[str] = ["it did not answer in time"]

    def post_and_keep_problem() -> None:
        problems[0] = _send_post(url, name, outcome)

    thread = threading.Thread(target=post_and_keep_problem, daemon=True)
    thread.start()
    thread.join(_NOTICE_TIMEOUT_SECONDS)
    if problems[0]:
        print_message(f"notify.webhook: {problems[0]}")


def _send_post(url: str, name: str, outcome: StartOutcome) -> str:
    """Send it and return what went wrong, without the address, which is a secret; empty where nothing did."""
    import urllib.error
    import urllib.request

    words = f"{visible(name)} {outcome.state}"
    # Slack and Mattermost show `text`, Discord `content`.
    payload = {"run": name, "state": outcome.state, "exit_code": outcome.code, "text": words, "content": words}
    headers = {"Content-Type": "application/json", "User-Agent": "tui-train"}
    try:
        request = urllib.request.Request(url, json.dumps(payload).encode(), headers)  # noqa: S310 - http alone, see above
        with urllib.request.urlopen(request, timeout=_NOTICE_TIMEOUT_SECONDS / 2):  # noqa: S310
            return ""
    except urllib.error.HTTPError as error:
        return f"the server answered {error.code}"
    except urllib.error.URLError as error:
        return visible(str(error.reason))[:_MAX_SHOWN_CHARACTERS]
    except Exception as error:  # noqa: BLE001 - nothing that goes wrong here is worth a run's exit code
        return type(error).__name__
