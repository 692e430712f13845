"""How a stage says how far it is. A stage knows no listener; whoever runs it may listen.

    for page in progress.track(pages, total=251, unit="pages"): ...
    progress.report(done, total, "steps", loss=1.83)
    progress.tell("about 6 hours, 4 GB of checkpoints")

Without a listener a report costs a comparison. Listeners get at most one report every `INTERVAL` seconds per unit, and
always the last one.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import TypeVar

from pipeline.units import duration

INTERVAL = 5.0  # seconds between two reports that reach the listener
T = TypeVar("T")


@dataclass(frozen=True)
class Progress:
    """`done` of `total` (None: unknown) `unit`s after `seconds`, with the measured values so far."""

    done: float
    total: float | None
    unit: str
    seconds: float
    before: float = 0.0
    """what was done when the first report came: a resumed stage starts there"""
    measured: dict[str, float] = field(default_factory=dict)
    where: str = ""
    """in words, where a long stage is"""

    @property
    def rate(self) -> float:
        """Units per second since the first report."""
        return (self.done - self.before) / self.seconds if self.seconds > 0 else 0.0

    @property
    def eta_seconds(self) -> float | None:
        """Seconds left at this rate; None when the total or the rate is unknown."""
        return (self.total - self.done) / self.rate if self.total and self.rate else None

    def __str__(self) -> str:
        if self.unit.startswith("bytes"):
            megabytes = replace(self, done=self.done / 1e6, before=self.before / 1e6, unit=f"MB{self.unit[5:]}")
            return str(replace(megabytes, total=self.total and self.total / 1e6))
        digits = 1 if self.unit.startswith("MB") else 0
        of = f"/{self.total:,.{digits}f}" if self.total else ""
        values = "".join(f" · {name} {value:.4g}" for name, value in self.measured.items())
        eta = f" · {duration(self.eta_seconds)} left" if self.eta_seconds else ""
        rate = f" · {self.rate:,.1f}/s" if self.rate else ""
        where = f" · {self.where}" if self.where else ""
        return f"{self.done:,.{digits}f}{of} {self.unit}{rate}{eta}{where}{values}"


class _Listener:
    def __init__(self, callback: Callable[[Progress], None], told: Callable[[str], None]) -> None:
        self.callback, self.told = callback, told
        self.started: dict[str, tuple[float, float]] = {}  # unit → time of the first report, and what was done then
        self.last: dict[str, float] = {}
        self.done: dict[str, float] = {}
        self.finished: set[str] = set()

    def hear(self, done: float, total: float | None, unit: str, measured: dict[str, float], where: str) -> None:
        now = time.monotonic()
        if done < self.done.get(unit, done):  # the next file, or pass: its rate is its own
            self.started.pop(unit)
        self.done[unit] = done
        started, before = self.started.setdefault(unit, (now, done))
        finished = total is not None and done >= total
        if unit in self.finished and finished:
            return  # said already
        if now - self.last.get(unit, started) >= INTERVAL or finished:
            self.last[unit] = now
            (self.finished.add if finished else self.finished.discard)(unit)
            self.callback(Progress(done, total, unit, now - started, before, measured, where))


_listener: ContextVar[_Listener | None] = ContextVar("progress_listener", default=None)


@contextmanager
def listen(callback: Callable[[Progress], None], told: Callable[[str], None] = lambda line: None) -> Iterator[None]:
    """Within this block, what stages report reaches `callback`, and what they tell `told`."""
    token = _listener.set(_Listener(callback, told))
    try:
        yield
    finally:
        _listener.reset(token)


def report(done: float, total: float | None, unit: str, **measured: float) -> None:
    """Say that `done` of `total` units are done; `measured` are values to show beside it."""
    report_at("", done, total, unit, measured)


def report_at(where: str, done: float, total: float | None, unit: str, measured: dict[str, float]) -> None:
    """`report`, and say in words where that is."""
    listener = _listener.get()
    if listener is not None:
        listener.hear(done, total, unit, measured, where)


def tell(line: str) -> None:
    """Say something once that whoever runs the stage should read before it is done."""
    listener = _listener.get()
    if listener is not None:
        listener.told(line)


def track(items: Iterable[T], total: float | None, unit: str) -> Iterator[T]:
    """Yield the items and report how many were handled."""
    report(0, total, unit)
    for done, item in enumerate(items, start=1):
        yield item
        report(done, total, unit)
