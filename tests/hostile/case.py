"""What a hostile input is: its number in the list, its name, how it is made, the door it comes in by, what has to be said of it."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from tests.hostile.driver import Maker, Making
from tests.hostile.xml import SENTENCE


@dataclass(frozen=True)
class Expected:
    """What has to be said."""

    what: Literal["refused", "dropped", "kept"]
    words: tuple[str, ...] = ()
    counts: tuple[tuple[str, int], ...] = ()

    @property
    def shown(self) -> str:
        """What is said, for people: reasons with their counts, and words that are no name of a kind of error or of a file."""
        words = [w for w in self.words if w != SENTENCE and re.search("[ :_]", w) and not w.startswith("exit code")]
        counts = [f"{reason} {count:,}" for reason, count in self.counts]
        return ", ".join(
            dict.fromkeys([*counts, *(word.replace("bad.xhtml: ", "without the page: ") for word in words)])
        )


@dataclass(frozen=True)
class Case:
    """One input."""

    number: int
    name: str
    door: str
    make: Maker
    expected: Expected


def refused(*words: str) -> Expected:
    """An error that says these words."""
    return Expected("refused", words)


def dropped(*words: str, **counts: int) -> Expected:
    """Left out, for these reasons so often; the words are said of it beside."""
    return Expected("dropped", words, tuple(counts.items()))


def kept(*words: str) -> Expected:
    """Taken as text that holds these words."""
    return Expected("kept", words)


def put(name: str, data: bytes | str | Callable[[], Any]) -> Maker:
    """A file of this name; a function makes what is large when it is needed."""
    return lambda making: making.put(name, data() if callable(data) else data)


def beside_a_good_one(name: str, data: bytes | str | Callable[[], Any]) -> Maker:
    """The same beside a good text, which has to stay."""

    def make(making: Making) -> None:
        making.put(name, data() if callable(data) else data)
        making.put("good.txt", SENTENCE)

    return make
