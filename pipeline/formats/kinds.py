"""How the files of own corpora end, by kind of source."""

from collections.abc import Mapping

COMPRESSED = (".gz", ".zst")
ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz")
ENDINGS: Mapping[str, tuple[str, ...]] = {
    "jsonl": (".jsonl", ".ndjson", ".json"),  # public corpora of JSON Lines often end in .json
    "parquet": (".parquet", ".pq"),
    "csv": (".csv", ".tsv", ".tab"),
    "text": (".txt",),
}
"""All but Parquet also compressed; text also in archives."""


def plain_name(name: str) -> str:
    """A file's name, lower-cased, without the ending of its compression: `A.jsonl.GZ` → `a.jsonl`."""
    lowered = name.lower()
    return next((lowered.removesuffix(ending) for ending in COMPRESSED if lowered.endswith(ending)), lowered)


def is_of(kind: str, name: str) -> bool:
    """Whether a file is one of this kind, by its name."""
    if kind == "text" and name.lower().endswith(ARCHIVES):
        return True
    return (name.lower() if kind == "parquet" else plain_name(name)).endswith(ENDINGS[kind])
