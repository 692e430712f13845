"""The plots of the report as SVG text, to stand inside a page, on a light or a dark ground.

Deterministic: no dates, ids from a fixed salt. Whatever is drawn in INK takes the colour of the page's text.
"""

import io
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK = "#010203"
"""stands for the colour of the page's text"""
OURS, OTHER = "#3b82f6", "#f59e0b"
MOST_POINTS = 400
"""of one curve; longer ones are thinned to means"""
Points = Sequence[tuple[float, float]]


def curve(name: str, label: str, lines: Mapping[str, Points], baseline: tuple[str, float] | None = None) -> str:
    """Curves over training steps; `lines` name → (step, value), the first in our colour; `baseline` a dashed level."""
    figure, axes = _figure(4.6, 2.9)
    for number, (title, points) in enumerate(lines.items()):
        steps, values = zip(*thinned(points), strict=True) if points else ((), ())
        few = len(steps) <= 30
        style: dict[str, Any] = {"marker": "o", "markersize": 3.5} if few else {}
        colour = (OURS, OTHER)[number % 2]
        axes.plot(steps, values, color=colour, linewidth=1.6, label=title, zorder=3 - number, **style)
    if baseline is not None:
        axes.axhline(baseline[1], color=INK, alpha=0.55, linestyle=(0, (4, 3)), linewidth=1.1, label=baseline[0])
        low, high = axes.get_ylim()
        axes.set_ylim(min(low, baseline[1] - 0.06 * (high - low)), high)
    axes.set_xlim(left=0)
    axes.set_xlabel("training step")
    axes.set_ylabel(label)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    _legend(axes, 3)
    return _svg(figure, name)


def thinned(points: Points) -> Points:
    """At most MOST_POINTS points: means of equally many neighbours each."""
    size = -(-len(points) // MOST_POINTS) if points else 1
    groups = [points[at : at + size] for at in range(0, len(points), size)]
    return [(sum(x for x, _ in group) / len(group), sum(y for _, y in group) / len(group)) for group in groups]


def comparison(rows: Sequence[Mapping[str, Any]]) -> str:
    """A line per task with a mark per model, in points. Rows: title, seeds (of our model), ours, and untrained, tfidf,
    majority (None: not measured)."""
    figure, axes = _figure(7.4, 1.15 + 0.42 * len(rows))
    places = range(len(rows) - 1, -1, -1)  # the first task on top
    marks = (
        ("untrained", "same network, no pretraining", {"marker": "o", "facecolors": "none", "edgecolors": OTHER}),
        ("tfidf", "TF-IDF", {"marker": "D", "facecolors": "none", "edgecolors": INK, "s": 34}),
        ("majority", "one answer for all", {"marker": "|", "color": INK, "s": 130}),
        ("ours", "pretrained, median of seeds", {"marker": "o", "color": OURS, "zorder": 4}),
    )
    for place, row in zip(places, rows, strict=True):
        known = [row[name] for name, _, _ in marks if row[name] is not None]
        axes.plot([min(known), max(known)], [place, place], color=INK, alpha=0.2, linewidth=1, zorder=1)
        axes.scatter(row["seeds"], [place] * len(row["seeds"]), s=14, color=OURS, alpha=0.45, linewidths=0, zorder=3)
    for name, title, style in marks:
        found = [(row[name], place) for place, row in zip(places, rows, strict=True) if row[name] is not None]
        if found:
            values, at = zip(*found, strict=True)
            axes.scatter(values, at, label=title, **({"s": 58, "linewidths": 1.6} | style))
    axes.set_yticks(list(places), [row["title"] for row in rows])
    for text in axes.get_yticklabels():
        text.set_parse_math(False)  # a title may hold a $
    axes.set_ylim(-0.6, len(rows) - 0.4)
    axes.set_xlabel("points (of 100)")
    axes.grid(axis="x", color=INK, alpha=0.12)
    axes.grid(axis="y", visible=False)
    _legend(axes, 2 if len(marks) > 3 else 4)
    return _svg(figure, "comparison")


def spread(name: str, task: Mapping[str, Any]) -> str:
    """A line per part of a task: a dot per seed, a bar over the median's interval, a diamond for each published score of the
    same part and metric. task: metric, metric_title, rows (part, seeds, ours, low, high) and published, as in report.json."""
    rows, published = task["rows"], task["published"]
    figure, axes = _figure(4.6, 1.25 + 0.5 * len(rows))
    places = range(len(rows) - 1, -1, -1)
    for place, row in zip(places, rows, strict=True):
        if row["low"] is not None:
            axes.plot(
                [row["low"], row["high"]],
                [place, place],
                color=OURS,
                alpha=0.25,
                linewidth=9,
                solid_capstyle="butt",
                label="95 % interval",
            )
        axes.scatter(
            row["seeds"], [place] * len(row["seeds"]), s=22, color=OURS, linewidths=0, zorder=4, label="a seed"
        )
        axes.scatter([row["ours"]], [place], marker="|", s=220, color=INK, zorder=5, label="median")
        for beside in published:
            if beside["split"] == row["part"] and beside["metric"] == task["metric"]:
                style: dict[str, Any] = {"marker": "D", "facecolors": "none", "edgecolors": OTHER, "s": 34, "zorder": 5}
                axes.scatter([beside["points"]], [place], label="published", **style)
    axes.set_yticks(list(places), [row["part"].replace("_", "\n") for row in rows])
    axes.set_ylim(-0.6, len(rows) - 0.4)
    axes.set_xlabel(f"{task['metric_title']}, points").set_parse_math(False)
    axes.grid(axis="x", color=INK, alpha=0.12)
    axes.grid(axis="y", visible=False)
    _legend(axes, 4)
    return _svg(figure, name)


def bars(name: str, label: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """A bar per row up to its median, with a whisker from lowest to highest, a dot per value and a diamond for what was
    published. Rows: title, values, shown (what stands at the bar's end), median, lowest, highest, published (or None)."""
    figure, axes = _figure(5.6, 1.1 + 0.36 * len(rows))
    places = range(len(rows) - 1, -1, -1)  # the first row on top
    for place, row in zip(places, rows, strict=True):
        if row["values"]:
            axes.barh(place, row["median"], height=0.55, color=OURS, alpha=0.35, label="median")
            axes.plot([row["lowest"], row["highest"]], [place, place], color=OURS, linewidth=1.6, zorder=3)
            axes.scatter(
                row["values"], [place] * len(row["values"]), s=16, color=OURS, linewidths=0, zorder=4, label="runs"
            )
            written = axes.text(row["highest"], place, f"  {row['shown']}", va="center", fontsize=8, color=INK)
            written.set_parse_math(False)
        if row["published"] is not None:
            style: dict[str, Any] = {"marker": "D", "facecolors": "none", "edgecolors": OTHER, "s": 34, "zorder": 5}
            axes.scatter([row["published"]], [place], label="published", **style)
    axes.set_yticks(list(places), [row["title"] for row in rows])
    for text in axes.get_yticklabels():
        text.set_parse_math(False)
    axes.set_ylim(-0.6, len(rows) - 0.4)
    axes.set_xlabel(label).set_parse_math(False)
    axes.set_xlim(0, 1.3 * axes.get_xlim()[1])  # room for the words at the end of the bars
    axes.grid(axis="x", color=INK, alpha=0.12)
    axes.grid(axis="y", visible=False)
    _legend(axes, 3)
    return _svg(figure, f"bars-{name}")


def _figure(width: float, height: float) -> tuple["Figure", "Axes"]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_alpha(0.4)
    axes.grid(axis="y", alpha=0.12, color=INK)
    axes.set_axisbelow(True)
    for part in (axes.xaxis, axes.yaxis):
        part.label.set(color=INK, fontsize=9)
    axes.spines[["left", "bottom"]].set_color(INK)
    axes.tick_params(colors=INK, labelsize=9, length=3)
    return figure, axes


def _legend(axes: "Axes", columns: int) -> None:
    handles, labels = axes.get_legend_handles_labels()
    first = {text: handle for handle, text in reversed(list(zip(handles, labels, strict=True)))}
    named = dict.fromkeys(labels)  # in their order, each once
    axes.legend(
        [first[text] for text in named],
        list(named),
        loc="lower left",
        bbox_to_anchor=(0, 1.0),
        ncols=columns,
        frameon=False,
        fontsize=9,
        labelcolor=INK,
        handlelength=1.5,
        columnspacing=1.2,
        borderaxespad=0.2,
        borderpad=0.2,
    )


def _svg(figure: "Figure", name: str) -> str:
    """The figure as one <svg> element; its texts stay text."""
    import matplotlib

    written = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": name, "svg.fonttype": "none"}):
        figure.savefig(written, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = written.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.DOTALL)
    text = re.sub(r"<style.*?</style>\s*", "", text, flags=re.DOTALL)  # it would speak to the whole page
    text = re.sub(r" font-family: [^;]*;", "", text)  # the page's own typeface
    # ids are unique in a file, but a page holds several
    text = re.sub(r'( id="|xlink:href="#|url\(#)', rf"\g<1>{name}-", text)
    text = text.replace(INK, "currentColor")
    return text.replace("<svg ", '<svg role="img" ', 1).strip()
