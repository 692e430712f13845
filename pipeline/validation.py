"""Run a suite of `pipeline.suites` with Great Expectations on the measured metrics of an artifact.

GX has no polars engine and takes seconds to import, so it is imported inside and sees a pandas frame of one row.
"""

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.config import Frozen
from pipeline.errors import DataError
from pipeline.suites import DOES_NOT_APPLY, FAILED, NOT_RUN, PRESENT, SUITES, Check, CheckResult, profile


def run_suite(stage: str, folder: Path, config: Frozen, statistics: Mapping[str, Any]) -> list[CheckResult]:
    """See `pipeline.suites.validate`."""
    checks = SUITES[stage].checks
    if (folder / NOT_RUN).exists() and any(check.name == PRESENT for check in checks):
        observed = f"it failed: {statistics[FAILED]}" if FAILED in statistics else "no data"
        return [_result(check, check.name != PRESENT, observed) for check in checks]
    try:
        metrics = profile(stage, folder, config, statistics)
    except DataError as error:
        return [_result(check, False, f"not measured: {error.what}") for check in checks]
    measured = [check for check in checks if _is_number(metrics.get(check.metric))]
    verdicts = expect({check.metric: metrics[check.metric] for check in measured}, measured)
    return [_judged(check, metrics, verdicts) for check in checks]


def _judged(check: Check, metrics: Mapping[str, Any], verdicts: Mapping[str, bool]) -> CheckResult:
    value = metrics.get(check.metric)
    if check.name in verdicts:
        return _result(check, verdicts[check.name], _observed(check, metrics))
    if value == DOES_NOT_APPLY:
        return _result(check, True, DOES_NOT_APPLY)
    return _result(check, False, "not measured" if value is None else f"{check.metric} is {value}")


def expect(metrics: Mapping[str, float], checks: Sequence[Check]) -> dict[str, bool]:
    """Great Expectations' verdict on each check, by name. An expectation that raised has failed."""
    if not checks:
        return {}
    os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")
    import great_expectations as gx
    import pandas as pd
    from great_expectations.data_context.types.base import ProgressBarsConfig

    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    asset = context.data_sources.add_pandas("metrics").add_dataframe_asset("metrics")
    batch = asset.add_batch_definition_whole_dataframe("all").get_batch({"dataframe": pd.DataFrame([dict(metrics)])})
    suite = gx.ExpectationSuite(
        name="suite",
        expectations=[
            getattr(gx.expectations, c.expectation)(**c.arguments, severity=c.severity, meta={"check": c.name})
            for c in checks
        ],
    )
    verdicts = {check.name: False for check in checks}
    for result in batch.validate(suite).results:
        asked = result.expectation_config
        if asked and asked.meta:
            verdicts[asked.meta["check"]] = bool(result.success) and not _raised(result.exception_info)
    return verdicts


def _raised(exception_info: Mapping[str, Any]) -> bool:
    """GX gives one flat entry, or one for each metric that it could not compute."""
    entries = [exception_info, *(entry for entry in exception_info.values() if isinstance(entry, dict))]
    return any(entry.get("raised_exception") for entry in entries)


def _is_number(value: Any) -> bool:
    """GX's column expectations pass over nulls and NaN, so these never reach it."""
    return isinstance(value, int | float) and math.isfinite(value)


def _result(check: Check, passed: bool, observed: str) -> CheckResult:
    return CheckResult(check.name, passed, check.severity, observed, check.expected, check.description)


def _observed(check: Check, metrics: Mapping[str, Any]) -> str:
    explained = ", ".join(
        f"{name} {_number(metrics[name])}" for name in check.shows if metrics.get(name) not in ("", None)
    )
    value = _number(metrics[check.metric])
    return f"{value} ({explained})" if explained else value


def _number(value: Any) -> str:
    return f"{value:,.4g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
