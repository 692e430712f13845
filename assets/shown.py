"""Pieces of what an asset's page shows: numbers, a table, one small plot."""

import base64
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import dagster as dg

from pipeline.store import Record
from pipeline.system.places import opened


def numbers(statistics: Mapping[str, Any], *, but: Iterable[str] = (), first: Sequence[str] = ()) -> dict[str, Any]:
    """Every number, to six digits, and short text of the statistics under its own name, those in `first` before the others;
    Dagster draws the numbers over time."""
    skipped = set(but)
    names = [*(name for name in first if name in statistics), *(name for name in statistics if name not in first)]
    return {
        name: float(f"{value:.6g}") if isinstance(value, float) else value
        for name, value in ((name, statistics[name]) for name in names)
        if name not in skipped and isinstance(value, int | float | str) and not isinstance(value, bool)
    }


def counts(table: Mapping[str, Any], name: str, value: str) -> dg.TableMetadataValue:
    """A mapping as a table of two columns."""
    return dg.MetadataValue.table(
        [dg.TableRecord({name: str(key), value: _cell(number)}) for key, number in table.items()]
    )


def tables(statistics: Mapping[str, Any]) -> dict[str, dg.TableMetadataValue]:
    """Every mapping of the statistics as a table under its own name."""
    return {
        name: counts(value, name, "count") for name, value in statistics.items() if isinstance(value, dict) and value
    }


def rows(table: Sequence[Mapping[str, Any]], first: Sequence[str] = ()) -> dg.TableMetadataValue:
    """Rows as a table; every row has the columns of the first row, those named in `first` before the others."""
    columns = sorted(table[0], key=lambda name: first.index(name) if name in first else len(first)) if table else []
    return dg.MetadataValue.table([dg.TableRecord({c: _cell(row.get(c)) for c in columns}) for row in table])


def _cell(value: Any) -> str | int | float:
    return value if isinstance(value, int | float | str) and not isinstance(value, bool) else str(value)


def schema(folder: Path) -> dict[str, Any]:
    """`dagster/column_schema` of the first Parquet file of a folder."""
    first = next(iter(sorted(folder.glob("part-*.parquet")) or sorted(folder.rglob("*.parquet"))), None)
    if first is None:
        return {}
    columns = [dg.TableColumn(field.name, str(field.type)) for field in _schema(first)]
    return {"dagster/column_schema": dg.TableSchema(columns)}


def _schema(path: Path) -> Any:
    import pyarrow.parquet as pq

    with opened(path) as file:
        return pq.read_schema(file)


def plot(draw: Callable[[Any], None], title: str) -> dg.MarkdownMetadataValue:
    """A small PNG as Markdown. `draw` gets the axes."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 3.2), dpi=80, layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(title, loc="left", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.25)
    draw(axes)
    picture = io.BytesIO()
    figure.savefig(picture, format="png")
    return dg.MetadataValue.md(f"![{title}](data:image/png;base64,{base64.b64encode(picture.getvalue()).decode()})")


def text_metadata(record: Record, folder: Path) -> dict[str, Any]:
    """What every table of documents shows: counts, drops that add up, first rows, lengths."""
    import pyarrow.parquet as pq

    statistics = record.body["statistics"]
    sample: list[dict[str, Any]] = []
    for part in sorted(folder.glob("part-*.parquet")):
        with opened(part) as source, pq.ParquetFile(source) as file:
            for batch in file.iter_batches(batch_size=5 - len(sample), columns=["doc_id", "title", "text"]):
                for row in batch.to_pylist():
                    text = row.pop("text")
                    sample.append({**row, "characters": len(text), "begins": text[:80]})
                break
        if len(sample) >= 5:
            break
    return {
        "dagster/row_count": statistics["row_count"],
        **numbers(statistics),
        **tables(statistics),
        **schema(folder),
        **({"sample": rows(sample)} if sample else {}),
        **lengths(statistics),
    }


def lengths(statistics: Mapping[str, Any]) -> dict[str, Any]:
    """The histogram of the lengths of a table's documents as a plot; nothing for an empty table."""
    histogram = statistics.get("length_histogram") or []

    def draw(axes: Any) -> None:
        starts, ends, counted = zip(*histogram, strict=True)
        widths = [end - start for start, end in zip(starts, ends, strict=True)]
        axes.bar(starts, counted, widths, align="edge", edgecolor="white", linewidth=0.5)
        axes.set_xscale("log")
        axes.set_xlabel("characters per document")
        axes.set_ylabel("documents")

    return {"lengths": plot(draw, "Length of documents")} if histogram else {}
