"""One phase of pretraining as a process: `python -m model.pretrain RUN_DIR`.

Reads RUN_DIR/config.json (model/pretraining.py writes it), goes on from the newest intact checkpoint there, and leaves
RUN_DIR/result. Exit codes: 0 finished, 143 stopped by SIGTERM or SIGINT and saved, 1 failed.
"""

from pathlib import Path

from model.processes import child


def main(folder: Path, stop: child.Stop) -> bool:
    """Train to the end (True) or until asked to stop (False)."""
    from model.training.pretraining_loop import train  # torch: only after the signals are handled

    return train(folder, stop)


if __name__ == "__main__":
    child.main(main)
