"""Where a test's server keeps files: in memory, but for uploads on their way in."""

from __future__ import annotations

import atexit
import itertools
import shutil
import tempfile
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from rota.api.files import Files
from rota.store.memory_objects import MemoryBlobs, MemoryObjects
from rota.store.outputs import Outputs
from rota.store.spool import Spool

_root = Path(tempfile.mkdtemp(prefix="rota-test-spool-"))
_storages: WeakKeyDictionary[MemoryObjects, MemoryBlobs] = WeakKeyDictionary()
_numbers = itertools.count()
atexit.register(shutil.rmtree, _root, ignore_errors=True)


def memory_files(store: Any) -> Files:
    """Object storage in memory; servers that share a store share it, too."""
    blobs = _storages.setdefault(store.objects, MemoryBlobs())
    return Files(
        spool=Spool(_root / str(next(_numbers))),
        outputs=Outputs(store.artifacts, store.objects, blobs),
        book=store.objects,
        blobs=blobs,
    )
