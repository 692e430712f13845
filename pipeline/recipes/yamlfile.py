"""YAML 1.2 files as trees that know where every value stands, and how one file extends another.

`read` gives a tree of `Node`s, `merge` lays a child over its parent, `plain` makes Python values of a tree. Messages
about a merged recipe can so name the file and line that a value really comes from.
"""

import os
import re
import stat
from collections.abc import Iterator, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)
from ruamel.yaml.nodes import MappingNode, ScalarNode, SequenceNode

from pipeline.errors import RecipeError
from pipeline.recipes.secret_words import url_secret_in
from pipeline.stage import ROOT

KeyPath: TypeAlias = tuple[str | int, ...]
PATHS = ("path", "templates", "manifest", "exclude", "compare")
"""Keys whose values are paths, in recipes and settings."""
_LIKE_A_PATH = re.compile(r"^(?![0-9a-f]{64}(/|$)).*[/.~]", re.DOTALL)
"""`from` may also name a version, or a part of one: VERSION/stable"""
TEXT = "(text)"
"""What a union calls the member that is text, so that `find` knows it from a key."""
_TAG = "tag:yaml.org,2002:"


@dataclass(frozen=True)
class Node:
    """A value and the file and line (from 1) that it was written on; of a value in a map, the line of its key."""

    value: Any
    """dict[str, Node], tuple[Node, ...], or a plain scalar; None is YAML's null"""
    file: Path
    line: int
    text: str = field(default="", compare=False)
    """a scalar as it was written: `20260101` is a number, but where text is wanted, it is this"""

    def place(self) -> str:
        """`recipes/demo.yaml:12`"""
        return f"{shown(self.file)}:{self.line}"


def shown(file: Path) -> str:
    """The path as people write it: relative to the checkout where it lies inside."""
    return str(file.relative_to(ROOT)) if file.is_relative_to(ROOT) else str(file)


def read(file: Path) -> Node:
    """The tree of a YAML 1.2 file whose top level is a map.

    `1e-4` is a number, `no` is text, dates are text, keys are text, and a whole number written as `1e6` is an int.
    Raises RecipeError with file and line: unreadable file, syntax, a key that stands twice, a tag, a value that holds
    itself, a URL that holds a secret.
    """
    yaml = YAML(typ="safe", pure=True)
    text = text_of(file)
    try:
        check_size(file, text)
        root = yaml.compose(text)
    except MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        problem = " ".join(filter(None, (error.context, error.problem)))
        raise RecipeError(f"{shown(file)}:{line}: not YAML: {problem}", "Correct the line.") from None
    except YAMLError as error:
        raise RecipeError(f"{shown(file)}: not YAML: {error}", "Correct the file.") from None
    if not isinstance(root, MappingNode):
        raise RecipeError(f"{shown(file)}: holds no map of keys at its top level", "Start with `name: …`.")
    return _build(root, file, yaml, root.start_mark.line + 1, frozenset())


MAX_DEPTH = 50
MAX_VALUES = 100_000
MAX_BYTES = 10_000_000


def text_of(file: Path) -> str:
    """The text of a file that a person wrote. RecipeError for what can't be read, is none, or is too large for that: a device has
    no end, and a pipe may never begin."""
    try:
        found = file.stat()
        if not stat.S_ISREG(found.st_mode):
            raise RecipeError(f"{shown(file)}: is no file", "Name a file, or remove it.")
        if found.st_size > MAX_BYTES:
            raise RecipeError(f"{shown(file)}: larger than {MAX_BYTES // 1_000_000} MB", "Write less.")
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise RecipeError(f"{shown(file)}: {error.strerror}", "Make the file readable, or remove it.") from None
    except UnicodeDecodeError as error:
        raise RecipeError(f"{shown(file)}: not UTF-8 at byte {error.start}", "Save the file as UTF-8.") from None


def check_size(file: Path, text: str) -> None:
    """RecipeError for a file that is nested too deep, or whose aliases, written out, give more values than anybody means:
    composing such a file would never end. Reads events, which takes no recursion."""
    sizes: dict[str, int] = {}  # anchor → values below it
    open_at: list[tuple[str | None, int]] = []  # anchor and count at the start of every open map or list
    count = 0
    for event in YAML(typ="safe", pure=True).parse(text):
        if isinstance(event, AliasEvent):
            count += sizes.get(event.anchor, 1)
        elif isinstance(event, MappingStartEvent | SequenceStartEvent):
            open_at.append((event.anchor, count))
            count += 1
        elif isinstance(event, MappingEndEvent | SequenceEndEvent):
            anchor, before = open_at.pop()
            if anchor:
                sizes[anchor] = count - before
        elif isinstance(event, ScalarEvent):
            count += 1
        line = event.start_mark.line + 1
        if len(open_at) > MAX_DEPTH:
            raise RecipeError(f"{shown(file)}:{line}: nested more than {MAX_DEPTH} deep", "Write it flatter.")
        if count > MAX_VALUES:
            raise RecipeError(
                f"{shown(file)}:{line}: more than {MAX_VALUES:,} values, counted with its aliases written out",
                "Write less.",
            )


def _build(node: Any, file: Path, yaml: YAML, line: int, within: Set[int]) -> Node:
    if id(node) in within:
        raise RecipeError(f"{shown(file)}:{line}: the alias holds itself", "Write the value out.")
    within = within | {id(node)}
    if isinstance(node, MappingNode | SequenceNode) and str(node.tag) not in (f"{_TAG}map", f"{_TAG}seq"):
        raise RecipeError(f"{shown(file)}:{line}: tag {node.tag} is not allowed", "Write a plain value.")
    if isinstance(node, MappingNode):
        entries: dict[str, Node] = {}
        for key, value in node.value:
            at = key.start_mark.line + 1
            if not isinstance(key, ScalarNode):
                raise RecipeError(f"{shown(file)}:{at}: a key is not a word", "Keys are plain words.")
            _check_secret(key.value, file, at)
            if key.value in entries:
                raise RecipeError(
                    f"{shown(file)}:{at}: key {key.value} stands twice, first on line {entries[key.value].line}",
                    "Remove one of them.",
                )
            entries[key.value] = _build(value, file, yaml, at, within)
        return Node(entries, file, line)
    if isinstance(node, SequenceNode):
        items = (_build(item, file, yaml, item.start_mark.line + 1, within) for item in node.value)
        return Node(tuple(items), file, line)
    _check_secret(node.value, file, line)
    return Node(_scalar(node, file, yaml, line), file, line, node.value)


def _check_secret(text: str, file: Path, line: int) -> None:
    """RecipeError for a URL that lets whoever reads it in; the value is not told."""
    if found := url_secret_in(text):
        raise RecipeError(
            f"{shown(file)}:{line}: {found} may not stand here: recipes stand in records, which are shown and kept for ever",
            "Download the file and name it by `path`.",
        )


def _scalar(node: ScalarNode, file: Path, yaml: YAML, line: int) -> Any:
    kind = str(node.tag).removeprefix(_TAG)
    try:
        if kind in ("str", "timestamp"):
            return node.value
        if kind == "null":
            return None
        if kind == "bool":
            return yaml.constructor.construct_yaml_bool(node)
        if kind == "int":
            return int(yaml.constructor.construct_yaml_int(node))
        if kind == "float":
            number = float(yaml.constructor.construct_yaml_float(node))
            return int(number) if number.is_integer() else number
    except (ValueError, LookupError):  # of a value with a tag, `!!bool maybe`, the library looks no further
        raise RecipeError(f"{shown(file)}:{line}: {node.value} is no {kind}", "Correct the value.") from None
    raise RecipeError(f"{shown(file)}:{line}: tag {node.tag} is not allowed", "Write a plain value.")


def merge(parent: Node, child: Node) -> Node:
    """The child laid over its parent: maps merge key by key, lists and scalars replace, null deletes.

    A null whose key the parent lacks stays in the tree, so that the caller can tell a typo from a deletion.
    """
    if not (isinstance(parent.value, dict) and isinstance(child.value, dict)):
        return child
    entries = dict(parent.value)
    for key, value in child.value.items():
        if key not in entries:
            entries[key] = value
        elif value.value is None:
            del entries[key]
        else:
            entries[key] = merge(entries[key], value)
    return Node(entries, child.file, child.line)


def plain(node: Node, as_text: Set[KeyPath] = frozenset(), at: KeyPath = ()) -> Any:
    """Python values without nulls: dict, tuple, str, int, float, bool.

    The scalars at `as_text` are given as they were written. The text under the keys of PATHS becomes an absolute
    path that starts at the folder of the file where it is written.
    """
    if isinstance(node.value, dict):
        return {k: plain(v, as_text, (*at, k)) for k, v in node.value.items() if v.value is not None}
    if isinstance(node.value, tuple):
        return tuple(plain(v, as_text, (*at, i)) for i, v in enumerate(node.value))
    value = node.text if at in as_text else node.value
    is_path = at and (at[-1] in PATHS or (at[-1] == "from" and _LIKE_A_PATH.search(str(value))))
    if is_path and isinstance(value, str) and value:
        return os.path.normpath(node.file.parent.absolute() / Path(value).expanduser())  # keeps links
    return value


def nulls(node: Node, at: KeyPath = ()) -> Iterator[KeyPath]:
    """Key paths of every null of a map."""
    if isinstance(node.value, dict):
        for key, value in node.value.items():
            if value.value is None:
                yield (*at, key)
            yield from nulls(value, (*at, key))
    if isinstance(node.value, tuple):
        for index, value in enumerate(node.value):
            yield from nulls(value, (*at, index))


def find(node: Node, path: KeyPath) -> tuple[KeyPath, Node, bool]:
    """Walk `path` as far as the tree goes: (the path without steps that are no keys, the node there, all found).

    Pydantic's locations name the chosen member of a union between two keys; such a step is left out. A last step that
    the tree lacks (a missing key) stays in the path, and the node is its map.
    """
    cleaned: KeyPath = ()
    path = path[:-1] if path[-1:] == (TEXT,) else path
    for position, step in enumerate(path):
        last = position == len(path) - 1
        child = _child(node, step)
        if child is not None and (last or isinstance(child.value, dict | tuple)):
            node, cleaned = child, (*cleaned, step)
        elif last:
            return (*cleaned, step), node, False
    return cleaned, node, True


def _child(node: Node, step: str | int) -> Node | None:
    if isinstance(node.value, dict):
        return node.value.get(str(step))
    if isinstance(node.value, tuple) and isinstance(step, int) and step < len(node.value):
        child: Node = node.value[step]
        return child
    return None
