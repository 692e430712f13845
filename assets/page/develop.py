"""`dagster dev`, which starts a code server, the daemon and the webserver, with our webserver in the place of its own.

python -m assets.page.develop -w workspace.yaml -h 127.0.0.1 -p 3000
"""

import sys
import warnings
from collections.abc import Sequence
from subprocess import Popen
from typing import Any

from dagster._cli import dev

from assets.dagster_home import instance
from pipeline.errors import BertError
from pipeline.system.terminal import steady

_start = dev.open_ipc_subprocess


def guarded(parts: Sequence[str], **more: Any) -> "Popen[Any]":
    """Start what `dagster dev` wants to start, but no page without the guard."""
    return _start(["assets.page.web" if part == "dagster_webserver" else part for part in parts], **more)


def main() -> None:
    """Serve until somebody ends it, or one of the three has ended. What is wrong with Dagster's folder is told first."""
    try:
        with instance():
            pass
    except BertError as error:
        sys.exit(steady(f"error: {error}"))
    dev.open_ipc_subprocess = guarded
    warnings.filterwarnings("ignore", message=".*dev_command.* is superseded")  # by a package that is not needed here
    dev.dev_command()


if __name__ == "__main__":
    main()
