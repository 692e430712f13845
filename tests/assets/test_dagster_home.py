"""What is wrong with dagster.yaml or the address of its database is told in a sentence, by every command, without the password."""

import re
from pathlib import Path

import pytest

from assets.dagster_home import instance
from pipeline.errors import BertError
from tests.assets.bertcli import World
from tests.assets.test_ui_address import free_port

C = "CANARYpw77"
BY_NAME = b"storage: {postgres: {postgres_url: {env: BERT_POSTGRES}}}\n"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty DAGSTER_HOME of this process."""
    (tmp_path / "settings.yaml").write_text(f"home: {tmp_path / 'home'}\n", encoding="utf-8")
    monkeypatch.setenv("BERT_SETTINGS", str(tmp_path / "settings.yaml"))
    for name in ("BERT_HOME", "DAGSTER_DISABLE_TELEMETRY", "GX_ANALYTICS_ENABLED"):
        monkeypatch.setenv(name, "")
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "dagster"))
    (tmp_path / "dagster").mkdir()
    return tmp_path / "dagster"


def refused(home: Path, content: bytes) -> BertError:
    (home / "dagster.yaml").write_bytes(content)
    with pytest.raises(BertError) as raised, instance():
        pass
    assert raised.value.todo and C not in str(raised.value) and len(str(raised.value)) < 1_000
    return raised.value


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"\xff\xfe\0", "not UTF-8 at byte 0"),
        (b"- a", "no map of keys"),
        (b"a", "no map of keys"),
        (b"a: [" * 20_000, "not YAML|nested more than 50 deep"),
        (b"a: " + b"[" * 50_000 + b"]" * 50_000, "nested more than 50 deep"),
        (
            f"storage:\n  postgres:\n    postgres_url: [postgresql://u:{C}@h/db\n".encode(),
            "not YAML at line 4, column 1",
        ),
        (f"a: !!int {C}".encode(), "not YAML"),
        (f"storage: {{postgres: {{postgres_db: {{username: u, password: {C}, hostnam: h}}}}}}".encode(), "hostnam"),
        (f"storage: {{postgres: {{postgres_url: ['postgresql://u:{C}@h/db']}}}}".encode(), "postgres_url|of the kind"),
        (f"storage: {{postgres: {{postgres_ur: 'postgresql://u:{C}@h/db'}}}}".encode(), "postgres_ur"),
        (f"postgres_url: 'postgresql://u:{C}@h/db'".encode(), "postgres_url"),
        (f"storage: 'postgresql://u:{C}@h/db'".encode(), "storage|of the kind"),
        (f"storage: {{postgres: ['postgresql://u:{C}@h/db']}}".encode(), "postgres|of the kind"),
        (f"run_retries: {{max_retries: {C}}}".encode(), "max_retries"),
        (f"nux: {{enabled: {C}}}".encode(), "enabled"),
        (f"concurrency: {{runs: {{max_concurrent_runs: 'a \" b {C}'}}}}".encode(), "max_concurrent_runs"),
        (f"compute_logs: {C}".encode(), "compute_logs"),
        (b"run_launcher: {module: nosuch, class: X}", "nosuch"),
        (b"run_launcher: {module: dagster, class: Nosuch}", "Nosuch"),
        (b"run_launcher: 3", "run_launcher"),
    ],
)
def test_a_dagster_yaml_that_is_none(home: Path, content: bytes, told: str) -> None:
    error = refused(home, content)
    assert re.search(told, error.what) and "dagster.yaml" in error.what


@pytest.mark.parametrize(
    "url",
    [
        *(
            "foo",
            C,
            f"u:{C}@h/db",
            f"postgresql+psycopg2://u:x@127.0.0.1:{C}/db",
            f"postgresql+psycopg2://u:x@{C}@127.0.0.1:1/db",
        ),
        *(f"postgresql+psycopg2://u:x@{C}/y@127.0.0.1:1/db", f"mysql://u:{C}@h/db", f"{C}://h/db", ""),
    ],
)
def test_an_address_that_is_none(home: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BERT_POSTGRES", url)
    error = refused(home, BY_NAME)
    assert "BERT_POSTGRES" in error.what and (not url or "%40" in error.todo)


@pytest.mark.parametrize(
    "url", [f"postgresql+psycopg2://u:{C}/y#z?a@127.0.0.1:1/db", f"postgresql+psycopg2://u:a%40{C}@h.invalid:1/db"]
)
def test_a_server_that_is_not_there_is_told_without_the_password(
    home: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("dagster_postgres", reason="needs the extra postgres")
    monkeypatch.setenv("BERT_POSTGRES", url)
    assert "Dagster's PostgreSQL can't be used" in refused(home, BY_NAME).what


def test_a_driver_that_is_not_named_is(home: Path) -> None:
    """SQLAlchemy 2.1 takes psycopg for `postgresql://`; psycopg2 is what the extra brings."""
    pytest.importorskip("dagster_postgres", reason="needs the extra postgres")
    form = f"storage: {{postgres: {{postgres_db: {{username: u, password: {C}, hostname: 127.0.0.1, port: 1, db_name: d}}}}}}"
    error = refused(home, form.encode())
    assert "No module named 'psycopg'" in error.what and "scheme: postgresql+psycopg2" in error.todo
    assert (
        "PostgreSQL can't be used"
        in refused(home, form.replace("username", "scheme: postgresql+psycopg2, username").encode()).what
    )


def test_every_command_tells_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World.make(tmp_path / "world")
    (world.home / "dagster").mkdir(parents=True)
    (world.home / "dagster" / "dagster.yaml").write_bytes(BY_NAME)
    monkeypatch.setenv("BERT_POSTGRES", f"u:{C}@h/db")
    for command in (("run", "tiny/books_files"), ("doctor",), ("ui", "--port", str(free_port()))):
        told = world.bert(*command, code=1)
        assert "BERT_POSTGRES is no address" in told and "%40" in told, command
        assert "Traceback" not in told and C not in told
    assert "Traceback" not in world.bert("status", "tiny")


def test_every_command_tells_what_is_wrong_with_settings(tmp_path: Path) -> None:
    world = World.make(tmp_path / "world")
    (world.folder / "settings.yaml").write_text("a: " + "[" * 50_000, encoding="utf-8")
    for command in (("status",), ("run", "tiny"), ("doctor",), ("ui",)):
        told = world.bert(*command, code=1)
        assert "settings.yaml:1: nested more than 50 deep" in told and "→" in told and "Traceback" not in told, command


# ── damage ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("file", "keep"), [("runs.db", 0), ("runs/index.db", 0), ("runs.db", 5000), ("runs/index.db", 5000)]
)
def test_a_damaged_database_is_told_with_a_way_out_that_helps(home: Path, file: str, keep: int) -> None:
    with instance():
        pass
    path = home / "history" / file
    content = path.read_bytes()
    assert len(content) > 5000
    path.write_bytes(content[:keep] if keep else b"not a database" * 1000)
    with pytest.raises(BertError, match="database in .* is damaged") as raised, instance():
        pass
    assert f"mv {home} {home}.damaged" in raised.value.todo and "the store is whole" in raised.value.todo
    home.rename(f"{home}.damaged")
    with instance() as opened:
        assert opened.get_runs() == []


def test_a_file_in_the_place_of_the_folder_is_told(home: Path) -> None:
    home.rmdir()
    home.write_text("x", encoding="utf-8")
    with pytest.raises(BertError, match="is a file, and Dagster's folder belongs there") as raised, instance():
        pass
    assert f"mv {home} {home}.away" in raised.value.todo
