import os
import stat
import struct
import tarfile
import zipfile
from pathlib import Path

import pytest

from shoal.archive.entries import Limits
from shoal.archive.unpack import unpack
from shoal.errors import BadArchive, ServingError
from tests.unit.archive.archives import DATA, files_in, make_tar, make_tgz, make_zip, member, raw_gzip

LIMITS = Limits()


def refused(archive: Path, reason: str, limits: Limits = LIMITS) -> None:
    """It is refused with this reason, and nothing is left."""
    folder = archive.parent / "out"
    before = sorted(archive.parent.iterdir())
    with pytest.raises(BadArchive, match=reason) as raised:
        unpack(archive, folder, limits)
    assert archive.name in str(raised.value)
    assert sorted(archive.parent.iterdir()) == before


@pytest.mark.parametrize("name", ["ts_echo.mar", "ts_echo.tar.gz"])
def test_what_torch_model_archiver_wrote_is_unpacked(tmp_path: Path, name: str) -> None:
    unpack(DATA / name, tmp_path / "out", LIMITS)

    assert set(files_in(tmp_path / "out")) == {
        "MAR-INF/MANIFEST.json",
        "echo_handler.py",
        "index_to_name.json",
        "model-config.yaml",
        "net.py",
        "requirements.txt",
        "w.pt",
        "x.txt",
    }


@pytest.mark.parametrize("name", ["mms_echo.mar", "mms_echo.tar.gz"])
def test_what_mms_model_archiver_wrote_is_unpacked(tmp_path: Path, name: str) -> None:
    unpack(DATA / name, tmp_path / "out", LIMITS)

    assert set(files_in(tmp_path / "out")) == {"MAR-INF/MANIFEST.json", "service.py", "signature.json", "lib/scale.py"}


def test_a_stored_zip_and_empty_folders_are_unpacked(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.mar", "w") as archive:
        archive.writestr("x", b"1" * 5000)
        archive.writestr("empty/", b"")
    unpack(tmp_path / "a.mar", tmp_path / "out", LIMITS)

    assert files_in(tmp_path / "out") == {"x": b"1" * 5000}
    assert (tmp_path / "out" / "empty").is_dir()


def test_the_content_says_what_it_is_not_the_name(tmp_path: Path) -> None:
    make_tgz(tmp_path / "a.mar", {"root/x": b"1"})
    make_zip(tmp_path / "b.tar.gz", {"root/x": b"1"})
    unpack(tmp_path / "a.mar", tmp_path / "a", LIMITS)
    unpack(tmp_path / "b.tar.gz", tmp_path / "b", LIMITS)

    assert files_in(tmp_path / "a") == {"x": b"1"}
    assert files_in(tmp_path / "b") == {"root/x": b"1"}


def test_only_the_first_folder_of_a_tar_is_taken_off(tmp_path: Path) -> None:
    make_tgz(tmp_path / "a.tar.gz", {"./h.py": b"1", "m/sub/x": b"2", "lone": b"3"})
    unpack(tmp_path / "a.tar.gz", tmp_path / "out", LIMITS)

    assert files_in(tmp_path / "out") == {"h.py": b"1", "sub/x": b"2", "lone": b"3"}


def test_modes_are_plain_whatever_the_archive_says(tmp_path: Path) -> None:
    entries = []
    for name, mode in (("plain", 0o100666), ("run", 0o104777)):
        info = zipfile.ZipInfo(name)
        info.external_attr = mode << 16
        entries.append((info, b"x"))
    make_zip(tmp_path / "a.mar", entries)
    mask = os.umask(0o022)
    try:
        unpack(tmp_path / "a.mar", tmp_path / "out", LIMITS)
    finally:
        os.umask(mask)

    modes = {name: stat.S_IMODE((tmp_path / "out" / name).stat().st_mode) for name in ("plain", "run")}
    assert modes == {"plain": 0o644, "run": 0o755}


@pytest.mark.parametrize("name", ["../evil", "/evil", "a/../../evil", "a\\..\\evil", "C:/evil"])
def test_a_name_that_leads_out_is_refused_whole(tmp_path: Path, name: str) -> None:
    refused(make_zip(tmp_path / "a.mar", {"first.py": b"", name: b"evil"}), "entry")
    refused(make_tgz(tmp_path / "a.tar.gz", {"m/first.py": b"", name: b"evil"}), "entry")


def test_taking_the_first_folder_off_cannot_make_a_name_lead_out(tmp_path: Path) -> None:
    for name in ("m/../evil", "m/../../evil", "m//../evil"):
        refused(make_tgz(tmp_path / "a.tar.gz", {"m/first.py": b"", name: b"evil"}), "leads out")


def test_a_name_is_not_cut_at_its_nul(tmp_path: Path) -> None:
    path = make_zip(tmp_path / "a.mar", {"good.pyXevil": b"x"})
    path.write_bytes(path.read_bytes().replace(b"good.pyXevil", b"good.py\0evil"))

    refused(path, "control characters")


@pytest.mark.parametrize("mode", [stat.S_IFLNK, stat.S_IFCHR, stat.S_IFBLK, stat.S_IFIFO, stat.S_IFSOCK])
def test_a_zip_with_a_link_or_a_device_is_refused(tmp_path: Path, mode: int) -> None:
    info = zipfile.ZipInfo("link")
    info.external_attr = (mode | 0o777) << 16

    refused(make_zip(tmp_path / "a.mar", [("h.py", b""), (info, b"/etc/passwd")]), "'link': a link or a device")


@pytest.mark.parametrize(
    ("kind", "word"),
    [
        (tarfile.SYMTYPE, "link"),
        (tarfile.LNKTYPE, "link"),
        (tarfile.CHRTYPE, "device"),
        (tarfile.BLKTYPE, "device"),
        (tarfile.FIFOTYPE, "device"),
        (tarfile.GNUTYPE_SPARSE, "damaged|sparse"),
    ],
)
def test_a_tar_with_a_link_or_a_device_is_refused(tmp_path: Path, kind: bytes, word: str) -> None:
    entries = [(member("m/h.py", b"x"), b"x"), (member("m/x", kind=kind, link="h.py"), b"")]

    refused(make_tar(tmp_path / "a.tar.gz", entries), word)


def test_a_name_that_comes_twice_is_refused(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="Duplicate"):
        twice = make_zip(tmp_path / "a.mar", [("h.py", b"1"), ("h.py", b"2")])
    refused(twice, "'h.py': it is there already")
    refused(make_zip(tmp_path / "b.mar", [("h.py", b"1"), ("./h.py", b"2")]), "'h.py': it is there already")
    refused(make_tgz(tmp_path / "c.tar.gz", {"a/x": b"1", "b/x": b"2"}), "'x': it is there already")


def test_a_file_cannot_also_be_a_folder(tmp_path: Path) -> None:
    refused(make_zip(tmp_path / "a.mar", [("a", b"1"), ("a/b", b"2")]), "there as a file")
    refused(make_zip(tmp_path / "b.mar", [("a/b", b"2"), ("a", b"1")]), "there already")
    refused(make_zip(tmp_path / "c.mar", [("a", b"1"), ("a/", b"")]), "there as a file")


def test_a_bomb_is_refused_before_it_goes_off(tmp_path: Path) -> None:
    dense = Limits(ratio=10, ratio_free=1000)
    refused(make_zip(tmp_path / "a.mar", {"zeros": b"\0" * 1_000_000}), "10 times its own size", dense)
    refused(make_tgz(tmp_path / "b.tar.gz", {"zeros": b"\0" * 1_000_000}), "10 times its own size", dense)
    refused(make_zip(tmp_path / "c.mar", {"a": b"1" * 60, "b": b"1" * 60}), "'b'.*100 bytes", Limits(unpacked=100))
    refused(make_zip(tmp_path / "d.mar", {"a": b"", "b": b"", "c": b""}), "more than 2 entries", Limits(entries=2))
    refused(make_tgz(tmp_path / "e.tar.gz", {"a": b"", "b": b"", "c": b""}), "more than 2 entries", Limits(entries=2))


def test_a_zip_whose_directory_is_endless_is_refused_unread(tmp_path: Path) -> None:
    path = make_zip(tmp_path / "a.mar", {f"{number:0200d}": b"" for number in range(30)})

    refused(path, "directory of .* bytes is too long", Limits(entries=2))


def test_a_size_that_lies_is_found_out(tmp_path: Path) -> None:
    path = make_zip(tmp_path / "a.mar", {"a": b"1" * 100_000})
    lied = path.read_bytes().replace(struct.pack("<L", 100_000), struct.pack("<L", 10))
    path.write_bytes(lied)

    refused(path, "damaged|bytes")


def test_a_tar_header_without_end_is_not_read_into_memory(tmp_path: Path) -> None:
    info = tarfile.TarInfo("././@PaxHeader")
    info.type = tarfile.XHDTYPE
    info.size = 2**31
    header = info.tobuf(tarfile.USTAR_FORMAT)

    refused(raw_gzip(tmp_path / "a.tar.gz", header + b"\0" * 4096), "longer than")


@pytest.mark.parametrize("cut", [10, 100, 500, -30])
def test_an_archive_cut_short_is_refused(tmp_path: Path, cut: int) -> None:
    for name in ("ts_echo.mar", "ts_echo.tar.gz"):
        (tmp_path / name).write_bytes((DATA / name).read_bytes()[:cut])
        refused(tmp_path / name, "damaged|cut short|neither|no directory")


def test_a_damaged_byte_is_noticed(tmp_path: Path) -> None:
    content = os.urandom(5000)
    with zipfile.ZipFile(tmp_path / "a.mar", "w") as archive:
        archive.writestr("weights", content)
    broken = bytearray((tmp_path / "a.mar").read_bytes())
    broken[2000] ^= 1
    (tmp_path / "a.mar").write_bytes(broken)

    refused(tmp_path / "a.mar", "damaged")


@pytest.mark.parametrize("content", [b"", b"plain text", b"\x7fELF" + b"x" * 600, b"PK"])
def test_what_is_no_archive_is_said_to_be_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.mar").write_bytes(content)

    refused(tmp_path / "a.mar", "neither a zip file|the file is empty")


def test_gzip_around_something_else_is_refused(tmp_path: Path) -> None:
    refused(raw_gzip(tmp_path / "a.tar.gz", b"not a tar" * 100), "damaged")


@pytest.mark.parametrize(("method", "flag", "reason"), [(zipfile.ZIP_BZIP2, 0, "zip method 12"), (0, 1, "encrypted")])
def test_what_upstream_cannot_read_is_refused(tmp_path: Path, method: int, flag: int, reason: str) -> None:
    with zipfile.ZipFile(tmp_path / "a.mar", "w", method) as archive:
        archive.writestr("a", b"1")
    if flag:
        content = bytearray((tmp_path / "a.mar").read_bytes())
        content[content.index(b"PK\x01\x02") + 8] |= flag
        (tmp_path / "a.mar").write_bytes(content)

    refused(tmp_path / "a.mar", reason)


def test_giving_up_leaves_nothing_behind(tmp_path: Path) -> None:
    make_zip(tmp_path / "a.mar", {"a": b"1", "b": b"2", "c": b"3"})
    calls = 0

    def check() -> None:
        nonlocal calls
        calls += 1
        if calls > 3:
            raise ServingError("given up")

    with pytest.raises(ServingError, match="given up"):
        unpack(tmp_path / "a.mar", tmp_path / "out", LIMITS, check)
    assert not (tmp_path / "out").exists()


def test_a_folder_that_is_there_is_not_unpacked_into(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").touch()

    with pytest.raises(FileExistsError):
        unpack(DATA / "ts_echo.mar", tmp_path / "out", LIMITS)
    assert (tmp_path / "out" / "mine").exists()
