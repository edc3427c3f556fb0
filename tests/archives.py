"""Archives for tests, good and hostile."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Mapping


def tar_of(files: Mapping[str, bytes], how: str = "", mode: int = 0o755) -> bytes:
    members = []
    for name, content in files.items():
        member = tarfile.TarInfo(name)
        member.size, member.mode = len(content), mode
        members.append((member, content))
    return tar_with(*members, how=how)


def tar_with(*members: tuple[tarfile.TarInfo, bytes], how: str = "") -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode=f"w:{how}") as tar:  # type: ignore[call-overload]
        for member, content in members:
            tar.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def special(name: str, kind: bytes, target: str = "") -> tuple[tarfile.TarInfo, bytes]:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member, b""


def zip_of(files: Mapping[str, bytes], attributes: int = 0o755 << 16) -> bytes:
    """A zip of plain files; `attributes` are their permissions and kind."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name)
            entry.external_attr = attributes
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, content)
    return packed.getvalue()
