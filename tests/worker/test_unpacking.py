"""Archives, hostile and harmless, as the unpacking program treats them."""

from __future__ import annotations

import gzip
import stat
import struct
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from rota.worker import unpacking
from tests.archives import special, tar_of, tar_with, zip_of

SYM, LINK = tarfile.SYMTYPE, tarfile.LNKTYPE
FILE = (tarfile.TarInfo("real"), b"")


def unpack(
    archive: bytes, folder: Path, kind: str = "tar", bytes_max: int = 10_000_000, files: int = 100
) -> str:
    """What the program says; nothing if all is well."""
    folder.mkdir(exist_ok=True)
    source = folder.parent / "archive"
    source.write_bytes(archive)
    args = [kind, str(folder), str(bytes_max), str(files)]
    with source.open("rb") as file:
        done = subprocess.run(
            [sys.executable, "-I", "-S", unpacking.__file__, *args],
            stdin=file, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
    assert not done.stderr, done.stderr
    assert (done.returncode == 0) == (not done.stdout)
    return done.stdout.strip()


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.mark.parametrize("how", ["", "gz", "bz2", "xz"])
def test_a_tar_is_unpacked_however_it_is_compressed(tmp_path: Path, how: str) -> None:
    big = bytes(range(256)) * 5000
    members = [
        special("bin", tarfile.DIRTYPE),
        special("bin/latest", SYM, "run.sh"),
        special("lib", tarfile.DIRTYPE),
        special("lib/top", SYM, "../bin/run.sh"),
    ]
    script = tarfile.TarInfo("./bin/run.sh")
    script.size, script.mode = 3, 0o4755
    data = tarfile.TarInfo("data.bin")
    data.size, data.mode = len(big), 0o644
    archive = tar_with(
        *members, (script, b"#!x"), (data, big), special("same", LINK, "data.bin"), how=how
    )
    assert unpack(archive, tmp_path / "to") == ""
    folder = tmp_path / "to"
    assert names(folder) == [
        "bin",
        "bin/latest",
        "bin/run.sh",
        "data.bin",
        "lib",
        "lib/top",
        "same",
    ]
    assert (folder / "lib/top").read_bytes() == b"#!x"
    assert (folder / "same").read_bytes() == big
    assert stat.S_IMODE((folder / "bin/run.sh").stat().st_mode) == 0o700, "no set-user-id bit"
    assert stat.S_IMODE((folder / "data.bin").stat().st_mode) == 0o600


def test_a_zip_is_unpacked_with_its_permissions(tmp_path: Path) -> None:
    archive = zip_of({"a/run.sh": b"#!x", "a/b/": b""}, 0o100755 << 16)
    assert unpack(archive, tmp_path / "to", "zip") == ""
    assert stat.S_IMODE((tmp_path / "to/a/run.sh").stat().st_mode) == 0o700
    assert unpack(zip_of({"run.sh": b"x"}, 0x20), tmp_path / "dos", "zip") == ""
    assert stat.S_IMODE((tmp_path / "dos/run.sh").stat().st_mode) == 0o700


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ([special("/etc/cron.d/x", tarfile.REGTYPE)], "not allowed"),
        ([special("../x", tarfile.REGTYPE)], "leads out"),
        ([special("a/../../x", tarfile.REGTYPE)], "leads out"),
        ([special("a\\..\\x", tarfile.REGTYPE)], "not allowed"),
        ([special("d" + "/d" * 70, tarfile.DIRTYPE)], "too deep"),
        ([special("x", SYM, "/etc/passwd")], "leads out"),
        ([special("x", SYM, "../y")], "leads out"),
        ([special("a/b/x", SYM, "../../../y")], "leads out"),
        ([special("x", SYM, "")], "leads out"),
        ([special("x", LINK, "/etc/passwd")], "not allowed"),
        ([special("x", LINK, "../y")], "leads out"),
        ([special("x", LINK, "nothing")], "not a file in it"),
        ([special("dev", tarfile.CHRTYPE)], "device"),
        ([special("dev", tarfile.BLKTYPE)], "device"),
        ([special("fifo", tarfile.FIFOTYPE)], "device"),
        ([FILE, FILE], "twice"),
        ([FILE, special("real/x", tarfile.REGTYPE)], "used as a folder"),
    ],
)
def test_a_tar_entry_outside_of_the_folder_is_refused(
    tmp_path: Path, members: list[tuple[tarfile.TarInfo, bytes]], said: str
) -> None:
    assert said in unpack(tar_with(*members), tmp_path / "to")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["archive", "to"]


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    inside = special("here", SYM, "real-dir")
    archive = tar_with(special("real-dir", tarfile.DIRTYPE), inside, special("here/x", b"0"))
    assert "used as a folder" in unpack(archive, tmp_path / "one")
    # Each step stays inside by itself; the second would begin at the first one's target.
    chain = [
        special("p/q/r", tarfile.DIRTYPE),
        special("p/q/r/top", SYM, "../../.."),
        special("p/q/r/out", SYM, "top/../../escaped"),
    ]
    assert "leads out" in unpack(tar_with(*chain), tmp_path / "two")
    over = tar_with(special("x", SYM, "real"), FILE, (tarfile.TarInfo("x"), b""))
    assert "twice" in unpack(over, tmp_path / "three")


def test_a_zip_entry_outside_of_the_folder_is_refused(tmp_path: Path) -> None:
    for name in ("../x", "/etc/x", "a/../../x"):
        assert unpack(zip_of({name: b"x"}), tmp_path / "to", "zip")
    link = zip_of({"x": b"/etc/passwd"}, (stat.S_IFLNK | 0o777) << 16)
    assert "leads out" in unpack(link, tmp_path / "to", "zip")
    device = zip_of({"x": b""}, (stat.S_IFCHR | 0o666) << 16)
    assert "device" in unpack(device, tmp_path / "to", "zip")
    assert names(tmp_path / "to") == []


@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_an_archive_that_unpacks_to_too_much_is_refused(tmp_path: Path, kind: str) -> None:
    zeros = {"bomb": bytes(50_000_000)}
    archive = zip_of(zeros) if kind == "zip" else tar_of(zeros, "gz")
    assert len(archive) < 100_000
    said = unpack(archive, tmp_path / "to", kind, bytes_max=1_000_000)
    assert "larger than allowed" in said
    assert sum(path.stat().st_size for path in (tmp_path / "to").iterdir()) <= 1_000_000


def test_too_many_files_are_refused(tmp_path: Path) -> None:
    many = {f"f{number}": b"" for number in range(101)}
    assert "more files than allowed" in unpack(tar_of(many), tmp_path / "to")
    assert "more files than allowed" in unpack(zip_of(many), tmp_path / "zip", "zip")


def test_a_header_that_claims_gigabytes_is_refused(tmp_path: Path) -> None:
    member = tarfile.TarInfo("././@PaxHeader")
    member.type, member.size = tarfile.XHDTYPE, 3_000_000_000
    archive = gzip.compress(member.tobuf(tarfile.USTAR_FORMAT) + bytes(20_000_000))
    assert "header that is too large" in unpack(archive, tmp_path / "to", bytes_max=1 << 40)


@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_a_damaged_archive_is_reported_as_such(tmp_path: Path, kind: str) -> None:
    files = {"a": bytes(range(256)) * 400}
    whole = zip_of(files) if kind == "zip" else tar_of(files, "gz")
    for broken in (b"", b"nonsense" * 100, whole[: len(whole) // 2], b"\x1f\x8b" + bytes(50)):
        assert "cannot be read" in unpack(broken, tmp_path / "to", kind)


def test_an_encrypted_zip_is_refused(tmp_path: Path) -> None:
    archive = bytearray(zip_of({"a": b"x"}))
    for signature, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        place = archive.index(signature) + at
        archive[place : place + 2] = struct.pack("<H", 1)
    assert "encrypted" in unpack(bytes(archive), tmp_path / "to", "zip")


def test_an_archive_of_many_members_is_read_once(tmp_path: Path) -> None:
    """Members of exactly so many blocks: a step back would read it all again each time."""
    archive = tar_of({f"f{number}": bytes(512) for number in range(3000)}, "gz")
    assert unpack(archive, tmp_path / "to", files=5000) == ""
    assert len(list((tmp_path / "to").iterdir())) == 3000
