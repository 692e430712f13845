"""settings.yaml: values that would be taken for something else are refused in a sentence."""

import os
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from pipeline import settings as of_file
from pipeline.errors import RecipeError
from pipeline.settings import TrainingSettings, settings
from pipeline.stage import ROOT


def read(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> TrainingSettings:
    file = folder / f"{abs(hash(text))}.yaml"
    file.write_text(text, encoding="utf-8")
    monkeypatch.setenv("BERT_SETTINGS", str(file))
    return settings().training


@pytest.mark.parametrize("value", ["0", "-1", "true", "1.5", "64k", "Auto", "'auto '", "[auto]", ".nan"])
def test_what_is_no_number_of_tokens(value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RecipeError) as refused:
        read(tmp_path, f"training: {{micro_batch_tokens: {value}}}", monkeypatch)
    assert "training.micro_batch_tokens: must be a number of tokens from 1 on, or auto; it is " in refused.value.what
    assert refused.value.what.count("micro_batch_tokens") == 1


@pytest.mark.parametrize(("written", "is_"), [("auto", "auto"), ("65536", 65536), ("1", 1), ("", None)])
def test_what_is(written: str, is_: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = read(tmp_path, f"training: {{micro_batch_tokens: {written}}}", monkeypatch)
    assert found.micro_batch_tokens == is_
    assert TrainingSettings.model_validate(found.plain()) == found


@pytest.mark.parametrize(
    "key",
    [
        *("training.threads", "training.ranks", "training.checkpoint_seconds", "training.checkpoint_steps"),
        *("training.keep_checkpoints", "training.milestone_steps", "training.stop_seconds", "training.hang_seconds"),
        *("beam.workers", "lease_seconds"),
    ],
)
def test_true_is_no_1(key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    *section, name = key.split(".")
    text = f"{name}: true" if not section else f"{section[0]}: {{{name}: true}}"
    with pytest.raises(RecipeError, match=f"{key}: must be a number; it is true"):
        read(tmp_path, text, monkeypatch)


def test_the_shipped_file_names_every_key_and_states_the_defaults() -> None:
    """Of `provider`, whose keys docs/attestations.md lists, the first two."""
    text = (ROOT / "settings.yaml").read_text(encoding="utf-8")
    sections = ("Settings", "DownloadSettings", "BeamSettings", "TrainingSettings", "RetentionSettings")
    for name in (*sections, "WebhookSettings", "EmailSettings"):
        for key, field in getattr(of_file, name).model_fields.items():
            assert f"{field.alias or key}:" in text, f"{name}.{key} is not in settings.yaml"
    loaded = of_file.Settings.model_validate(YAML(typ="safe", pure=True).load(text))
    assert loaded == of_file.Settings(), "what stands there uncommented is the default"


CANARY = "CANARYpw77"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (f"beam: {{options: {{flink_master: 'http://u:{CANARY}@h'}}}}", "beam.options.flink_master"),
        (
            f'beam: {{options: {{environment_config: \'{{"env": {{"api_key": "{CANARY}"}}}}\'}}}}',
            "environment_config.env.api_key",
        ),
        (f"beam: {{options: {{api_key: {CANARY}}}}}", "beam.options.api_key"),
        (f"beam: {{options: {{auth: {CANARY}}}}}", "beam.options.auth"),
        (f"beam: {{options: {{passwd: {CANARY}}}}}", "beam.options.passwd"),
        (f"downloads: {{site: 'https://u:{CANARY}@dumps.wikimedia.org'}}", "downloads.site"),
        (f"downloads: {{site: 'https://dumps.wikimedia.org:{CANARY}'}}", "downloads.site"),
        (
            f"training: {{launcher: 'TOKEN={CANARY} torchrun -m {{module}} {{run}}'}}",
            "training.launcher: a value for TOKEN",
        ),
        (f"smtp_password: {CANARY}", "smtp_password"),
        (f"smpt: {CANARY}", "smpt: unknown key"),
        (f"smpt: [{CANARY}]", "smpt: unknown key"),
        (f"'{CANARY} x': 1", "…: unknown key"),
        (f"mlflow: {{uri: 'http://u:{CANARY}@h'}}", "mlflow.uri"),
        (f"mlflow: {{uri: 'postgresql://u:{CANARY}/x@h/db'}}", "mlflow.uri"),
        (f"store: 's3://bucket/f?secret={CANARY}'", "store"),
        (f"store: 's3://[{CANARY}'", "store"),
        (f"alerts: {{webhook: {{'https://h/{CANARY}': x}}}}", "alerts.webhook.…: unknown key"),
        (f"alerts: {{webhook: {{url: 'https://h/x', token: {CANARY}}}}}", "alerts.webhook.token: unknown key"),
        (f"a: 1\nb: {CANARY} : [", "not YAML at line 2, column 15"),
        (f"{CANARY}: 1\n{CANARY}: 2", "not YAML at line 2"),
        (f"a: !!timestamp {CANARY}", "not YAML"),
        (f"a: !!int {CANARY}", "not YAML"),
        (f"a: !!python/object/apply:{CANARY} []", "not YAML"),
    ],
)
def test_no_refusal_tells_a_value(text: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RecipeError) as refused:
        read(tmp_path, text, monkeypatch)
    assert told in refused.value.what and CANARY not in str(refused.value)


def test_small_values_of_known_keys_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RecipeError, match=r"beam.files: .* \(got 'disc'\)"):
        read(tmp_path, "beam: {files: disc}", monkeypatch)


BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10)
)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: " + "[" * 50_000 + "]" * 50_000, "nested more than 50 deep"),
        (BOMB, "more than 100,000 values"),
        ("training: " + str([1] * 90_000), "must be a map of keys"),
        ("\n".join(f"k{n}: {n}" for n in range(9_000)), "and 8980 more"),
        ("x" * 11_000_000, "larger than 10 MB"),
        ("- a", "must be a map of keys"),
    ],
)
def test_what_no_person_wrote_is_refused_in_a_line(
    text: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(RecipeError) as refused:
        read(tmp_path, text, monkeypatch)
    assert told in refused.value.what and len(str(refused.value)) < 2_000


def test_what_is_no_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "pipe")
    for named in (
        "/dev/zero",
        str(tmp_path),
        str(tmp_path / "pipe"),
        str(tmp_path / "loop"),
        str(tmp_path / ("x" * 300)),
    ):
        monkeypatch.setenv("BERT_SETTINGS", named)
        with pytest.raises(RecipeError) as refused:
            settings()
        assert named in refused.value.what and refused.value.todo
    latin = tmp_path / "latin.yaml"
    latin.write_bytes(b"\xff\xfe\0")
    monkeypatch.setenv("BERT_SETTINGS", str(latin))
    with pytest.raises(RecipeError, match="not UTF-8 at byte 0"):
        settings()
