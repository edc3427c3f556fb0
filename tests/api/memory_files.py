"""Stores of files in memory for tests; only incoming uploads are on disk."""

from __future__ import annotations

import atexit
import itertools
import shutil
import tempfile
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from rota.api.deps import FileStores
from rota.store.files.artifacts import Outputs
from rota.store.files.uploads import Spool
from rota.store.sqlite.logs_and_files import SqliteObjectIndex
from rota.store.sqlite.memory import MemoryBlobs

_root = Path(tempfile.mkdtemp(prefix="rota-test-spool-"))
_storages: WeakKeyDictionary[SqliteObjectIndex, MemoryBlobs] = WeakKeyDictionary()
_numbers = itertools.count()
atexit.register(shutil.rmtree, _root, ignore_errors=True)


def memory_files(store: Any) -> FileStores:
    """Makes object storage in memory; servers that share a store share it, too."""
    blobs = _storages.setdefault(store.objects, MemoryBlobs())
    return FileStores(
        spool=Spool(_root / str(next(_numbers))),
        outputs=Outputs(store.artifacts, store.objects, blobs),
        objects=store.objects,
        blobs=blobs,
    )
