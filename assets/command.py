"""The first and the last moment of the `bert` command: importing it takes a second, and Ctrl-C then ends it as quietly as later.

Nothing is imported here that takes time.
"""

import os
import signal
import sys
from contextlib import suppress

INTERRUPTED = 130


def main() -> None:
    """Import the command and run it; exit code 130 for Ctrl-C at any time."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:  # a shell that starts us in the background
        from assets import cli

        cli.main()
    _end_at_once()
    from assets import cli

    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        cli.main()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    finally:
        with suppress(OSError, ValueError):  # a pipe that nobody reads
            sys.stdout.flush()
        _end_at_once()


def _end_at_once() -> None:
    """While nothing has begun that would have to be ended, or all has ended; importing may swallow an exception."""
    signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))


if __name__ == "__main__":
    main()
