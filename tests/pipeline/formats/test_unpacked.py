"""Files out of archives: what is asked for comes out; what is hostile or broken is refused by its name."""

import zipfile
from pathlib import Path

import pytest

from pipeline.errors import DataError
from pipeline.formats.unpacked import opened
from tests.hostile.archives import overlapping_zip, patched_zip, write, zip_of

MOST = 1 << 30


def unpacked(tmp_path: Path, data: bytes, name: str = "a.txt") -> bytes:
    """The member of this name out of an archive with these bytes."""
    with opened(write(tmp_path / "in", "mine.zip", data)) as archive:
        archive.unpack(name, tmp_path / "out", MOST)
        content = (tmp_path / "out").read_bytes()
        assert archive.read(name, MOST) == content and archive.sizes[name] == len(content)
    return content


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_file_comes_out_whole(tmp_path: Path, method: int) -> None:
    content = b"".join(b"Line %d of many.\n" % number for number in range(300_000))
    assert unpacked(tmp_path, zip_of({"b/": b"", "./b//a.txt": content}, method), "b/a.txt") == content


def test_what_systems_lay_beside_files_is_left_out(tmp_path: Path) -> None:
    data = zip_of({"a/b.txt": b"B", "__MACOSX/a/._b.txt": b"no", "a/.DS_Store": b"no", ".git/b.txt": b"no"})
    with opened(write(tmp_path, "mine.zip", data)) as archive:
        assert archive.sizes == {"a/b.txt": 1}


def encrypted(info: zipfile.ZipInfo) -> None:
    info.flag_bits |= 1


def longer(info: zipfile.ZipInfo) -> None:
    info.file_size += 7


def linked(info: zipfile.ZipInfo) -> None:
    info.external_attr = 0o120777 << 16


def flipped(data: bytes) -> bytes:
    at = data.index(b"Once")
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


STORY = {"a.txt": b"Once upon a time."}


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"no archive", "mine.zip is no .zip, or is cut off"),
        (zip_of(STORY)[:-30], "mine.zip is no .zip, or is cut off"),
        (overlapping_zip(), "mine.zip has members that share bytes"),
        (zip_of({**STORY, "../up.txt": b"x"}), "mine.zip holds ../up.txt, which leads out of the archive's folder"),
        (zip_of({**STORY, "/etc/cron.d/x": b"x"}), "mine.zip holds /etc/cron.d/x, which leads out"),
        (zip_of({**STORY, "C:\\x": b"x"}), r"mine.zip holds C:\x, which leads out"),
        (zip_of({**STORY, "__MACOSX/../../x": b"x"}), "mine.zip holds __MACOSX/../../x, which leads out"),
        (zip_of({**STORY, "./a.txt": b"another"}), "mine.zip holds a.txt twice"),
        (patched_zip(STORY, encrypted), "mine.zip holds a.txt, which is encrypted"),
        (patched_zip(STORY, linked), "mine.zip holds a.txt, which is a link"),
        (patched_zip(STORY, longer), "mine.zip holds a.txt, which has another size than"),
        (zip_of(STORY, zipfile.ZIP_BZIP2), "mine.zip holds a.txt, which is compressed by a method"),
        (flipped(zip_of(STORY, zipfile.ZIP_STORED)), "mine.zip holds a.txt, which is damaged"),
        (zip_of({"a.txt": bytes(64 << 20)}), "mine.zip holds a.txt, which unpacks to more than 200 times its bytes"),
    ],
    ids=range(14),  # archives hold the time at which they were made
)
def test_what_can_not_be_trusted_is_refused_by_name(tmp_path: Path, data: bytes, said: str) -> None:
    with pytest.raises(DataError) as refused:
        unpacked(tmp_path, data)
    assert said in refused.value.what and refused.value.todo
    assert [path.name for path in tmp_path.iterdir() if path.name not in ("in", "out")] == []


def test_a_member_that_is_too_large_is_not_begun(tmp_path: Path) -> None:
    with (
        opened(write(tmp_path, "mine.zip", zip_of({"a.txt": b"x" * 1001}))) as archive,
        pytest.raises(DataError, match=r"mine.zip holds a.txt, which has 1,001 bytes"),
    ):
        archive.unpack("a.txt", tmp_path / "out", 1000)


def test_every_flipped_byte_gives_the_content_or_is_refused(tmp_path: Path) -> None:
    whole = zip_of({"a.txt": b"Once upon a time.", "b.txt": b"The end."})
    for at in range(len(whole)):
        data = bytearray(whole)
        data[at] ^= 0xA5
        try:
            with opened(write(tmp_path / "in", "mine.zip", bytes(data))) as archive:
                found = {name: archive.read(name, MOST) for name in archive.sizes}
        except DataError:
            continue
        assert set(found.values()) <= {b"Once upon a time.", b"The end."}, at
