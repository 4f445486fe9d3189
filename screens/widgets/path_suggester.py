"""Completes a path as it is typed, by what is in its folder."""

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from textual.suggester import Suggester

from tui_train.base.text import visible
from tui_train.facts.machine.folder_names import names_in_local_folder

# A host that does not answer must not hold the threads that all workers share.
_COMPLETION_EXECUTOR = ThreadPoolExecutor(1)
# Returns the names in a folder, folders with a slash.
ListFolderNames = Callable[[str], list[str]]


class PathSuggester(Suggester):
    """Completes a path by what is in its folder, found while nobody waits."""

    def __init__(
        self,
        separator: str = "",
        names: tuple[str, ...] = (),
        *,
        list_folder_names: ListFolderNames | None = names_in_local_folder,
    ) -> None:
        """Complete the whole text, or what follows the last separator; to one of these names first, or only."""
        super().__init__(use_cache=False, case_sensitive=True)
        self._separator = separator
        self._names = names
        self._list_folder_names = list_folder_names
        self._candidates: tuple[str, tuple[str, ...]] = ("", ())

    async def get_suggestion(self, value: str) -> str | None:
        """Return the text completed, or nothing."""
        if named := next((name for name in self._names if value and name != value and name.startswith(value)), ""):
            return named
        if not self._list_folder_names:
            return None
        before, separator, path = value.rpartition(self._separator) if self._separator else ("", "", value)
        space = path[: len(path) - len(path.lstrip())]
        loop = asyncio.get_running_loop()
        names = await loop.run_in_executor(
            _COMPLETION_EXECUTOR, names_that_path_may_mean, path.strip(), self._list_folder_names
        )
        start = f"{before}{separator}{space}{path.strip()}"
        folder = start[: len(start) - len(path.strip().rpartition("/")[2])]
        self._candidates = value, tuple(f"{folder}{name}" for name in names)
        completed = f"{folder}{os.path.commonprefix(names)}"  # noqa: RUF071 - what the names begin with is meant
        return completed if len(completed) > len(start) else None

    def candidates(self, value: str) -> tuple[str, ...]:
        """Return the texts that a value may be completed to, as far as they were found by now; of none all names."""
        if not value:
            return self._names
        return self._candidates[1] if self._candidates[0] == value else ()


def names_that_path_may_mean(path: str, list_folder_names: ListFolderNames) -> list[str]:
    """Return the names in its folder with which a path may go on, in their order, hidden ones only once begun."""
    folder, slash, start = path.rpartition("/")
    if not path or path == "~":
        return []
    names = list_folder_names(f"{folder}{slash}")
    may_be_meant = (name for name in names if name.startswith(start) and (start or not name.startswith(".")))
    return sorted(name for name in may_be_meant if visible(name) == name)
