"""Records and the memory of which records answer to a key, on a disk of this machine or in an object store."""

from pathlib import Path

from pipeline.errors import StoreError
from pipeline.storage.contents import MAKE_ANEW, READ_ONLY, away, entries
from pipeline.storage.objects import Objects
from pipeline.storage.record import Record, record_of
from pipeline.system.atomic import write_bytes


class LocalLedger:
    """records/ and memory/ under the home folder."""

    def __init__(self, home: Path) -> None:
        self.home = home

    def place(self, digest: str) -> Path:
        """Where a record lies."""
        return self.home / "records" / f"{digest}.json"

    def append(self, record: Record, data: bytes) -> None:
        """Write a record, then remember it under its key. Raises OSError."""
        write_bytes(self.place(record.digest), data)
        write_bytes(self.home / "memory" / record.key / record.digest, b"")

    def load(self, digest: str) -> Record:
        """A record. Raises FileNotFoundError when there is none, ValueError when it was altered, OSError."""
        return _checked(self.place(digest).read_bytes(), digest)

    reload = load

    def exists(self, digest: str) -> bool:
        """Whether there is a record of this digest."""
        return self.place(digest).exists()

    def digests(self) -> list[str]:
        """All records, by name."""
        return sorted(path.stem for path in (self.home / "records").glob("*.json"))

    def answers(self, key: str) -> list[str]:
        """Digests that are remembered under a key."""
        return [path.name for path in entries(self.home / "memory" / key)]

    def away(self, digest: str) -> str:
        """Set a broken record aside, and say what to do then."""
        return away(self.home, self.place(digest))


class ObjectLedger:
    """records/ and memory/ in an object store. Records that were read are kept under the home folder: they never change,
    and their name proves them."""

    def __init__(self, objects: Objects, home: Path) -> None:
        self.objects = objects
        self.cache = home / "cache" / "records"

    def place(self, digest: str) -> str:
        """URL of a record."""
        return self.objects.at(_name(digest))

    def append(self, record: Record, data: bytes) -> None:
        """Write a record, then remember it under its key. Raises StoreError."""
        self.objects.write(_name(record.digest), data)
        self.objects.write(f"memory/{record.key}/{record.digest}", b"")

    def load(self, digest: str) -> Record:
        """A record. Raises FileNotFoundError when there is none, ValueError when it was altered, StoreError."""
        kept = self.cache / f"{digest}.json"
        try:
            return _checked(kept.read_bytes(), digest)
        except (OSError, ValueError):
            return self.reload(digest)

    def reload(self, digest: str) -> Record:
        """The same, from the object store itself."""
        kept = self.cache / f"{digest}.json"
        try:
            data = self.objects.read(_name(digest))
            record = _checked(data, digest)
        except (FileNotFoundError, ValueError):
            kept.unlink(missing_ok=True)
            raise
        if not kept.exists():
            try:
                write_bytes(kept, data)
            except OSError:
                return record  # a home that can't be written costs time, never an answer
        return record

    def exists(self, digest: str) -> bool:
        """Whether there is a record of this digest."""
        try:
            self.load(digest)
        except FileNotFoundError:
            return False
        except ValueError:
            return True
        return True

    def digests(self) -> list[str]:
        """All records, by name."""
        return [name.removesuffix(".json") for name in self.objects.names("records") if name.endswith(".json")]

    def answers(self, key: str) -> list[str]:
        """Digests that are remembered under a key."""
        return self.objects.names(f"memory/{key}")

    def away(self, digest: str) -> str:
        """Set a broken record aside, and say what to do then."""
        try:
            self.objects.write(f"broken/{_name(digest)}", self.objects.read(_name(digest)))
            self.objects.remove(_name(digest))
        except StoreError:
            return READ_ONLY
        return MAKE_ANEW


def _name(digest: str) -> str:
    return f"records/{digest}.json"


def _checked(data: bytes, digest: str) -> Record:
    record = record_of(data)
    if record.digest != digest:
        raise ValueError("altered")
    return record
