"""What the page of an asset of kind wikipedia shows."""

from types import SimpleNamespace

import pyarrow.parquet as pq

from assets.stages.wikipedia import metadata
from pipeline.schemas import TEXT_SCHEMA, describe_lengths


def test_templates_without_a_rule_stand_in_a_table_with_how_they_were_counted(tmp_path):
    pq.write_table(TEXT_SCHEMA.empty_table(), tmp_path / "part-00000.parquet")
    templates = [{"name": f"t{n}", "count": 90 - n, "example": f"a {{{{t{n}}}}}", "pages": 3} for n in range(50)]
    statistics = {
        **describe_lengths([7]),
        "read": 9,
        "dropped": {"redirect": 8},
        "dump_megabytes": 1.5,
        "unhandled_templates": templates,
    }
    shown = metadata(SimpleNamespace(body={"statistics": statistics}), tmp_path)
    table = [record.data for record in shown["unhandled_templates"].records]
    assert len(table) == 20 and table[0] == {"name": "t0", "count": 90, "pages": 3, "example": "a {{t0}}"}
    assert "one page of 8" in shown["unhandled_templates_note"].value
    assert (shown["read"], shown["dump_megabytes"]) == (9, 1.5)
    assert [record.data for record in shown["dropped"].records] == [{"dropped": "redirect", "count": 8}]


def test_a_dump_whose_templates_all_have_rules_shows_no_such_table(tmp_path):
    pq.write_table(TEXT_SCHEMA.empty_table(), tmp_path / "part-00000.parquet")
    shown = metadata(
        SimpleNamespace(body={"statistics": {**describe_lengths([7]), "unhandled_templates": []}}), tmp_path
    )
    assert "unhandled_templates" not in shown and "unhandled_templates_note" not in shown
