"""The champion, as far as it can be read: its release, its benchmark report, what it was trained on."""

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from pipeline import lineage
from pipeline.store import Record, Store


@dataclass(frozen=True)
class Champion:
    """The one in use, as far as it can be read."""

    store: Store
    release: Record
    report: Record | None
    held: ExitStack

    def folder(self, record: Record) -> Path:
        """The content of one of its artifacts. Raises StoreError where it is gone."""
        self.held.enter_context(self.store.lease(record.stage, record.version))
        return self.store.folder(record.stage, record.version)

    def input(self, name: str) -> Path | None:
        """What its report reads under this name; None where it has no such input."""
        digest = self.report.inputs.get(name) if self.report else None
        return self.folder(self.store.record(digest)) if digest else None


def trained_on(store: Store, release: Record) -> tuple[list[Record], bool]:
    """(the `documents` that a release was trained on, its own first, then those of the models that it began with; whether one of
    these came from outside, or its record is lost, so that its text is not known)."""
    own = list(lineage.ancestors(store, release))
    whole = list(lineage.ancestors(store, release, roots=True))
    corpora = {each.version: each for each in [*own, *whole] if each.stage == "documents"}
    imported = [each for each in whole if each.stage == "imported_checkpoint"]
    return list(corpora.values()), any(lineage.root_of(store, each) is None for each in imported)
