"""docs/alerts.md names what there is: every setting, every kind of alert, every metric."""

import re
from typing import get_args

from assets import monitoring
from pipeline.retrains import alerts
from pipeline.settings import EmailSettings, WebhookSettings
from tests.conftest import ROOT

TEXT = (ROOT / "docs" / "alerts.md").read_text(encoding="utf-8")


def first_columns() -> set[str]:
    """The names in the first column of every table."""
    cells = [line.split("|")[1] for line in TEXT.splitlines() if line.startswith("| `")]
    return {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


def test_every_setting_kind_and_metric_is_told() -> None:
    settings = {f"webhook.{name}" for name in WebhookSettings.model_fields}
    settings |= {f"email.{field.alias or name}" for name, field in EmailSettings.model_fields.items()}
    metrics = {gauge.name for gauge in monitoring.gauges()}
    assert first_columns() == settings | set(get_args(alerts.Kind)) | metrics
