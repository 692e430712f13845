"""settings.yaml: values that would be taken for something else are refused in a sentence."""

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
