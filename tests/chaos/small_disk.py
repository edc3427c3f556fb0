"""A small file system for a database, to fill it without filling the machine's disk."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path

SIZE = 512 * 1024 * 1024
PIECE = 4 * 1024 * 1024


class NoDiskError(Exception):
    """This machine does not allow a small disk."""


class SmallDisk:
    """A file system in a file, or in memory if there are no loop devices."""

    def __init__(self) -> None:
        if os.geteuid() != 0:
            raise NoDiskError("only root may mount a file system")
        # Not in the test's own folder: the database's user may not go there.
        self._folder = Path(tempfile.mkdtemp(prefix="rota-disk-"))
        self._folder.chmod(0o755)
        self.path = self._folder / "disk"
        self.path.mkdir()
        self._image = self._folder / "disk.img"
        self._ballast = self.path / "ballast"
        if not self._mount_image() and not _quiet(
            "mount", "-t", "tmpfs", "-o", f"size={SIZE}", "none", str(self.path)
        ):
            shutil.rmtree(self._folder)
            raise NoDiskError("this machine mounts neither a loop device nor a tmpfs")
        self.path.chmod(0o755)

    def _mount_image(self) -> bool:
        with self._image.open("wb") as image:
            image.truncate(SIZE)
        return _quiet("mkfs.ext4", "-q", "-m", "0", str(self._image)) and _quiet(
            "mount", "-o", "loop", str(self._image), str(self.path)
        )

    def fill(self) -> int:
        taken = 0
        with self._ballast.open("ab", buffering=0) as ballast:
            size = PIECE
            while size:
                try:
                    taken += ballast.write(bytes(size))
                except OSError as full:
                    if full.errno != errno.ENOSPC:
                        raise
                    size //= 2
        return taken

    def free(self) -> None:
        with suppress(FileNotFoundError):
            self._ballast.unlink()

    def close(self) -> None:
        _quiet("umount", "--lazy", str(self.path))
        shutil.rmtree(self._folder, ignore_errors=True)


def _quiet(*command: str) -> bool:
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False
