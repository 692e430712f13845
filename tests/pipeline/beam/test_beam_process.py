import resource
import signal
import subprocess
import sys
import time

import psutil
import pytest

from pipeline.beam import beam_process
from pipeline.errors import BertError, DataError, StoreError


def execute(code, scratch, polled=None):
    """Run Python text as if it were a pipeline."""
    beam_process.run("builtins:exec", code, scratch, lambda: polled.append(1) if polled is not None else None)


def test_the_parent_is_called_while_it_waits_and_at_the_end(tmp_path):
    polled = []
    execute(f"import time; time.sleep(1.2); open({str(tmp_path / 'done')!r}, 'w').close()", tmp_path, polled)
    assert (tmp_path / "done").exists()
    assert len(polled) >= 2


def test_an_error_for_a_person_arrives_as_it_was_raised(tmp_path):
    with pytest.raises(DataError) as raised:
        execute("from pipeline.errors import DataError; raise DataError('row 7 is empty', 'Fill it.')", tmp_path)
    assert (raised.value.what, raised.value.todo) == ("row 7 is empty", "Fill it.")


WORKERS = """
import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

def refuse(number):
    from pipeline.errors import DataError

    raise DataError("row 7 is empty\\nand so is 8 [see 'x']", TODO)

options = PipelineOptions(flags=[], runner="FnApiRunner", direct_running_mode="in_memory", direct_num_workers=1)
with beam.Pipeline(options=options) as pipeline:
    pipeline | beam.Create([1]) | "Read it" >> beam.Map(refuse)
"""


@pytest.mark.parametrize("todo", ["Fill it.", ""])
def test_an_error_that_comes_through_beam_says_nothing_of_its_steps(tmp_path, todo):
    with pytest.raises(DataError) as raised:
        execute(WORKERS.replace("TODO", repr(todo)), tmp_path)
    assert (raised.value.what, raised.value.todo) == ("row 7 is empty\nand so is 8 [see 'x']", todo)


def test_an_error_of_a_kind_that_only_a_module_knows_is_still_one_for_a_person(tmp_path):
    with pytest.raises(BertError) as raised:
        execute("from pipeline.origins.transfer import NotFound; raise NotFound('gone', 'Look elsewhere.')", tmp_path)
    assert (raised.value.what, raised.value.todo) == ("gone", "Look elsewhere.")


def test_any_other_error_shows_the_end_of_the_log(tmp_path):
    with pytest.raises(RuntimeError, match="(?s)said before.*ZeroDivisionError") as raised:
        execute("print('said before', flush=True); 1 / 0", tmp_path)
    assert not isinstance(raised.value, BertError)


def test_a_disk_that_takes_nothing_more_is_told_where_no_note_of_it_could_be_written(tmp_path):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        with pytest.raises(StoreError, match="File too large") as raised:
            execute("raise ValueError('a worker could not write')", tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert str(tmp_path) in raised.value.what and "ulimit -f" in raised.value.todo


def test_what_is_left_in_the_temporary_folder_goes_with_the_scratch_folder(tmp_path):
    execute("import tempfile; tempfile.mkdtemp(prefix='left-')", tmp_path)
    assert [path.parent.name for path in tmp_path.rglob("left-*")] == ["tmp"]


def test_a_killed_process_is_named(tmp_path):
    with pytest.raises(BertError, match="ended by signal 9") as raised:
        execute("import os; os.kill(os.getpid(), 9)", tmp_path)
    assert "memory" in raised.value.todo


def test_an_interrupted_parent_ends_all_processes(tmp_path):
    code = f"""
import os, subprocess, time
inner = subprocess.Popen(["sleep", "600"])
open({str(tmp_path / "pids")!r}, "w").write(f"{{os.getpid()}} {{inner.pid}}")
time.sleep(600)
"""

    def interrupt():
        if (tmp_path / "pids").exists() and len((tmp_path / "pids").read_text().split()) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        beam_process.run("builtins:exec", code, tmp_path, interrupt)
    assert all_gone(tmp_path / "pids")


def test_all_processes_end_when_the_parent_is_killed(tmp_path):
    code = f"""
import os, subprocess, time
inner = subprocess.Popen(["sleep", "600"])
open({str(tmp_path / "pids")!r}, "w").write(f"{{os.getpid()}} {{inner.pid}}")
time.sleep(600)
"""
    parent = f"""
from pathlib import Path
from pipeline.beam import beam_process
beam_process.run("builtins:exec", {code!r}, Path({str(tmp_path)!r}), lambda: None)
"""
    process = subprocess.Popen([sys.executable, "-c", parent])
    limit = time.monotonic() + 60
    while not (tmp_path / "pids").exists() or len((tmp_path / "pids").read_text().split()) < 2:
        assert time.monotonic() < limit
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert all_gone(tmp_path / "pids")


def all_gone(pids):
    limit = time.monotonic() + 20
    while alive := [pid for pid in map(int, pids.read_text().split()) if runs(pid)]:
        assert time.monotonic() < limit, alive
        time.sleep(0.05)
    return True


def runs(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
