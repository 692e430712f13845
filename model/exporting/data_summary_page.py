"""The summary of training content for people: the values of `pipeline.attestations.data_summary` as a page of Markdown."""

from collections.abc import Iterator, Mapping
from typing import Any

from model.reporting.pages import escape_markdown

FILE = "data-summary.md"


def data_summary_page(summary: Mapping[str, Any]) -> str:
    """The page, in the template's order."""
    return "\n".join(_lines(summary)) + "\n"


def _lines(summary: Mapping[str, Any]) -> Iterator[str]:
    general, data, processing = (summary[part] for part in ("general_information", "data_sources", "data_processing"))
    provider, model, training = general["provider"], general["model"], general["training_data"]
    size = training["size"]
    yield from ("# Public summary of training content", "")
    yield "For Article 53(1)(d) of Regulation (EU) 2024/1689, in the sections of the Commission's template. Made from the records of"
    yield from ("the training; what they do not tell is called unknown.", "")
    yield from ("## 1. General information", "", "### 1.1 Provider", "")
    yield from _pairs(
        {
            "Name": provider["name"],
            "Contact": provider["contact"],
            "Authorised representative": provider["authorised_representative"],
        }
    )
    yield from ("", "### 1.2 Model", "")
    yield from _pairs(
        {
            "Name": model["name"],
            "Version": model["version"],
            "Placed on the Union market": model["placed_on_the_market"],
            "Depends on": "; ".join(
                f"{each['name']} ({len(each['files'])} files), its training content: {each['its_training_content']}"
                for each in model["depends_on"]
            )
            or "no other model",
        }
    )
    yield from ("", "### 1.3 Modalities, size and other characteristics", "")
    tokens = size["tokens_millions_estimated_from_characters"]
    yield from _pairs(
        {
            "Modalities": ", ".join(training["modalities"]),
            "Size": f"{size['range']} (about {tokens} million, from characters)"
            if size["range"] != "unknown"
            else "unknown",
            "Training documents": size["training_documents"],
            "Types of content": "; ".join(training["types_of_content"]),
            "Latest acquisition": training["latest_acquisition"],
        }
    )
    yield from ("", "Languages of the documents, held-out ones included:", "")
    yield from _table(
        ("declared", "detected", "documents"),
        [
            [row.get(name, "unknown") or "none" for name in ("declared", "detected", "documents")]
            for row in training["languages"]
        ],
    )
    yield from ("", "## 2. List of data sources", "", "### 2.1 Publicly available datasets", "")
    yield from _sources(data["public_datasets"])
    yield from ("", "### 2.2 Datasets obtained from third parties that are not public", "")
    yield from _pairs(
        {
            "Licensed by rightsholders or their representatives": data["licensed_by_rightsholders"],
            "Private, from other third parties": data["private_from_third_parties"],
        }
    )
    for number, title, name in (
        ("2.3", "Data crawled and scraped from online sources", "crawled"),
        ("2.4", "User data", "user_data"),
        ("2.5", "Synthetic data", "synthetic"),
    ):
        yield from ("", f"### {number} {title}", "", escape_markdown(data[name]))
    yield from ("", "### 2.6 Other sources of data", "", escape_markdown(data["other"]), "")
    yield from ("Files of which records do not tell whose they are:", "")
    yield from _sources(data["not_classified"])
    if data["not_classified"]["datasets"]:
        yield from ("", f"What they are: {escape_markdown(data['not_classified']['what_they_are'])}")
    yield from ("", "## 3. Data processing", "", "### 3.1 Reservations of rights from text and data mining", "")
    yield from (escape_markdown(processing["reservations_of_rights"]), "", escape_markdown(processing["withdrawals"]))
    yield from ("", "### 3.2 Removal of illegal content", "", escape_markdown(processing["illegal_content"]))
    yield from ("", "### 3.3 Other measures", "")
    yield from (f"- {escape_markdown(measure)}" for measure in processing["measures"])
    if processing["removed"]:
        yield from ("", "From what was read to what is in the corpus, in documents:", "")
        steps = [[source, *step] for source, all_ in sorted(processing["removed"].items()) for step in all_]
        yield from _table(("source", "step", "documents"), steps)


def _pairs(values: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"- {name}: {escape_markdown(value)}" for name, value in values.items())


def _sources(told: Mapping[str, Any]) -> Iterator[str]:
    yield f"Used: {told['used']}."
    if told["datasets"]:
        names = (
            "name",
            "kind",
            "origin",
            "link",
            "period",
            "read_or_downloaded",
            "language",
            "licences",
            "training_documents",
        )
        yield ""
        yield from _table(
            [name.replace("_", " ") for name in names],
            [
                [", ".join(each[n]) if isinstance(each[n], list) else each[n] for n in names]
                for each in told["datasets"]
            ],
        )


def _table(head: Any, body: list[list[Any]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    yield from (f"| {' | '.join(escape_markdown(value) for value in row)} |" for row in body)
