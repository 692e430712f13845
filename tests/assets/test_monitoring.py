"""The metrics file: what a home knows of its retrains, read back by the reference parser."""

import json
import os
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import pytest

from assets import monitoring
from pipeline.retrain import Moment
from pipeline.retrains import watched
from pipeline.settings import settings
from pipeline.storage import champion
from pipeline.store import open_store
from pipeline.system.atomic import write_json
from tests.assets.bertcli import World, recorded
from tests.pipeline.storage.test_champion import release

Found = dict[tuple[str, tuple[tuple[str, str], ...]], float]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    world = World.make(tmp_path / "world")
    file = world.folder / "settings.yaml"
    told = f"metrics: {world.folder / 'told' / 'bert.prom'}\n"
    file.write_text(file.read_text(encoding="utf-8") + told, encoding="utf-8")
    monkeypatch.setenv("BERT_SETTINGS", str(file))
    monkeypatch.delenv("BERT_HOME", raising=False)
    return world


def read(text: str) -> Found:
    """(name, labels) → value, by the reference parser."""
    pytest.importorskip("prometheus_client", reason="needs prometheus_client (requirements-dev.lock)")
    from prometheus_client.openmetrics.parser import text_string_to_metric_families

    families = list(text_string_to_metric_families(text))
    samples = [sample for family in families for sample in family.samples]
    return {(sample.name, tuple(sorted(sample.labels.items()))): sample.value for sample in samples}


def of(name: str, **labels: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    return name, tuple(sorted(labels.items()))


def day(year: int, month: int, date: int) -> float:
    return datetime(year, month, date, tzinfo=UTC).timestamp()


def test_an_empty_home_tells_of_its_disk_only(world: World) -> None:
    found = read(monitoring.metrics())
    assert {name for name, _ in found} == {"bert_store_disk_bytes", "bert_store_disk_free_bytes"}
    assert found[of("bert_store_disk_bytes")] == 0
    stat = os.statvfs(world.folder)
    assert found[of("bert_store_disk_free_bytes")] == pytest.approx(stat.f_bavail * stat.f_frsize, rel=0.05)


def test_champion_runs_dumps_gates_and_disk(world: World) -> None:
    store = open_store()
    record = release(store, "january")
    champion.promote(store, "monthly", record, None, "me", "good", "2026-01-20T00:00:00+00:00")
    watched.note_run(store.home, "monthly", "failed", "0a1b", "2026-02-03T00:00:00.000000+00:00")
    watched.note_run(store.home, "monthly", "made", "0a1a", "2026-02-02T00:00:00.000000+00:00")  # ended before it
    retrains = store.home / "assets" / "monthly" / "retrains"
    moment = Moment("20260101", {"wiki": "20260101"}, {"wiki": 7}, 1, None, None)
    write_json(retrains / "20260101.json", asdict(moment))
    watched.note_look(store.home, "monthly", "hold", "20260201", "held: it shrank", {"tlwiki": "20260201"})
    with store.staging() as staged:
        gates = [{"name": "floors", "passed": True}, {"name": "scores", "passed": True, "task": "cola"}]
        gates += [{"name": "scores", "passed": False, "task": "sst2", "difference": -0.03}]
        gates += [{"name": "champion", "passed": None}]
        (staged / "decision.json").write_text(json.dumps({"promote": False, "gates": gates}), encoding="utf-8")
        version = store.publish("promotion_decision", staged)
    recorded(store, "monthly", "promotion_decision", "promotion_decision", version, {})

    before = datetime.now(UTC).timestamp()
    found = read(monitoring.metrics())
    assert found[of("bert_champion_since_timestamp_seconds", recipe="monthly")] == day(2026, 1, 20)
    age = found[of("bert_champion_age_seconds", recipe="monthly")]
    assert before - day(2026, 1, 20) - 1 <= age <= datetime.now(UTC).timestamp() - day(2026, 1, 20)
    assert found[of("bert_champion_version", recipe="monthly", version=record.version)] == 1
    assert found[of("bert_last_run_timestamp_seconds", recipe="monthly")] == day(2026, 2, 3)
    outcomes = {dict(labels)["outcome"]: v for (name, labels), v in found.items() if name == "bert_last_run_outcome"}
    assert outcomes == {"made": 0, "nothing to do": 0, "failed": 1, "canceled": 0}
    assert found[of("bert_dump_seen_timestamp_seconds", recipe="monthly", wiki="tlwiki")] == day(2026, 2, 1)
    assert found[of("bert_dump_retrained_timestamp_seconds", recipe="monthly")] == day(2026, 1, 1)
    assert found[of("bert_dump_held", recipe="monthly")] == 1
    assert found[of("bert_gate_passed", recipe="monthly", gate="floors")] == 1
    assert found[of("bert_gate_passed", recipe="monthly", gate="scores")] == 0, "of one task it failed"
    assert of("bert_gate_passed", recipe="monthly", gate="champion") not in found, "it did not count"
    files = [path for path in store.home.rglob("*") if path.is_file() or path.is_dir()]
    taken = sum(path.stat().st_blocks * 512 for path in files)
    assert found[of("bert_store_disk_bytes")] == pytest.approx(taken, rel=0.05)

    write_json(retrains / "20260201.json", {**asdict(moment), "dump": "20260201"})
    assert read(monitoring.metrics())[of("bert_dump_held", recipe="monthly")] == 0, "a person has asked for it since"


def test_what_is_damaged_is_left_out_and_said(world: World, caplog: pytest.LogCaptureFixture) -> None:
    store = open_store()
    champion.promote(store, "monthly", release(store, "january"), None, "me", "good", "2026-01-20T00:00:00+00:00")
    watched.note_run(store.home, "monthly", "made")
    (store.home / "assets" / "monthly" / "champion.json").write_text("{", encoding="utf-8")
    names = {name for name, _ in read(monitoring.metrics())}
    assert "bert_champion_version" not in names and "bert_last_run_outcome" in names
    assert "champion.json is damaged" in caplog.text


def test_the_file_is_what_the_command_prints(world: World, caplog: pytest.LogCaptureFixture) -> None:
    watched.note_run(world.home, "monthly", "nothing to do")
    monitoring.write(settings())
    file = world.folder / "told" / "bert.prom"
    names = {name for name, _ in read(file.read_text(encoding="utf-8"))}
    assert {name for name, _ in read(world.bert("metrics"))} == names
    assert [path.name for path in file.parent.iterdir()] == ["bert.prom"], "no temporary file"
    file.unlink()
    file.mkdir()
    monitoring.write(settings())
    assert "was not written" in caplog.text
