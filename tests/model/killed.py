"""A training process that kills itself: `python -m tests.model.killed RUN_DIR MODULE:NAME COUNT [log] [wait] [ahead]`.

It is `python -m model.pretrain RUN_DIR`, but the COUNT-th call of the function never returns: the process ends as by
`kill -9`, when the call has done half of what it does where that can be told (a file is cut in the middle), else before it.
COUNT 0: it is not killed. With `log`, RUN_DIR/samples.log gets the sample numbers of every training batch that was used.
With `wait` it is not killed, but waits in that call, for a signal from outside: RUN_DIR/here says that it does.
With `ahead` the CPU is treated as a device that is AHEAD steps ahead of the host.
"""

import importlib
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from model import pretrain
from model.devices.cpu import Cpu
from model.feeding.feed import Feed
from model.feeding.order import part
from model.processes import child

WAIT_SECONDS = 0.7
AHEAD = 8


def main(folder: Path, point: str, count: int, log: bool, wait: bool) -> None:
    owner, _, name = point.partition(":")
    holder: Any = importlib.import_module(owner)
    for inner in name.split(".")[:-1]:
        holder = getattr(holder, inner)
    called, original = 0, getattr(holder, name.split(".")[-1])

    def deadly(*arguments: Any, **named: Any) -> Any:
        nonlocal called
        called += 1
        if called == count and wait:
            (folder / "here").touch()
            end = time.monotonic() + WAIT_SECONDS
            while time.monotonic() < end:
                time.sleep(0.01)
        elif called == count:
            if name == "save_tensors":
                original(*arguments, **named)
                path = arguments[1]
                with path.open("r+b") as file:
                    file.truncate(path.stat().st_size // 2)
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*arguments, **named)

    setattr(holder, name.split(".")[-1], deadly)
    if log:
        rows = Feed.rows

        def logged(feed: Feed, step: int, micro: int = 0) -> Any:
            with (folder / "samples.log").open("ab") as file:
                numbers = part(step, feed.batch_size, 0, 1, micro, feed.place.micros)
                file.write(f"{step}: {' '.join(map(str, numbers))}\n".encode())
            return rows(feed, step, micro)

        Feed.rows = logged  # type: ignore[method-assign]
    sys.argv = [sys.argv[0], str(folder)]
    child.main(pretrain.main)


if __name__ == "__main__":
    if "ahead" in sys.argv[4:]:
        Cpu.steps_ahead = AHEAD
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), "log" in sys.argv[4:], "wait" in sys.argv[4:])
