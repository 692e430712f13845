"""Errors that a person can act on. Everything that bertworks raises on purpose is one of these.

BertError                 what is wrong, where, what to do next
├── RecipeError           a recipe that can't be used: file, key, rule, value
├── SourceError           the outside: a file that is missing, changed, truncated, or a failed download
├── DataError             content that breaks a contract: a record in a file, a vocabulary, a shard
├── StoreError            the store: broken content, an altered record, a disk that is full or read-only
├── ChainError            inputs that come from different generations of one asset
└── TrainingError         a training process that failed
    └── ProcessLost       it was killed or hung: run again, it goes on from its last checkpoint
"""

from collections.abc import Mapping


class BertError(Exception):
    """An error with its way out.

    `what` says what is wrong and where (file, line, record), `todo` the next useful step; both are shown to the user
    without a traceback.
    """

    def __init__(self, what: str, todo: str = "") -> None:
        self.what = what
        self.todo = todo
        super().__init__(f"{what}\n  → {todo}" if todo else what)

    @property
    def line(self) -> str:
        """What is wrong, in one line."""
        return self.what.partition("\n")[0]

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        return type(self), (self.what, self.todo)


class RecipeError(BertError):
    """A recipe or settings file that can't be used."""


class SourceError(BertError):
    """Something outside (a file, a URL, a wheel) that is missing, changed or broken."""


class DataError(BertError):
    """Content that breaks the contract of its stage."""


class StoreError(BertError):
    """Content or a record of the store that can't be read or written."""


class ChainError(BertError):
    """Inputs whose ancestries name different versions of one asset."""


class TrainingError(BertError):
    """A training process that ended without its result."""


class ProcessLost(TrainingError):
    """A training process that was killed, hung or had to make room: nothing that the job did."""


def told(error: BertError) -> dict[str, str]:
    """An error as JSON values for another process; a kind that only some module knows counts as the one above it."""
    kind = next(each.__name__ for each in type(error).__mro__ if each.__name__ in globals())
    return {"kind": kind, "what": error.what, "todo": error.todo}


def retold(said: Mapping[str, str]) -> BertError:
    """The error that another process has `told`."""
    error: BertError = globals()[said["kind"]](said["what"], said["todo"])
    return error
