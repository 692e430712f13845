"""The cells of the crash matrix, as data: where something is written, and what goes wrong there.

A `Point` is a kind of call on a path: `work` (tests/crash/world.py) is under way, and its `number`-th `operation` on a path
like `pattern` (below the home) is where a fault happens. An `Input` is what a piece of work reads, and how it is damaged.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

KILLED = ("kill", "after", "parent", "clock")
FAULTS = {
    "kill": "kill -9 of the process at work; a write is cut in the middle",
    "after": "kill -9 when the operation is done",
    "parent": "kill -9 of the step's process while another one is at work",
    "term": "SIGTERM",
    "stop": "SIGSTOP for longer than the lease; the same is done beside it meanwhile",
    "far": "the same, seen from another host, which sweeps what it takes for dead",
    "ENOSPC": "the disk is full from here on",
    "EIO": "one input/output error",
    "EROFS": "read-only from here on",
    "short": "a write takes half of what it is given",
    "clock": "kill -9, then the clock is set back by a day",
}
OF = {
    "write": ("kill", "term", "stop", "ENOSPC", "EIO", "EROFS", "short"),
    "create": ("kill", "ENOSPC", "EROFS"),
    "mkdir": ("ENOSPC", "EROFS"),
    "link": ("kill", "after", "ENOSPC", "EIO"),
    "rename": ("kill", "after", "term", "stop", "EIO", "EROFS"),
    "fsync": ("kill", "EIO", "ENOSPC"),
    "unlink": ("kill", "EIO", "EROFS"),
}
"""which faults an operation is given; `parent`, `far` and `clock` where a point asks for them"""


@dataclass(frozen=True)
class Point:
    """Where something is written."""

    work: str
    name: str
    operation: str
    pattern: str
    number: int = 1
    more: tuple[str, ...] = ()
    """faults besides those of the operation"""
    few: tuple[str, ...] = ()
    """these only"""

    @property
    def faults(self) -> tuple[str, ...]:
        """What happens here."""
        return self.few or (*OF[self.operation], *self.more)


BEAM = ("parent",)
POINTS = (
    # a download
    Point("notes_files", "download, part", "write", "downloads/*/partial", more=("far", "clock")),
    Point("notes_files", "download, what the server said", "rename", "downloads/*/partial.json", few=("kill", "EIO")),
    Point("notes_files", "download, durable", "fsync", "downloads/*/partial"),
    Point("notes_files", "download, final", "rename", "downloads/*/notes.txt"),
    Point("notes_files", "download, into the store", "link", "staging/*/notes.txt"),
    Point("notes_files", "lease", "write", "leases/.*", few=("kill", "ENOSPC", "EROFS", "clock")),
    # what every stage does in the end
    Point("notes_files", "manifest", "write", "staging/*/.manifest.json.*"),
    Point("notes_files", "manifest, durable", "fsync", "staging/*/.manifest.json.*"),
    Point("notes_files", "version", "rename", "store/files/*", more=("far", "clock")),
    Point("notes_files", "record", "write", "records/.*", more=("far", "clock")),
    Point("notes_files", "record, final", "rename", "records/*.json"),
    Point("notes_files", "memory", "rename", "memory/*/*"),
    Point("notes_files", "pointer", "write", "assets/tiny/.*", more=("clock",)),
    Point("notes_files", "pointer, final", "rename", "assets/tiny/*.json"),
    # text
    Point("notes_text", "text shard", "write", "staging/*/part-*.parquet", 5),
    Point("notes_text", "text shard, durable", "fsync", "staging/*/part-*.parquet", more=("far",)),
    Point("wikipedia_dump", "references", "write", "staging/*/.references.json.*", few=("kill", "ENOSPC")),
    Point("wikipedia_text", "view of the dump", "link", "views/.*"),
    Point("wikipedia_text", "Beam, temporary", "write", "staging/*/pages/.*", 3, more=BEAM),
    Point("wikipedia_text", "Beam, run of rows", "rename", "staging/*/runs/*.arrow", more=BEAM),
    Point("wikipedia_text", "text shard", "write", "staging/*/part-*.parquet", 5),
    Point("books_text", "books", "write", "staging/*/books.parquet", 5),
    Point("books_text", "books, scratch", "write", "staging/*/.scratch-*/0.arrow", 2),
    Point("books_text", "books, scratch gone", "unlink", "staging/*/.scratch-*/0.arrow"),
    # documents
    Point("documents", "documents, marks", "write", "staging/*/bands", 3),
    Point("documents", "documents, part", "write", "staging/*/part-000001/part-*.parquet", 9, more=("far",)),
    Point("documents", "documents, part moved", "rename", "staging/*/part-00001.parquet"),
    Point("documents", "documents, dropped", "write", "staging/*/dropped.parquet", 3),
    # vocabulary
    Point("wordpiece_vocab", "words", "write", "staging/*/words-train-000001.arrow", 40),
    Point("wordpiece_vocab", "vocabulary", "write", "staging/*/vocab.txt"),
    Point("wordpiece_vocab", "vocabulary, durable", "fsync", "staging/*/vocab.txt"),
    Point("wordpiece_vocab", "tokenizer", "write", "staging/*/tokenizer.json"),
    # pretraining shards
    Point("pretraining_shards_32", "Beam, temporary", "write", "staging/*/pieces/.train*", more=BEAM),
    Point("pretraining_shards_32", "Beam, temporary made", "create", "staging/*/tokens/.*", 2),
    Point("pretraining_shards_32", "Beam, shard", "write", "staging/*/train/.shard-00001*", 7, more=BEAM),
    Point("pretraining_shards_32", "Beam, shard final", "rename", "staging/*/train/shard-00001*", more=BEAM),
    Point("pretraining_shards_32", "Beam, folder", "mkdir", "staging/*/held_out"),
    Point("pretraining_shards_32", "version", "rename", "store/pretraining_shards/*"),
    # training
    Point("pretrained_32", "run, what it reads", "rename", "runs/*/inputs.json", few=("kill", "EIO")),
    Point("pretrained_32", "metrics.jsonl", "write", "runs/*/0/metrics.jsonl", 6, more=BEAM),
    Point("pretrained_32", "timing.jsonl", "write", "runs/*/0/timing.jsonl", 2, few=("kill", "ENOSPC", "short")),
    Point("pretrained_32", "heartbeat", "write", "runs/*/0/heartbeat-0", few=("kill", "ENOSPC", "EIO")),
    Point("pretrained_32", "checkpoint, tensors", "write", "runs/*/checkpoints/tmp.*/.tmp*", 2, more=BEAM),
    Point("pretrained_32", "checkpoint, state", "write", "runs/*/checkpoints/tmp.*/state.json"),
    Point("pretrained_32", "checkpoint, final", "rename", "runs/*/checkpoints/step-*"),
    Point("pretrained_32", "LATEST", "write", "runs/*/checkpoints/.LATEST.*"),
    Point("pretrained_32", "LATEST, final", "rename", "runs/*/checkpoints/LATEST"),
    Point("pretrained_32", "result", "rename", "runs/*/0/result", more=BEAM),
    Point("pretrained_32", "result, into staging", "write", "staging/*/model.safetensors"),
    Point("pretrained_32", "version", "rename", "store/pretrained/*"),
    Point("pretrained_32", "run, published", "rename", "runs/*/0/published.json"),
    Point("pretrained_32", "run, cleared", "unlink", "runs/*/0/result/*", 2),
    Point("release", "release, weights", "write", "staging/*/.tmp*"),
    Point("release", "release, card", "write", "staging/*/README.md"),
    # fine-tuning
    Point("task_data_places", "task data", "write", "staging/*/train.parquet", 3),
    Point("finetuned_places", "fine-tuning, weights", "write", "runs/*/weights/tmp.*/.tmp*", more=BEAM),
    Point("finetuned_places", "fine-tuning, run", "rename", "runs/*/0/runs/*-42"),
    Point("finetuned_places", "fine-tuning, predictions", "write", "runs/*/predictions/dev*", 3),
    Point("finetuned_places", "result", "rename", "runs/*/0/result"),
    # reports
    Point("contamination", "overlaps", "write", "staging/*/contamination.json"),
    Point("benchmark_report", "report", "write", "staging/*/report.html", more=("far",)),
    Point("benchmark_report", "report, examples", "write", "staging/*/places.parquet", 3),
    Point("benchmark_report", "version", "rename", "store/benchmark_report/*"),
    # promotion
    Point("promotion", "attestation", "write", "staging/*/.croissant.json.*"),
    Point("promotion", "attestations", "rename", "attestations/*"),
    Point("promotion", "champion.json", "write", "assets/tiny/.champion.json.*", more=("clock",)),
    Point("promotion", "champion.json, final", "rename", "assets/tiny/champion.json"),
    # gc
    Point("gc", "tombstone", "write", "tombstones/*/.*"),
    Point("gc", "tombstone, final", "rename", "tombstones/*/*.json"),
    Point("gc", "into the trash", "rename", "trash/*/*"),
    Point("gc for good", "out of the trash", "rename", "trash/*"),
    Point("gc for good", "removal", "unlink", "trash/*/shard-*"),
    Point("restore", "back from the trash", "rename", "store/pretraining_shards/*"),
    Point("restore", "tombstone", "write", "tombstones/*/.*", few=("kill", "ENOSPC", "EIO", "EROFS", "short")),
)


DAMAGE = {
    "truncated": "half of it is gone",
    "empty": "all of it is gone, but its name",
    "flipped": "one bit is another",
    "missing": "the file is gone",
    "extra": "a file more",
    "duplicate": "the file stands there twice",
    "link": "a link that leads nowhere in its place",
}


@dataclass(frozen=True)
class Input:
    """What a piece of work reads."""

    work: str
    name: str
    pattern: str
    """of one file, in the world's folder; the first"""
    damage: tuple[str, ...] = ("truncated", "flipped", "missing")
    outside: bool = False
    """the person's own: put back by them; what is in the home mends itself"""


STORED = ("truncated", "empty", "flipped", "missing", "extra", "duplicate", "link")
OUTSIDE = ("truncated", "flipped", "missing")
INPUTS = (
    Input(
        "wikipedia_text",
        "the dump",
        "text/tinywiki.xml.bz2",
        ("truncated", "empty", "flipped", "missing"),
        outside=True,
    ),
    Input("books_text", "a book", "text/books/book3.txt", (*OUTSIDE, "duplicate", "extra", "link"), outside=True),
    Input("notes_text", "a download", "home/store/files/*/notes.txt", STORED),
    Input("notes_files", "a partial download", "home/downloads/*/partial", ("truncated", "empty", "flipped")),
    Input("documents", "text", "home/store/wikipedia_text/*/part-00000.parquet", STORED),
    Input("wordpiece_vocab", "documents", "home/store/documents/*/part-00001.parquet", STORED),
    Input("pretraining_shards_32", "a vocabulary", "home/store/wordpiece_vocab/*/vocab.txt", STORED),
    Input("pretrained_32", "a shard", "home/store/pretraining_shards/*/train/shard-00001*", STORED),
    Input("release", "weights", "home/store/pretrained/*/model.safetensors", STORED),
    Input("benchmark_report", "scores", "home/store/finetuned/*/scores.json", STORED),
    Input(
        "benchmark_report",
        "a manifest",
        "home/store/finetuned/*/manifest.json",
        ("truncated", "empty", "flipped", "missing"),
    ),
    Input("documents", "a record", "home/records/*.json", ("truncated", "empty", "flipped", "missing")),
    Input("documents", "a pointer", "home/assets/tiny/books_text.json", ("truncated", "empty", "flipped", "missing")),
    Input("gc for good", "a tombstone", "home/tombstones/*/*.json", ("truncated", "flipped", "missing")),
)


@dataclass(frozen=True)
class Cell:
    """One point and what goes wrong there."""

    point: Point | Input | str
    fault: str

    @property
    def work(self) -> str:
        """What is under way."""
        return self.point if isinstance(self.point, str) else self.point.work

    @property
    def name(self) -> str:
        """Unique."""
        if isinstance(self.point, str):
            return f"{self.work}: {self.fault}"
        doing = f" ({self.point.operation})" if isinstance(self.point, Point) else ""
        return f"{self.work}: {self.point.name}{doing}: {self.fault}"


TIMES = {
    "two runs": "two processes begin it at once",
    "clock back": "all of it with a clock that is a day behind",
    "clock ahead": "all of it with a clock that is a year ahead",
    "read-only home": "the home is read-only from the first moment",
}


def cells() -> Iterator[Cell]:
    """All of them, in the order of the work."""
    for point in POINTS:
        yield from (Cell(point, fault) for fault in point.faults)
    for damaged in INPUTS:
        yield from (Cell(damaged, damage) for damage in damaged.damage)
    works = (
        "notes_files",
        "wikipedia_text",
        "documents",
        "wordpiece_vocab",
        "pretraining_shards_32",
        "pretrained_32",
        "release",
    )
    yield from (Cell(work, fault) for work, fault in product((*works, "benchmark_report", "promotion", "gc"), TIMES))
