"""Fine-tuning of one task as a process: `python -m model.finetune RUN_DIR`.

Reads RUN_DIR/config.json (model/finetuning.py writes it), goes on where an earlier process stopped, and leaves
RUN_DIR/result. Exit codes: 0 finished, 143 stopped by SIGTERM or SIGINT and saved, 1 failed.
"""

from pathlib import Path

from model.processes import child


def main(folder: Path, stop: child.Stop) -> bool:
    """Train every seed (True) or until asked to stop (False)."""
    from model.tuning.finetuning_loop import train  # torch: only after the signals are handled

    return train(folder, stop)


if __name__ == "__main__":
    child.main(main)
