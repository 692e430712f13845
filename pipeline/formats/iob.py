"""Tags of words that say where entities are: O, B-TYPE and I-TYPE (IOB1 and IOB2; Tjong Kim Sang and Veenstra 1999)."""

import re
from collections.abc import Iterable, Iterator, Sequence

TAG = re.compile(r"O|[BI]-.+", re.S)
"""What a tag must be; the type is all after the first hyphen."""


def is_iob(tags: Iterable[str]) -> bool:
    """Whether all tags are O, B-TYPE or I-TYPE, and not all O."""
    found = set(tags)
    return bool(found - {"O"}) and all(TAG.fullmatch(tag) for tag in found)


def naming_faults(labels: Sequence[str], names: Sequence[str]) -> Iterator[str]:
    """Why `names`, one for each label, can't be read as entities, or as other entities than those of the labels."""
    types: dict[str, str] = {}  # of a label → of its name
    of_entities = is_iob(labels)
    for label, name in zip(labels, names, strict=True):
        if not TAG.fullmatch(name):
            yield f"{name} names {label} and makes no IOB"
        elif of_entities and name[0] != label[0]:
            yield f"{name} names {label}, but only the type may have another name: entities would begin elsewhere"
        elif of_entities and (first := types.setdefault(label[2:], name[2:])) != name[2:]:
            yield f"{name} names {label}, but another tag of {label[2:]} is named {first}: no entity would be whole"
