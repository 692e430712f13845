"""A training process that kills itself: `python -m tests.model.killed RUN_DIR MODULE:NAME COUNT [log]`.

It is `python -m model.pretrain RUN_DIR`, but the COUNT-th call of the function never returns: the process ends as by
`kill -9`, when the call has done half of what it does where that can be told (a file is cut in the middle), else before it.
COUNT 0: it is not killed. With `log`, RUN_DIR/samples.log gets the sample numbers of every training batch that was used.
"""

import importlib
import os
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np

from model import child, pretrain, pretraining_loop


def main(folder: Path, point: str, count: int, log: bool) -> None:
    owner, _, name = point.partition(":")
    holder: Any = importlib.import_module(owner)
    for part in name.split(".")[:-1]:
        holder = getattr(holder, part)
    called, original = 0, getattr(holder, name.split(".")[-1])

    def deadly(*arguments: Any, **named: Any) -> Any:
        nonlocal called
        called += 1
        if called == count:
            if name == "save_tensors":
                original(*arguments, **named)
                path = arguments[1]
                with path.open("r+b") as file:
                    file.truncate(path.stat().st_size // 2)
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*arguments, **named)

    setattr(holder, name.split(".")[-1], deadly)
    if log:
        drawn = pretraining_loop.training_rows

        def logged(reader: Any, step: int, batch_size: int, *rest: Any) -> Any:
            with (folder / "samples.log").open("ab") as file:
                numbers = np.arange(step * batch_size, (step + 1) * batch_size)
                file.write(f"{step}: {' '.join(map(str, numbers))}\n".encode())
            return drawn(reader, step, batch_size, *rest)

        pretraining_loop.training_rows = logged
    sys.argv = [sys.argv[0], str(folder)]
    child.main(pretrain.main)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), "log" in sys.argv[4:])
