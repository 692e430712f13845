"""What the store must know of a stage function: its name, where it is, and what can change its output.

Every stage function has the shape `stage(inputs, config, out) -> statistics`: `inputs` maps names to folders, `config`
is the frozen configuration of the stage (a model of `pipeline.config`), `out` is an empty folder to write into, and the
statistics are plain JSON values. A constant `STAGE = Stage(...)` stands beside each stage function.
"""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version as version_now
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
version = cache(version_now)  # a search of the disk, asked for by every asset of every recipe


@dataclass(frozen=True)
class Stage:
    """The identity of a stage function."""

    name: str
    """Folder name under `store/`, for example `documents`."""
    function: str
    """`module:function`, imported only when the stage runs."""
    version: str
    """Raised by hand when the output changes for equal input and configuration."""
    libraries: tuple[str, ...] = ()
    """Distributions whose version can change the output; they enter the code version."""
    sources: tuple[str, ...] = ()
    """Globs, relative to the repository, of the source and data files that make the output; tests/test_stages.py holds
    their digest, so that an edit can't pass without a thought for `version`."""
    deterministic: bool = True
    """False for training: two machines need not give equal bytes."""
    resumable: str = ""
    """Where the stage keeps resumable state, and finds a folder of its own as `inputs["run"]`: the module that knows such a
    folder, by its functions `follow(folder, who)`, which reports how far another process's run is, and `clear(folder)`, which
    removes what nobody needs once the result is published."""

    failure: str = ""
    """Where a failure of this stage must not keep others from being made: `module:function` of what is published in its place,
    `failure(inputs, config, out, why) -> statistics`."""

    @property
    def code_version(self) -> str:
        """`VERSION` or `VERSION+library-1.2`, as it enters keys and records."""
        return "+".join([self.version, *(f"{name}-{version(name)}" for name in self.libraries)])

    def load(self) -> Callable[..., dict[str, Any]]:
        """Import and return the stage function."""
        return _imported(self.function)

    def say_failed(self, inputs: Mapping[str, Path], config: Any, out: Path, why: str) -> dict[str, Any]:
        """Write into `out` what is published where the stage failed, and return its statistics."""
        return _imported(self.failure)(inputs, config, out, why)

    def follow(self, folder: Path, who: str) -> None:
        """Report how far a run is that another process, `who`, works on."""
        importlib.import_module(self.resumable).follow(folder, who)

    def clear(self, folder: Path) -> None:
        """Remove of a run folder what nobody needs once its result is published."""
        importlib.import_module(self.resumable).clear(folder)


def _imported(named: str) -> Callable[..., dict[str, Any]]:
    module, _, name = named.partition(":")
    function: Callable[..., dict[str, Any]] = getattr(importlib.import_module(module), name)
    return function
