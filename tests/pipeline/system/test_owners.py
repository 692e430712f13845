"""Who is alive, who is dead, and who waits for whom."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.system.owners import Owner, claim, held_lock, is_dead


def ended_process() -> Owner:
    """The identity of a process that has ended."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    owner = Owner.of(child.pid)
    child.communicate(b"\n")
    return owner


def test_identities_survive_being_written() -> None:
    assert Owner.parse(str(Owner.this())) == Owner.this()
    assert Owner.parse("nonsense") is None
    assert Owner.parse("") is None


def test_a_live_process_is_not_dead_and_an_ended_one_is() -> None:
    assert not Owner.this().surely_dead()
    assert not Owner.of(os.getppid()).surely_dead()
    assert ended_process().surely_dead()


def test_a_pid_that_means_another_process_now_is_dead() -> None:
    assert replace(Owner.this(), started="1").surely_dead()
    assert replace(Owner.this(), boot="before").surely_dead()


def test_a_process_of_another_host_is_only_dead_by_its_heartbeat(tmp_path: Path) -> None:
    path = tmp_path / "owner"
    path.write_text(str(replace(ended_process(), host="elsewhere")), encoding="utf-8")
    assert not is_dead(path, lease_seconds=60)
    old = time.time() - 61
    os.utime(path, (old, old))
    assert is_dead(path, lease_seconds=60)


def test_a_process_of_another_boot_or_container_is_only_dead_by_its_heartbeat(tmp_path: Path) -> None:
    path = tmp_path / "owner"
    path.write_text(str(replace(ended_process(), boot="another")), encoding="utf-8")
    assert not is_dead(path, lease_seconds=60)
    os.utime(path, (0, 0))
    assert is_dead(path, lease_seconds=60)


def test_a_claim_that_can_not_be_read_is_judged_by_its_age(tmp_path: Path) -> None:
    path = tmp_path / "owner"
    assert is_dead(path, lease_seconds=60), "there is none"
    path.write_text("half of a na", encoding="utf-8")
    assert not is_dead(path, lease_seconds=60)
    os.utime(path, (0, 0))
    assert is_dead(path, lease_seconds=60)


def test_a_stopped_process_is_not_dead_and_a_killed_one_is_before_anyone_waits_for_it() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    owner = Owner.of(child.pid)
    child.send_signal(signal.SIGSTOP)
    assert not owner.surely_dead()
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # a zombie now
    assert owner.surely_dead()
    child.communicate()


def test_a_claim_of_this_host_is_judged_by_the_process_not_by_age(tmp_path: Path) -> None:
    path = tmp_path / "owner"
    with claim(path, lease_seconds=1000):
        os.utime(path, (0, 0))
        assert not is_dead(path, lease_seconds=1)
    assert not path.exists()
    path.write_text(str(ended_process()), encoding="utf-8")
    assert is_dead(path, lease_seconds=1000)


def test_a_claim_renews_its_heartbeat(tmp_path: Path) -> None:
    path = tmp_path / "owner"
    with claim(path, lease_seconds=0.2):
        os.utime(path, (0, 0))
        deadline = time.monotonic() + 10
        while path.stat().st_mtime < 1 and time.monotonic() < deadline:
            time.sleep(0.02)
        assert path.stat().st_mtime > 1


def test_a_claim_that_can_not_be_removed_hides_no_error(tmp_path: Path) -> None:
    path = tmp_path / "claim"
    with pytest.raises(ValueError, match="inside"), claim(path, 60):
        path.unlink()
        path.mkdir()
        raise ValueError("inside")


def hold(path: Path, started: "multiprocessing.synchronize.Event", seconds: float) -> None:
    with held_lock(path, what="the first"):
        started.set()
        time.sleep(seconds)


def test_the_second_waits_and_says_for_whom_and_a_killed_holder_holds_nothing(tmp_path: Path) -> None:
    fork = multiprocessing.get_context("fork")
    for kill in (False, True):
        started = fork.Event()
        first = fork.Process(target=hold, args=(tmp_path / "lock", started, 60 if kill else 0.5))
        first.start()
        assert started.wait(10)
        said: list[str] = []

        def say(
            line: str, first: multiprocessing.process.BaseProcess = first, kill: bool = kill, said: list[str] = said
        ) -> None:
            said.append(line)
            if kill:
                first.kill()

        with held_lock(tmp_path / "lock", waiting=say):
            first.join()
        assert len(said) == 1 and f"the first (pid {first.pid}" in said[0]


WAIT = """
import signal, sys
from pathlib import Path
signal.signal(signal.SIGINT, signal.default_int_handler)
import polars
from pipeline.system.owners import held_lock
polars.DataFrame({"a": [1]}).lazy().filter(polars.col("a") > 0).collect()  # its handlers stand from now on
with held_lock(Path(sys.argv[1]), waiting=lambda line: print(line, flush=True)):
    print("taken")
"""


def test_an_interrupt_ends_the_waiting_also_where_a_library_lets_signals_restart_system_calls(tmp_path: Path) -> None:
    with held_lock(tmp_path / "lock", what="the first"):
        second = subprocess.Popen(
            [sys.executable, "-c", WAIT, str(tmp_path / "lock")],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert second.stdout is not None
        assert second.stdout.readline().startswith("waiting for the first")
        time.sleep(0.5)  # it waits by now
        second.send_signal(signal.SIGINT)
        try:
            said, error = second.communicate(timeout=20)
        finally:
            second.kill()
    assert said == "" and "KeyboardInterrupt" in error
