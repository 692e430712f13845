"""Archives that somebody built to do harm, made by hand where no library would write them."""

import io
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path


def zip_of(files: Mapping[str, bytes | str], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", method) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return data.getvalue()


def tar_of(*entries: tuple[tarfile.TarInfo, bytes], form: int = tarfile.PAX_FORMAT) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", format=form) as archive:
        for info, content in entries:
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return data.getvalue()


def entry(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def overlapping_zip(count: int = 500, kernel_bytes: int = 1 << 20) -> bytes:
    """`count` names for the same bytes: each entry of the directory points at one local file."""
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
    plain = bytes(kernel_bytes)
    packed = deflate.compress(plain) + deflate.flush()
    crc = zlib.crc32(plain)
    local = struct.pack("<4s5H3L2H", b"PK\3\4", 20, 0, 8, 0, 33, crc, len(packed), len(plain), 5, 0) + b"00000" + packed
    directory = b"".join(
        struct.pack("<4s6H3L5H2L", b"PK\1\2", 20, 20, 0, 8, 0, 33, crc, len(packed), len(plain), 5, 0, 0, 0, 0, 0, 0)
        + b"%05d" % number
        for number in range(count)
    )
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, count, count, len(directory), len(local), 0)
    return local + directory + end


def patched_zip(files: Mapping[str, bytes], change: Callable[[zipfile.ZipInfo], None]) -> bytes:
    """A zip whose table of contents says something else than its members do."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
        for info in archive.infolist():
            change(info)
        archive._didModify = True
    return data.getvalue()


def nameless_tar_header(size: int, kind: bytes) -> bytes:
    info = tarfile.TarInfo("x")
    info.size, info.type = size, kind
    return info.tobuf(tarfile.GNU_FORMAT)


def write(folder: Path, name: str, data: bytes) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(data)
    return folder / name
