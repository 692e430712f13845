"""Archives: what is sound comes out, in order; what is hostile or broken comes with its reason, in bounded memory."""

import bz2
import gzip
import io
import lzma
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from pipeline.formats import archives
from pipeline.formats.archives import Zip, members, safe_name
from pipeline.formats.inflate import Unreadable, pieces
from tests.conftest import ROOT
from tests.hostile.archives import (
    entry,
    nameless_tar_header,
    overlapping_zip,
    patched_zip,
    tar_of,
    zip_of,
)


def listed(path: Path) -> dict[str, str | bytes]:
    """name → content, or the reason why there is none."""
    found: dict[str, str | bytes] = {}
    for member in members(path):
        try:
            found[member.name] = member.read()
        except Unreadable as error:
            found[member.name] = error.reason
    return found


def from_bytes(tmp_path: Path, name: str, data: bytes) -> dict[str, str | bytes]:
    (tmp_path / name).write_bytes(data)
    return listed(tmp_path / name)


FILES = {"b/two.txt": b"Two." * 100_000, "a/one.txt": b"One.", "empty.txt": b""}


@pytest.mark.parametrize("suffix", [".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz"])
def test_every_kind_of_tar_gives_its_files_in_its_own_order(tmp_path: Path, suffix: str) -> None:
    mode = {"gz": "w:gz", "tgz": "w:gz", "bz2": "w:bz2", "xz": "w:xz", "tar": "w"}[suffix.rpartition(".")[2]]
    with tarfile.open(tmp_path / f"shelf{suffix}", mode) as archive:  # type: ignore[call-overload]
        archive.addfile(entry("b", tarfile.DIRTYPE))
        for name, content in FILES.items():
            info = entry(f"./{name}")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    assert list(listed(tmp_path / f"shelf{suffix}").items()) == list(FILES.items())


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_zip_gives_its_files(tmp_path: Path, method: int) -> None:
    assert list(from_bytes(tmp_path, "a.zip", zip_of({"b/": b"", **FILES}, method)).items()) == list(FILES.items())


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_long_and_foreign_names_of_a_tar(tmp_path: Path, form: int) -> None:
    names = ["d" * 90 + "/" + "f" * 60 + ".txt", "Bücher/été.txt"]
    if form != tarfile.USTAR_FORMAT:
        names.append("e" * 300 + "ü.txt")
    data = tar_of(*((entry(name), name.encode()) for name in names), form=form)
    assert from_bytes(tmp_path, "a.tar", data) == {name: name.encode() for name in names}


def test_a_member_that_nobody_reads_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(tar_of((entry("a"), b"A" * 5000), (entry("b"), b"B")))
    found = list(members(tmp_path / "a.tar"))
    assert [member.name for member in found] == ["a", "b"]


def test_half_a_member_may_be_read(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(tar_of((entry("a"), b"A" * (3 << 20)), (entry("b"), b"B")))
    read = [next(member.pieces()) for member in members(tmp_path / "a.tar")]
    assert [piece[:1] for piece in read] == [b"A", b"B"]
    assert len(read[0]) < 3 << 20


# ── paths, links, devices ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("a/b.txt", "a/b.txt"),
        ("./a//b.txt", "a/b.txt"),
        ("a/..b.txt", "a/..b.txt"),
        ("../a", None),
        ("a/../../b", None),
        ("a/..", None),
        ("/etc/passwd", None),
        ("C:/a", None),
        ("c:a", None),
        ("a\\..\\b", None),
        ("\\\\host\\share", None),
        ("a\nb", None),
        ("a\x1b[31m", None),
        ("", None),
        (".", None),
        ("a" * 2000, None),
    ],
)
def test_names(name: str, safe: str | None) -> None:
    assert safe_name(name) == safe


BAD_NAMES = ["../up.txt", "/abs.txt", "C:/drive.txt", "a/../../up.txt", "back\\slash.txt"]


def test_members_that_lead_out_of_the_folder(tmp_path: Path) -> None:
    for name, data in [
        ("a.zip", zip_of(dict.fromkeys([*BAD_NAMES, "good.txt"], b"x"))),
        ("a.tar", tar_of(*((entry(name), b"x") for name in [*BAD_NAMES, "good.txt"]))),
    ]:
        assert from_bytes(tmp_path, name, data) == dict.fromkeys(BAD_NAMES, "unsafe_path") | {"good.txt": b"x"}


def test_links_devices_and_what_systems_lay_beside_files(tmp_path: Path) -> None:
    kinds = {
        "link": tarfile.SYMTYPE,
        "hard": tarfile.LNKTYPE,
        "fifo": tarfile.FIFOTYPE,
        "char": tarfile.CHRTYPE,
        "block": tarfile.BLKTYPE,
    }
    data = tar_of(
        *((entry(name, kind, "/etc/passwd"), b"") for name, kind in kinds.items()),
        (entry("link/through.txt"), b"never written, so nothing is followed"),
        (entry("._a.txt"), b"x"),
        (entry("__MACOSX/a.txt"), b"x"),
        (entry("d/.DS_Store"), b"x"),
    )
    assert from_bytes(tmp_path, "a.tar", data) == {
        "link": "link",
        "hard": "link",
        "fifo": "device",
        "char": "device",
        "block": "device",
        "link/through.txt": b"never written, so nothing is followed",
        **dict.fromkeys(("._a.txt", "__MACOSX/a.txt", "d/.DS_Store"), "hidden"),
    }
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.tar"]


def test_links_of_a_zip(tmp_path: Path) -> None:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name, mode in (("link", 0o120777), ("fifo", 0o010644), ("plain", 0o100644)):
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            archive.writestr(info, b"/etc/passwd")
    assert from_bytes(tmp_path, "a.zip", data.getvalue()) == {
        "link": "link",
        "fifo": "device",
        "plain": b"/etc/passwd",
    }


# ── sizes, counts, ratios ────────────────────────────────────────────────────────────────────────────────────────────


def test_entries_that_overlap(tmp_path: Path) -> None:
    assert from_bytes(tmp_path, "a.zip", overlapping_zip()) == {"": "overlapping_entries"}


@pytest.mark.parametrize(("declared", "said"), [(3, "broken"), (9_999, "lying_size")])
def test_a_size_that_is_a_lie(tmp_path: Path, declared: int, said: str) -> None:
    def lie(info: zipfile.ZipInfo) -> None:
        info.file_size = declared

    assert from_bytes(tmp_path, "a.zip", patched_zip({"a.txt": b"Once upon a time."}, lie)) == {"a.txt": said}


def test_too_much_of_too_little(tmp_path: Path) -> None:
    zeros = bytes(16 << 20)
    assert from_bytes(tmp_path, "a.zip", zip_of({"a": zeros, "b": b"b"})) == {"a": "compression_ratio", "b": b"b"}
    (tmp_path / "a.tar.gz").write_bytes(gzip.compress(tar_of((entry("a"), zeros), (entry("b"), b"b"))))
    assert listed(tmp_path / "a.tar.gz") == {"a": "compression_ratio", "": "truncated"}


def test_a_large_member_is_told_by_what_comes_out(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a", b"x" * (3 << 20))
    for member in members(tmp_path / "a.zip"):
        with pytest.raises(Unreadable, match="larger_than_2_MiB"):
            member.read(2 << 20)


def test_so_many_members_and_no_more(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for number in range(archives.MAX_MEMBERS + 1):
            archive.writestr(f"{number}", b"")
    assert listed(tmp_path / "a.zip") == {"": "too_many_members"}
    header = tar_of((entry("a"), b""))[:512]
    (tmp_path / "a.tar").write_bytes(header * (archives.MAX_MEMBERS + 1))
    counted = [member.dropped for member in members(tmp_path / "a.tar")]
    assert len(counted) == archives.MAX_MEMBERS + 1
    assert counted[-1] == "too_many_members"


def test_a_table_of_contents_of_any_size_is_not_read(tmp_path: Path) -> None:
    """zipfile would read it at once, whatever the number of entries that it states."""
    directory = bytes(archives.MAX_DIRECTORY_BYTES + 1)
    end = b"PK\5\6" + bytes(8) + len(directory).to_bytes(4, "little") + bytes(4) + bytes(2)
    assert from_bytes(tmp_path, "a.zip", directory + end) == {"": "too_many_members"}


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME])
def test_a_header_of_a_tar_that_wants_gigabytes(tmp_path: Path, kind: bytes) -> None:
    data = nameless_tar_header(4 << 30, kind) + bytes(1024)
    assert from_bytes(tmp_path, "a.tar", data) == {"": "broken_archive"}


def test_a_header_of_a_tar_with_a_negative_size(tmp_path: Path) -> None:
    header = bytearray(nameless_tar_header(0, tarfile.REGTYPE))
    header[124:136] = b"\xff" * 12  # base 256: -1
    header[148:156] = b" " * 8
    header[148:155] = b"%06o\0" % sum(header)
    assert from_bytes(tmp_path, "a.tar", bytes(header) + bytes(1024)) == {"": "broken_archive"}


@pytest.mark.parametrize("records", [b"99 path=a\n", b"0 path=a\n", b"x path=a\n", b"-5 path=a\n", b" =\n", b"4 a\n"])
def test_broken_records_of_a_tar(tmp_path: Path, records: bytes) -> None:
    header = nameless_tar_header(len(records), tarfile.XHDTYPE)
    found = from_bytes(tmp_path, "a.tar", header + records.ljust(512, b"\0") + tar_of((entry("a"), b"a")))
    assert found == ({"a": b"a"} if records == b"4 a\n" else {"": "broken_archive"})


# ── encrypted and broken ─────────────────────────────────────────────────────────────────────────────────────────────


def test_encrypted_and_unknown_compression(tmp_path: Path) -> None:
    def encrypt(info: zipfile.ZipInfo) -> None:
        info.flag_bits |= 1

    assert from_bytes(tmp_path, "a.zip", patched_zip({"a": b"secret"}, encrypt)) == {"a": "encrypted"}
    bzipped = zip_of({"a": b"x" * 1000}, zipfile.ZIP_BZIP2)
    assert from_bytes(tmp_path, "b.zip", bzipped) == {"a": "unsupported_compression"}


def test_broken_members_are_named_and_the_others_come(tmp_path: Path) -> None:
    data = bytearray(zip_of({"a.txt": b"Once upon a time.", "b.txt": b"The end."}, zipfile.ZIP_STORED))
    data[data.index(b"Once")] ^= 1
    assert from_bytes(tmp_path, "a.zip", bytes(data)) == {"a.txt": "broken", "b.txt": b"The end."}


@pytest.mark.parametrize("data", [b"", b"no archive", b"PK\3\4" + bytes(100)])
def test_no_archive_at_all(tmp_path: Path, data: bytes) -> None:
    assert from_bytes(tmp_path, "a.zip", data) == {"": "broken_archive"}
    assert list(from_bytes(tmp_path, "a.tar", data).values()) in (["broken_archive"], ["truncated"])


def test_a_tar_that_is_cut_off_says_so_after_what_it_still_has(tmp_path: Path) -> None:
    whole = tar_of((entry("a"), b"A"), (entry("b"), b"B" * 3000))
    assert from_bytes(tmp_path, "a.tar", whole[:2048]) == {"a": b"A", "b": "truncated", "": "truncated"}
    packed = gzip.compress(whole)
    found = from_bytes(tmp_path, "b.tar.gz", packed[:-1])
    assert found == {"a": b"A", "b": b"B" * 3000, "": "truncated"}, "the last byte is of the checksum"


def test_every_cut_of_a_zip_ends_with_a_reason(tmp_path: Path) -> None:
    whole = zip_of({"a.txt": b"Once upon a time.", "b.txt": b"The end."})
    for size in range(len(whole)):
        assert from_bytes(tmp_path, "a.zip", whole[:size]) == {"": "broken_archive"}


def test_a_zip_that_is_cut_behind_a_zip_inside_it(tmp_path: Path) -> None:
    """The table of contents of the inner one must not pass for that of the archive."""
    inner = zip_of({"page.xhtml": b"<p>A page of a book.</p>"})
    whole = zip_of({"a.txt": b"Once upon a time.", "b.epub": inner, "c.txt": b"The end."}, zipfile.ZIP_STORED)
    cut = whole[: whole.index(inner) + len(inner) + 10]
    assert from_bytes(tmp_path, "a.zip", cut) == {"": "truncated"}
    behind_a_program = from_bytes(tmp_path, "b.zip", b"#!/bin/sh\n" * 20 + whole)
    assert sorted(behind_a_program) == ["a.txt", "b.epub", "c.txt"]


def test_every_flipped_byte_gives_the_content_or_a_reason(tmp_path: Path) -> None:
    for name, whole in [
        ("a.zip", zip_of({"a.txt": b"Once upon a time.", "b.txt": b"The end."})),
        ("a.tar", tar_of((entry("a.txt"), b"Once upon a time."), (entry("b.txt"), b"The end."))[:2048]),
        ("a.tar.gz", gzip.compress(tar_of((entry("a.txt"), b"Once upon a time."), (entry("b.txt"), b"The end.")))),
    ]:
        for at in range(len(whole)):
            data = bytearray(whole)
            data[at] ^= 0xA5
            for content in from_bytes(tmp_path, name, bytes(data)).values():
                if name != "a.tar":  # a tar has no checksum of contents
                    assert isinstance(content, str) or content in (b"Once upon a time.", b"The end.")


# ── compressed files ─────────────────────────────────────────────────────────────────────────────────────────────────

PACK = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}
TEXT = b"".join(b"Line %d of many.\n" % number for number in range(300_000))


def inflated(suffix: str, data: bytes) -> bytes:
    return b"".join(pieces(io.BytesIO(data), suffix))


@pytest.mark.parametrize("suffix", PACK)
def test_streams(suffix: str) -> None:
    pack = PACK[suffix]
    assert inflated(suffix, pack(TEXT)) == TEXT
    assert inflated(suffix, pack(b"")) == b""
    assert inflated(suffix, pack(b"one ") + pack(b"two ") + pack(TEXT)) == b"one two " + TEXT
    assert inflated(suffix, pack(b"one") + bytes(4096)) == b"one", "padding"
    parts = list(pieces(io.BytesIO(pack(TEXT)), suffix))
    assert max(map(len, parts)) <= 1 << 20


@pytest.mark.parametrize("suffix", PACK)
@pytest.mark.parametrize("kind", ["cut", "last byte", "garbage", "middle", "other", "empty"])
def test_streams_that_are_broken(suffix: str, kind: str) -> None:
    packed = PACK[suffix](TEXT[:5000])
    other = PACK[".gz" if suffix != ".gz" else ".bz2"](b"x")
    middle = bytearray(packed + packed)
    middle[len(packed) - (12 if suffix == ".xz" else 6)] ^= 0xFF  # the first stream's checksum
    data, said = {
        "cut": (packed[: len(packed) // 2], "truncated"),
        "last byte": (packed[:-1], "truncated"),
        "garbage": (packed + b"garbage", "trailing_garbage"),
        "middle": (bytes(middle), "broken"),
        "other": (other, "not_what_its_name_says"),
        "empty": (b"", "truncated"),
    }[kind]
    with pytest.raises(Unreadable, match=said):
        inflated(suffix, data)


@pytest.mark.parametrize("suffix", PACK)
def test_bombs_burst_in_little_memory(suffix: str) -> None:
    """A bomb of 1 GB, in a process of its own that may have 1 GiB."""
    code = (
        "import resource, io; resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))\n"
        "import bz2, lzma, zlib\n"
        "make = {'.gz': lambda: zlib.compressobj(9, 8, 31), '.bz2': bz2.BZ2Compressor, '.xz': lzma.LZMACompressor}\n"
        f"packer = make['{suffix}']()\n"
        "data = b''.join(packer.compress(bytes(1 << 20)) for _ in range(200)) + packer.flush()\n"
        "from pipeline.formats.inflate import pieces, Unreadable\n"
        "size = 0\n"
        "try:\n"
        f"    for piece in pieces(io.BytesIO(data), '{suffix}'): size += len(piece)\n"
        "except Unreadable as error: print(error.reason, size < 64 << 20)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.split() == ["compression_ratio", "True"]


def test_an_xz_that_asks_for_much_memory() -> None:
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 1, "dict_size": 512 << 20}]
    header = lzma.compress(b"x", filters=filters)
    with pytest.raises(Unreadable, match="broken"):
        inflated(".xz", header)


def test_bytes_that_are_no_zip() -> None:
    with pytest.raises(Unreadable, match="broken_archive"):
        Zip(io.BytesIO(b"no zip"))
