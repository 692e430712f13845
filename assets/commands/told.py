"""What the terminal says of an artifact beside its version: where its rows went, and which checks did not pass."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def rows_line(statistics: Mapping[str, Any]) -> str:
    """`352 read = 337 kept + 15 dropped: broken_line 1, no_id 14`; "" for what has no rows that are dropped."""
    if not {"read", "kept", "dropped"} <= set(statistics):
        return ""
    dropped = statistics["dropped"]
    reasons = ", ".join(f"{reason} {count:,}" for reason, count in dropped.items() if count)
    line = f"{statistics['read']:,} read = {statistics['kept']:,} kept + {sum(dropped.values()):,} dropped"
    return f"{line}: {reasons}" if reasons else line


def failed_lines(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """`withdrawals_matched: 1 (expected = 0)` for every check that did not pass."""
    return [f"{r['name']}: {r['observed']} (expected {r['expected']})" for r in results if not r["passed"]]


def on_one_line(text: str) -> str:
    """Text from outside, as the name of a file: what would begin a new line, or steer a terminal, is escaped."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def once(errors: Iterable[tuple[str, str, str]]) -> dict[tuple[str, str], list[str]]:
    """(what is wrong, what to do) → the names of which that is so: one line of a recipe is in all that extend it. Of several
    things to do the shortest, which is the file's own."""
    names: dict[str, list[str]] = {}
    todos: dict[str, list[str]] = {}
    for name, what, todo in errors:
        names.setdefault(what, []).append(name)
        todos.setdefault(what, []).append(todo)
    return {(what, min(todos[what], key=len)): found for what, found in names.items()}
