"""A process for the launcher's tests: `python -m tests.model.launched RUN_DIR`; config.json says how it behaves."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

from model.processes import child, lines
from pipeline.errors import TrainingError


def main(folder: Path, stop: child.Stop) -> bool:
    config = json.loads((folder / "config.json").read_text())
    if config.get("deaf"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        kept = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        (folder / "grandchild").write_text(str(kept.pid))
    rows = lines.Lines(folder / "metrics.jsonl")
    for step in range(1, config["steps"] + 1):
        rows.append({"step": step, "loss": 1 / step})
        time.sleep(config.get("pause", 0.01))
        if stop.asked:
            (folder / "saved").touch()
            return False
    if "fail" in config:
        print("reading the shards")
        if config["fail"] == "crash":
            raise ValueError("a bug")
        raise TrainingError("the gradients are not finite", "Lower the learning rate.")
    return True


if __name__ == "__main__":
    child.main(main)
