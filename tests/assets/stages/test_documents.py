"""What the page of the documents shows."""

from pathlib import Path

import dagster as dg

from assets.stages.documents import metadata
from pipeline.schemas import write_dropped
from pipeline.store import Record
from tests.pipeline.test_documents import build, prose, table


def test_the_page_shows_where_every_document_went(tmp_path: Path) -> None:
    inputs = {
        "one": table(tmp_path, "one", *({"text": prose(n)} for n in range(8)), {"text": "short"}),
        "two": table(tmp_path, "two", *({"text": prose(n)} for n in range(4))),
    }
    write_dropped(inputs["one"], 11, 9, {"no_prose": 2})
    (tmp_path / "withdrawn.csv").write_text("doc_id,reason\none:7,asked for\ntwo:99,never there\n")
    (tmp_path / "quiz.txt").write_text(prose(6))
    _, statistics = build(
        inputs,
        tmp_path / "out",
        exclude={"path": str(tmp_path / "withdrawn.csv")},
        decontaminate={"quiz": {"from": {"path": str(tmp_path / "quiz.txt")}}},
    )
    shown = metadata(Record("", {"statistics": statistics}), tmp_path / "out")

    def rows(name: str) -> list[dict[str, object]]:
        assert isinstance(shown[name], dg.TableMetadataValue)
        return [dict(record.data) for record in shown[name].records]

    steps = rows("waterfall")
    assert steps[:2] == [
        {"source": "one", "step": "read", "documents": 11},
        {"source": "one", "step": "one_text: no_prose", "documents": -2},
    ]
    assert {"source": "one", "step": "documents: withdrawn", "documents": -1} in steps
    assert {"source": "one", "step": "documents: contaminated", "documents": -1} in steps
    assert [row["source"] for row in rows("sources")] == ["one", "two"]
    assert rows("languages") == [{"declared": "en", "detected": "en", "documents": 6}]
    assert {"withdrawals": "line 3: doc_id two:99", "count": "matched nothing"} in rows("withdrawals")
    assert rows("benchmarks")[0]["documents"] == 1
    assert len(rows("sample")) == len(rows("longest")) == len(rows("shortest")) == 5
    assert {row["size"] for row in rows("largest_duplicate_groups")} == {2}
    assert shown["dagster/row_count"] == 6 and "data:image/png" in shown["lengths"].value
    columns = [column.name for column in shown["dagster/column_schema"].columns]
    assert columns[-3:] == ["split", "sentence_ends", "repeat"], (
        "those of the table, not of the list of what was dropped"
    )
