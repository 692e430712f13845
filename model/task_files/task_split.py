"""Train, dev and test of a task: without overlap where the user's files are ours to split, untouched where they are official."""

import hashlib
from collections.abc import Mapping

from model.task_files.task_examples import Counted
from model.task_files.task_kinds import PARTS, Example
from pipeline.config import Task, TaskForm

Parts = dict[str, list[Example]]


def split_own(define: Task, read: Mapping[str, list[Example]], counted: Counted) -> Parts:
    """Train, dev and test without overlap: what test holds leaves train and dev, what dev holds leaves train."""
    train, dev, test = (read.get(part, []) for part in PARTS)
    if "test" not in read and define.test_share is not None:
        train, test = by_hash(train, "test", define.test_share)
    seen_in_train = {example.same for example in train}
    leaked = {example.same for example in test} & seen_in_train
    train = _without(train, "train", "also stands in test", test, counted)
    dev = _without(dev, "dev", "also stands in test", test, counted)
    if "dev" in read:
        leaked |= {example.same for example in dev} & seen_in_train
        train = _without(train, "train", "also stands in dev", dev, counted)
    else:
        train, dev = by_hash(train, "dev", define.dev_share)
    counted.leaked_texts = len(leaked)
    return {"train": train, "dev": dev, "test": test}


def positives(form: TaskForm, parts: Parts, counted: Counted) -> Parts:
    """Where pairs of train have scores, those that mean the same, by their score; else all parts as they are."""
    if form.positive_score is None:
        return parts
    train = parts.get("train", [])
    kept = [example for example in train if example.label >= form.positive_score]
    if len(kept) < len(train):
        counted.drop("train", f"a score below {form.positive_score:g}", len(train) - len(kept))
    return {**parts, "train": kept}


def overlap(parts: Mapping[str, list[Example]]) -> int:
    """Different texts that stand in train and again in another part."""
    train = {example.same for example in parts.get("train", [])}
    others = {example.same for part, examples in parts.items() if part != "train" for example in examples}
    return len(train & others)


def by_hash(examples: list[Example], name: str, share: float) -> tuple[list[Example], list[Example]]:
    """(kept, taken): about `share` of the groups is taken, by a hash, so that what belongs together stays together."""
    taken = [_position(name, example.group) < share for example in examples]
    pairs = list(zip(examples, taken, strict=True))
    return [e for e, out in pairs if not out], [e for e, out in pairs if out]


def _position(name: str, text: str) -> float:
    """A number from 0 up to 1 that follows from the text; independent for every `name`."""
    digest = hashlib.blake2b(text.encode(), digest_size=8, person=name.encode()).digest()
    return int.from_bytes(digest, "big") / 2**64


def _without(examples: list[Example], part: str, reason: str, other: list[Example], counted: Counted) -> list[Example]:
    texts = {example.same for example in other}
    kept = [example for example in examples if example.same not in texts]
    if len(kept) < len(examples):
        counted.drop(part, reason, len(examples) - len(kept))
    return kept
