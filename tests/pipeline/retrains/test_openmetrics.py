"""Text in the OpenMetrics format, held against the reference parser and the specification's own words."""

import pytest

from pipeline.retrains.openmetrics import Gauge, text


def gauges() -> list[Gauge]:
    age = Gauge("bert_champion_age_seconds", 'Since it came "into" use,\nby \\.', "seconds")
    age.add(86400.5, recipe="demo")
    age.add(0, recipe='a "b"\\\nc')
    plain = Gauge("bert_store_disk_bytes", "Bytes.", "bytes")
    plain.add(123456789012)
    return [age, Gauge("bert_never", "It has no sample."), plain]


def test_it_is_written_as_the_specification_says() -> None:
    assert text(gauges()) == (
        "# TYPE bert_champion_age_seconds gauge\n"
        "# UNIT bert_champion_age_seconds seconds\n"
        '# HELP bert_champion_age_seconds Since it came \\"into\\" use,\\nby \\\\.\n'
        'bert_champion_age_seconds{recipe="demo"} 86400.5\n'
        'bert_champion_age_seconds{recipe="a \\"b\\"\\\\\\nc"} 0\n'
        "# TYPE bert_store_disk_bytes gauge\n"
        "# UNIT bert_store_disk_bytes bytes\n"
        "# HELP bert_store_disk_bytes Bytes.\n"
        "bert_store_disk_bytes 123456789012\n"
        "# EOF\n"
    )
    assert text([]) == "# EOF\n"


def test_the_reference_parsers_read_it() -> None:
    """That of OpenMetrics, and that of the older format, which node_exporter's textfile collector speaks."""
    pytest.importorskip("prometheus_client", reason="needs prometheus_client (requirements-dev.lock)")
    from prometheus_client import parser as older
    from prometheus_client.openmetrics import parser

    for read in (parser.text_string_to_metric_families, older.text_string_to_metric_families):
        found = {family.name: family for family in read(text(gauges()))}
        assert set(found) == {"bert_champion_age_seconds", "bert_store_disk_bytes"}
        age = found["bert_champion_age_seconds"]
        assert age.type == "gauge"
        assert [(s.labels["recipe"], s.value) for s in age.samples] == [("demo", 86400.5), ('a "b"\\\nc', 0.0)]
    (family, _) = parser.text_string_to_metric_families(text(gauges()))
    assert (family.unit, family.documentation) == ("seconds", 'Since it came "into" use,\nby \\.')
