"""How much of a source a rehearsal reads: its beginning, and enough documents to make something of."""

import json
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

LEAST_DOCUMENTS = 200
"""of every source, where it has so many"""
LEAST_EXAMPLES = 200
"""of every part of a task, where it has so many"""
FETCHED = "sample.json"
"""beside the files of a dump of which only the first were downloaded: {share: of its bytes}"""
T = TypeVar("T")


def fetched_share(folder: Path) -> float:
    """The share of a dump that was downloaded into `folder`; 1 where nothing says otherwise."""
    told = folder / FETCHED
    return float(json.loads(told.read_text(encoding="utf-8"))["share"]) if told.exists() else 1.0


def first_bytes(items: Sequence[T], sizes: Sequence[float], share: float) -> Sequence[T]:
    """The first items that hold `share` of the size of all; at least one."""
    wanted, held = share * sum(sizes), 0.0
    for count, size in enumerate(sizes, start=1):
        held += size
        if held >= wanted:
            return items[:count]
    return items


class Beginning:
    """Iterates the first documents, with a `text` each, that hold as many characters as `share` of the source's bytes; at least
    `LEAST_DOCUMENTS`. Afterwards `share` is the part of the source that they are, about; `given`: the part that `documents` are."""

    def __init__(
        self, documents: Generator[Mapping[str, Any]], size_bytes: int, share: float, given: float = 1.0
    ) -> None:
        self.share = given
        self._documents, self._size, self._wanted = documents, size_bytes, share * size_bytes

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        count, characters = 0, 0
        for document in self._documents:
            yield document
            count, characters = count + 1, characters + len(document["text"])
            if count >= LEAST_DOCUMENTS and characters >= self._wanted:
                self.share = min(self.share, characters / self._size)
                self._documents.close()
                return


def share_read(documents: Iterable[Any]) -> dict[str, float]:
    """What the statistics of a rehearsal say of the share that was read; nothing where all was asked for."""
    return {"sample_share": round(documents.share, 9)} if isinstance(documents, Beginning) else {}


def evenly(items: Sequence[T], share: float, least: int = LEAST_EXAMPLES) -> list[T]:
    """`share` of the items, at least `least` where there are so many, evenly spaced in their order."""
    count = min(len(items), max(least, round(share * len(items))))
    return [items[place * len(items) // count] for place in range(count)]
