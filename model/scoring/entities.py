"""Entities of IOB tags, and their precision, recall and F1 as conlleval (CoNLL-2000 to 2003) and seqeval count them.

One rule reads both forms. An entity begins at `B-TYPE`, and at `I-TYPE` after `O`, after another type, or at the beginning
of a sentence; it goes on with every `I-` of its type. In IOB2 every entity begins with `B-`; in IOB1, CoNLL-2003's own
form, `B-` stands only between two entities of one type that touch. So gold tags and predictions may be in different
forms, and a predicted `I-` that no `B-` opened begins an entity. An entity is right when its type and both its ends are.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Entity:
    """The tokens `start` to `end` (not included) of a sentence."""

    start: int
    end: int
    type: str


@dataclass(frozen=True)
class Counts:
    """How many entities there are, were predicted, and were predicted rightly."""

    gold: int
    predicted: int
    right: int

    @property
    def precision(self) -> float:
        """Share of the predicted entities that are right; 0 where none is predicted."""
        return self.right / self.predicted if self.predicted else 0.0

    @property
    def recall(self) -> float:
        """Share of the gold entities that were found; 0 where there are none."""
        return self.right / self.gold if self.gold else 0.0

    @property
    def f1(self) -> float:
        """Harmonic mean of both; 0 where nothing is right."""
        return 2 * self.right / (self.gold + self.predicted) if self.right else 0.0


def entities(tags: Sequence[str]) -> list[Entity]:
    """The entities of one sentence, in order. Tags must match `pipeline.formats.iob.TAG`."""
    found: list[Entity] = []
    start, kind = 0, ""
    for at, tag in enumerate([*tags, "O"]):
        prefix, _, of = tag.partition("-")
        if kind and (prefix != "I" or of != kind):
            found.append(Entity(start, at, kind))
            kind = ""
        if prefix != "O" and not kind:
            start, kind = at, of
    return found


def counts_by_type(gold: Sequence[str], predicted: Sequence[str]) -> dict[str, Counts]:
    """Counts of one sentence, for every type that either side has."""
    wanted, given = set(entities(gold)), set(entities(predicted))
    sides = [Counter(entity.type for entity in side) for side in (wanted, given, wanted & given)]
    return {kind: Counts(*(side[kind] for side in sides)) for kind in sorted(sides[0] | sides[1])}


def added(counts: Iterable[Counts]) -> Counts:
    """The sum: official scores are of the whole corpus, not means of sentences or types."""
    total = [0, 0, 0]
    for each in counts:
        total = [total[0] + each.gold, total[1] + each.predicted, total[2] + each.right]
    return Counts(*total)


def entity_f1(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> float:
    """F1 of all entities of all sentences; `gold` and `predicted` are tags by sentence, of equal lengths."""
    pairs = zip(gold, predicted, strict=True)
    return added(counts for pair in pairs for counts in counts_by_type(*pair).values()).f1
