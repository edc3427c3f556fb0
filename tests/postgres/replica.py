"""A second PostgreSQL that stands by for the first, and can become the primary."""

from __future__ import annotations

import shutil

from tests.postgres.server import PostgresServer, as_user, free_port


class Replica:
    """A copy of a server as of now, in recovery: it answers reads and takes no writes.

    It gets nothing more from the first one: what a failover loses is not what it is for.
    """

    def __init__(self, primary: PostgresServer) -> None:
        self._primary = primary
        self._data = primary.folder / "replica"
        self.port = free_port()
        primary.stop("fast")
        shutil.copytree(primary._data, self._data, copy_function=_copy_owned)
        self._own(self._data)
        (self._data / "standby.signal").touch()
        with (self._data / "postgresql.conf").open("a") as conf:
            conf.write(f"port = {self.port}\nhot_standby = on\n")
        primary.start()
        self._ctl("start", "-l", str(primary.folder / "replica.log"))

    def promote(self) -> None:
        """Makes it the primary, on a timeline of its own."""
        self._ctl("promote")

    def stop(self) -> None:
        self._ctl("stop", "-m", "immediate")

    def _own(self, folder: object) -> None:
        user = self._primary._user
        if user is not None:
            shutil.chown(str(folder), user.pw_uid, user.pw_gid)
            for path in self._data.rglob("*"):
                shutil.chown(path, user.pw_uid, user.pw_gid)

    def _ctl(self, *words: str) -> None:
        command = [str(self._primary._bin / "pg_ctl"), *words, "-w", "-D", str(self._data)]
        done = as_user(command, self._primary._user)
        assert done.returncode == 0, done.stdout


def _copy_owned(source: str, target: str) -> None:
    shutil.copyfile(source, target)
    shutil.copymode(source, target)
