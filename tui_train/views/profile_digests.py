"""Saved profiles as a list shows them: each is read once and kept until its file changes."""

import os
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from tui_train.base.app_paths import last_profile_file, profiles_folder
from tui_train.base.files import read_error_reason
from tui_train.base.parse import Unparsable, parse_toml_table, read_file_to_parse, type_prepared_for_msgspec
from tui_train.base.text import visible
from tui_train.profile.types import Profile
from tui_train.setup.profile_summary import TrainingSummary, training_summary

_MAX_PROFILE_BYTES = 1 << 20


class ProfileDigest(Struct, frozen=True, kw_only=True):
    """Saved profile as a list shows it: `damage` says why it cannot be read."""

    name: str
    summary: TrainingSummary = TrainingSummary()
    devices: str = ""
    damage: str = ""


class ProfileDigestCache:
    """Reads profiles, and keeps what does not change."""

    def __init__(self) -> None:
        """Begin with nothing read."""
        self._profiles: dict[str, tuple[int, ProfileDigest]] = {}
        self._draft: tuple[int, ProfileDigest | None] | None = None

    def saved_digests(self, *, read_files: bool = True) -> tuple[ProfileDigest, ...]:
        """Return the saved profiles by their names; without `read_files` only what was read before, and their names."""
        try:
            with os.scandir(profiles_folder()) as entries:
                paths = sorted(entry.path for entry in entries if entry.name.endswith(".toml"))
        except OSError:
            return ()
        if not read_files:
            known = ((path, self._profiles.get(Path(path).stem)) for path in paths)
            return tuple(kept[1] if kept else ProfileDigest(name=Path(path).stem) for path, kept in known)
        return tuple(self._saved_profile_digest(Path(path)) for path in paths)

    def draft_digest(self) -> ProfileDigest | None:
        """Return what was edited last; None where nothing was, or nothing but defaults."""
        path = last_profile_file()
        try:
            changed = path.stat().st_mtime_ns
        except OSError:
            return None
        if self._draft is None or self._draft[0] != changed:
            found, profile, _ = read_summary_and_profile(path)
            digest = ProfileDigest(name=profile.name, summary=found) if profile and profile != Profile() else None
            self._draft = changed, digest
        return self._draft[1]

    def _saved_profile_digest(self, path: Path) -> ProfileDigest:
        try:
            changed = path.stat().st_mtime_ns
        except OSError as error:
            return ProfileDigest(name=path.stem, damage=read_error_reason(error))
        kept = self._profiles.get(path.stem)
        if kept is None or kept[0] != changed:
            kept = changed, _read_profile_digest(path)
            self._profiles[path.stem] = kept
        return kept[1]


def read_summary_and_profile(path: Path) -> tuple[TrainingSummary, Profile | None, str]:
    """Return what a profile's file is about, without the checks that a start makes; and why it cannot be read."""
    try:
        data: dict[str, Any] = parse_toml_table(read_file_to_parse(path, _MAX_PROFILE_BYTES))
        profile = msgspec.convert(data, type_prepared_for_msgspec(Profile))
    except (Unparsable, msgspec.ValidationError, RecursionError) as error:
        return TrainingSummary(), None, visible(str(error))[:200]
    return training_summary(profile), profile, ""


def _read_profile_digest(path: Path) -> ProfileDigest:
    found, profile, damage = read_summary_and_profile(path)
    if profile is None:
        return ProfileDigest(name=path.stem, damage=damage)
    gpus, processes = len(profile.hardware.gpus), profile.hardware.processes
    count = gpus or processes
    devices = "CPU" if profile.hardware.device == "cpu" else f"{count} GPUs" if count > 1 else "1 GPU" if gpus else ""
    if (machines := profile.nodes.machine_count) > 1:
        devices = (
            f"{machines} × {devices}" if devices and not profile.nodes.uneven_processes else f"{machines} machines"
        )
    return ProfileDigest(name=path.stem, summary=found, devices=devices)
