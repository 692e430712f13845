"""No test leaves its home, or a deaf process, to the next."""

import os
import signal

import pytest


@pytest.mark.parametrize("turn", [1, 2])
def test_the_environment_is_nobody_elses(turn: int) -> None:
    """Both turns find what the other one would leave."""
    assert os.environ.get("BERT_HOME") != "left behind" and signal.getsignal(signal.SIGTERM) is not signal.SIG_IGN
    os.environ["BERT_HOME"] = "left behind"
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
