"""Numbers as text in the OpenMetrics format.

    # TYPE bert_champion_age_seconds gauge
    # UNIT bert_champion_age_seconds seconds
    # HELP bert_champion_age_seconds Since the champion came into use.
    bert_champion_age_seconds{recipe="demo"} 86400
    # EOF

Written after the specification (https://github.com/prometheus/OpenMetrics/blob/main/specification/OpenMetrics.md, 1.0). Only
gauges: collectors of the older Prometheus text format know no others of what is told here, and read the rest as comments.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

Labels = Mapping[str, str]


@dataclass
class Gauge:
    """One metric: its samples differ by their labels."""

    name: str
    help: str
    unit: str = ""
    """a last part of the name, as `seconds`"""
    samples: list[tuple[Labels, float]] = field(default_factory=list)

    def add(self, value: float, **labels: str) -> None:
        """One more sample."""
        self.samples.append((labels, value))


def text(gauges: Iterable[Gauge]) -> str:
    """All that have samples, each once, in this order."""
    lines = []
    for gauge in gauges:
        if gauge.samples:
            lines.append(f"# TYPE {gauge.name} gauge")
            lines += [f"# UNIT {gauge.name} {gauge.unit}"] if gauge.unit else []
            lines.append(f"# HELP {gauge.name} {_escaped(gauge.help)}")
            lines += [f"{gauge.name}{_labels(labels)} {_number(value)}" for labels, value in gauge.samples]
    return "\n".join([*lines, "# EOF", ""])


def families(gauges: Sequence[Gauge]) -> dict[str, Gauge]:
    """By name."""
    return {gauge.name: gauge for gauge in gauges}


def _labels(labels: Labels) -> str:
    inner = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return f"{{{inner}}}" if inner else ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))
