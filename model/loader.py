"""Items made ahead of their use, on a thread: what is made, and in which order, is what the iterable alone would give.

    with Ahead(batches(feed, first_step), depth=4) as ahead:
        for batch in ahead: ...

A thread, not a process: making a batch is numpy and pyarrow, which let go of the interpreter lock, and a thread has no
queue through which arrays are copied and no child that outlives a killed parent.
"""

import threading
from collections import deque
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Generic, TypeVar

T = TypeVar("T")
CLOSING_SECONDS = 10.0
"""How long closing waits for the item that is being made. The thread dies with the process in any case."""


class Ahead(Generic[T]):
    """An iterator over `items` that keeps up to `depth` of them made.

    What `items` raises is raised where its next item would stand, after the items before it. It is advanced by one
    thread only, which is not the caller's. `close` (or leaving the `with` block) ends it at once or, while an item is
    being made, after that item; what was made and not taken is dropped.
    """

    def __init__(self, items: Iterable[T], depth: int) -> None:
        if depth < 1:
            raise ValueError(f"depth {depth}")
        self._depth = depth
        self._made: deque[T] = deque()
        self._error: BaseException | None = None
        self._ended = self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._make, args=(iter(items),), name="loader", daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        with self._changed:
            while not (self._made or self._ended or self._closed):
                self._changed.wait()
            if self._made:
                item = self._made.popleft()
                self._changed.notify_all()
                return item
            error, self._error = self._error, None
        if error is not None:
            raise error
        raise StopIteration

    def close(self) -> None:
        """End it."""
        with self._changed:
            self._closed = True
            self._made.clear()
            self._error = None
            self._changed.notify_all()
        if self._thread is not threading.current_thread():
            self._thread.join(CLOSING_SECONDS)

    def __enter__(self) -> "Ahead[T]":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _make(self, items: Iterator[T]) -> None:
        error: BaseException | None = None
        try:
            while True:
                with self._changed:
                    while len(self._made) >= self._depth and not self._closed:
                        self._changed.wait()
                    if self._closed:
                        return
                item = next(items)
                with self._changed:
                    if self._closed:
                        return
                    self._made.append(item)
                    self._changed.notify_all()
                del item  # the queue alone holds it
        except StopIteration:
            pass
        except BaseException as raised:  # passed on to the one who takes the items
            error = raised
        finally:
            with self._changed:
                self._error, self._ended = None if self._closed else error, True
                self._changed.notify_all()
