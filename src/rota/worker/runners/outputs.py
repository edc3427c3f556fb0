"""What a job left in its output folder and the folders in it: which of it is kept, and as what."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rota.wire.limits import OUTPUT_DEPTH_MAX, OUTPUT_FILES_MAX, OUTPUT_NAME_BYTES_MAX

_UNNAMEABLE = re.compile(r"[\x00-\x1f\x7f\\]")
"""What servers allow in no name of an output file."""
NOTED_MAX = 100
"""What is not kept is named in the log up to so often; the rest is counted."""


@dataclass(slots=True)
class OutputFiles:
    """All that lies there."""

    files: dict[str, Path] = field(default_factory=dict)
    """What is kept, by name: the way down to it, with slashes."""
    others: list[str] = field(default_factory=list)
    """What is not, and why, in words."""


def find_outputs(
    folder: Path, files_max: int = OUTPUT_FILES_MAX, noted_max: int = NOTED_MAX
) -> OutputFiles:
    """Those of a job that has ended. No link is followed, so that nothing outside is taken along;
    and what no server takes is not offered to one: a refusal would fail the job."""
    found, unnoted = OutputFiles(), 0
    if not _is_still_a_folder(folder):
        # A container that sees only its own folder could have put a link to the machine's there.
        found.others.append("ROTA_ARTIFACTS is no folder any more, or is locked: nothing is kept")
        return found
    for name, why in _walk(folder, ""):
        if why is None and len(found.files) < files_max:
            found.files[name] = folder / name
        elif len(found.others) < noted_max:
            shown = name if name.isprintable() else repr(name)
            limit = f"there are more than {files_max} files"
            found.others.append(f"{shown} in ROTA_ARTIFACTS is not kept: {why or limit}")
        else:
            unnoted += 1
    if unnoted:
        found.others.append(f"{unnoted} more in ROTA_ARTIFACTS are not kept")
    return found


def _is_still_a_folder(folder: Path) -> bool:
    try:
        return stat.S_ISDIR(folder.lstat().st_mode) and os.access(folder, os.R_OK | os.X_OK)
    except FileNotFoundError:
        return False


def _walk(folder: Path, above: str, depth: int = 1) -> Iterator[tuple[str, str | None]]:
    """Everything by its name, and why it is not kept; None: it is."""
    with os.scandir(folder) as entries:
        ordered = sorted(entries, key=lambda entry: entry.name)
    for entry in ordered:
        name = f"{above}{entry.name}"
        is_folder = entry.is_dir(follow_symlinks=False)
        why = _why_not_kept(entry, name, is_folder=is_folder)
        if why is not None or not is_folder:
            yield name, why
        elif depth >= OUTPUT_DEPTH_MAX:
            yield name, f"it is in more than {OUTPUT_DEPTH_MAX - 1} folders"
        else:
            try:
                yield from _walk(folder / entry.name, f"{name}/", depth + 1)
            except OSError as error:
                yield name, f"it cannot be read: {error.strerror}"


def _why_not_kept(entry: os.DirEntry[str], name: str, *, is_folder: bool) -> str | None:
    if entry.name[0] == "." or not (is_folder or entry.is_file(follow_symlinks=False)):
        return "it is hidden or not a plain file"
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        return "its name is not UTF-8"
    if _UNNAMEABLE.search(entry.name):
        return "its name has a backslash or a control character"
    if size > OUTPUT_NAME_BYTES_MAX:
        return f"its name, with its folders, has more than {OUTPUT_NAME_BYTES_MAX} bytes"
    return None
