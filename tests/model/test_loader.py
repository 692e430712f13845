"""Items made ahead on a thread: the same items, errors in their place, an end when asked."""

import threading
from collections.abc import Iterator
from itertools import count, islice

import pytest

from model.loader import Ahead

PATIENCE = 60.0
"""seconds after which a thing that never happens fails a test"""


def test_the_items_in_their_order() -> None:
    for depth in (1, 3, 100):
        with Ahead(range(50), depth) as ahead:
            assert list(ahead) == list(range(50))
            assert list(ahead) == []
    with Ahead(count(), 2) as endless:
        assert list(islice(endless, 20)) == list(range(20))


def test_they_are_made_on_another_thread_and_no_more_than_depth_ahead() -> None:
    made: list[int] = []
    threads = set()
    full = threading.Event()

    def items() -> Iterator[int]:
        for number in count():
            threads.add(threading.current_thread())
            made.append(number)
            if number == 4:
                full.set()
            yield number

    with Ahead(items(), 4) as ahead:
        for taken in range(1, 4):
            assert next(ahead) == taken - 1
            assert len(made) <= taken + 4
        assert full.wait(PATIENCE)  # it does run ahead
    assert threading.current_thread() not in threads
    assert len(made) <= 3 + 4 + 1


def test_an_error_comes_after_the_items_before_it() -> None:
    def items() -> Iterator[int]:
        yield 1
        yield 2
        raise KeyError("broken row group")

    ahead = Ahead(items(), 8)
    assert [next(ahead), next(ahead)] == [1, 2]
    with pytest.raises(KeyError, match="broken row group"):
        next(ahead)
    with pytest.raises(StopIteration):
        next(ahead)


def test_closing_ends_a_thread_that_waits_for_room() -> None:
    ahead = Ahead(count(), 2)
    assert next(ahead) == 0
    ahead.close()
    assert not ahead._thread.is_alive()
    with pytest.raises(StopIteration):
        next(ahead)
    ahead.close()


def test_closing_waits_for_the_item_in_work_and_drops_it() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def items() -> Iterator[int]:
        yield 1
        begun.set()
        go_on.wait(PATIENCE)
        yield 2
        raise AssertionError("asked for another item after the end")

    ahead = Ahead(items(), 2)
    assert begun.wait(PATIENCE)
    threading.Timer(0.05, go_on.set).start()
    ahead.close()
    assert not ahead._thread.is_alive()
    assert list(ahead) == []


def test_closing_wakes_one_who_waits_for_an_item() -> None:
    never = threading.Event()
    ahead = Ahead((never.wait(PATIENCE) for _ in range(1)), 1)
    found: list[list[bool]] = []
    waiting = threading.Thread(target=lambda: found.append(list(ahead)))
    waiting.start()
    threading.Timer(0.05, never.set).start()
    ahead.close()
    waiting.join(PATIENCE)
    assert not waiting.is_alive()


def test_leaving_the_block_by_an_error_ends_the_thread() -> None:
    with pytest.raises(RuntimeError, match="of the loop"), Ahead(count(), 2) as ahead:
        raise RuntimeError("of the loop")
    assert not ahead._thread.is_alive()
    with pytest.raises(ValueError, match="depth 0"):
        Ahead(count(), 0)
