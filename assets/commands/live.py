"""What a person sees of `bert run` in a terminal: lines that stay, and below them what runs now, with bars that move.

Where the output is no terminal, every line is printed as it comes.
"""

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from pipeline.units import duration

Say = Callable[[str], None]

_PLANNED = re.compile(r"  (?:will run|may run) +(\w+): ")
_STARTED = re.compile(r"▸ (\w+)$")
_ENDED = re.compile(r"[✓✗] (\w+)")
_PROGRESS = re.compile(r"(\w+): ([\d,.]+)/([\d,.]+) ")
_WAITS = re.compile(r"(\w+) waits for its turn")
_WAIT_LINES = 6
"""more assets than this that wait are a number"""


@dataclass
class Shown:
    """What is known of a run from its lines."""

    begun: float
    planned: dict[str, None] = field(default_factory=dict)
    """assets that may get a step and have not ended"""
    running: dict[str, float] = field(default_factory=dict)
    """asset → when it began"""
    said: dict[str, str] = field(default_factory=dict)
    """asset → the last that it said of how far it is"""
    ended: int = 0

    def hear(self, line: str, now: float) -> bool:
        """Take a line in; whether it should stay on the screen."""
        if found := _PLANNED.match(line):
            self.planned[found[1]] = None
        elif found := _STARTED.match(line):
            self.running[found[1]] = now
            self.said.pop(found[1], None)
            return False
        elif (found := _PROGRESS.match(line)) and found[1] in self.running:
            self.said[found[1]] = line.partition(": ")[2]
            return False
        elif (found := _WAITS.match(line)) and "\n" not in line:
            self.said[found[1]] = line.removeprefix(f"{found[1]} ")
            return False
        elif (found := _ENDED.match(line)) and found[1] in self.planned:
            self.ended += 1
            self.planned.pop(found[1])
            self.running.pop(found[1], None)
        return True


def drawn(shown: Shown, now: float, width: int) -> RenderableType:
    """A line per asset that runs or waits for a pool, and one for the whole run."""
    table = Table.grid(padding=(0, 1), expand=True)
    for _ in range(3):
        table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, justify="right")
    table.add_column(no_wrap=True, ratio=1, overflow="ellipsis")
    for name, began in shown.running.items():
        said = shown.said.get(name, "")
        table.add_row("▸", Text(name, style="bold"), _bar(said), duration(now - began), said)
    waiting = [name for name in shown.said if name not in shown.running and name in shown.planned]
    for name in waiting[:_WAIT_LINES]:
        table.add_row("·", name, "", "", Text(shown.said[name], style="dim"))
    total = shown.ended + len(shown.planned)
    whole = Table.grid(padding=(0, 1))
    bar = ProgressBar(total or 1, shown.ended, min(40, max(8, width // 3)), complete_style="cyan")
    whole.add_row(bar, f"{shown.ended} of {total} done · {duration(now - shown.begun)}")
    return Group(table, whole)


def _bar(said: str) -> RenderableType:
    found = re.match(r"([\d,.]+)/([\d,.]+) ", said)
    done, total = (float(part.replace(",", "")) for part in found.groups()) if found else (0.0, 0.0)
    return ProgressBar(total, done, 16, complete_style="cyan") if total else ""


@contextmanager
def view(console: Console) -> Iterator[Say]:
    """What to give the lines of a run to."""
    if not console.is_terminal or console.is_dumb_terminal:
        yield lambda line: print(line, file=console.file, flush=True)
        return
    shown = Shown(time.monotonic())

    class Now:
        """Drawn anew whenever the screen is."""

        def __rich__(self) -> RenderableType:
            return drawn(shown, time.monotonic(), console.width)

    with Live(Now(), console=console, refresh_per_second=4, transient=True):

        def say(line: str) -> None:
            began = dict(shown.running)
            if not shown.hear(line, time.monotonic()):
                return
            found = _ENDED.match(line)
            took = f"  {duration(time.monotonic() - began[found[1]])}" if found and found[1] in began else ""
            console.print(Text(line, style=_style(line)).append(took, style="dim"), soft_wrap=True)

        yield say


def _style(line: str) -> str:
    return {"✓": "green", "✗": "red", "!": "yellow"}.get(line[:1], "")
