"""What the card of an exported release says of its training: the values of `pipeline.attestations.card` as Markdown."""

from collections.abc import Mapping, Sequence
from typing import Any

from model.exporting.results_card import with_section
from model.reporting.pages import escape_markdown


def with_training(card: str, told: Mapping[str, Any]) -> str:
    """The card of a release with sections on its text, its training and its attestations, and these in its metadata."""
    metadata = {"language": told["languages"]} if told["languages"] else {}
    metadata |= {"license": told["licence"]} if told["licence"] else {}
    return with_section(card, metadata, _sections(told))


def _sections(told: Mapping[str, Any]) -> str:
    elsewhere = "Its training began from a model made elsewhere: the text of that one is unknown.\n\n"
    return f"""## Training text

{elsewhere if told["made_elsewhere"] else ""}{_table(told["sources"])}

Documents: version `{told["documents"]}`, of which some are held out. data-summary.md says what was left out of them and why,
croissant.json names every file with its SHA-256.

## Training

{_table(told["phases"])}

Checks of all steps: {told["checks"] - len(told["failed"])} of {told["checks"]} passed.{_failed(told)}

## Proof

This is version `{told["version"]}`. provenance.intoto.jsonl says how every artifact behind it was made, bom.cdx.json of what,
openlineage.ndjson when; lineage.json lists every file of this folder, and `bert verify` compares them.

"""


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    if not rows:
        return "unknown"
    head = [name.replace("_", " ") for name in rows[0]]
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    lines += [f"| {' | '.join(escape_markdown(value) for value in row.values())} |" for row in rows]
    return "\n".join(lines)


def _failed(told: Mapping[str, Any]) -> str:
    said = f" Failed: {escape_markdown(', '.join(told['failed']))}." if told["failed"] else ""
    for waiver in told["waived"]:
        said += f" {escape_markdown(waiver['asset'])}: {escape_markdown(waiver['check'])} was waived: {escape_markdown(waiver['reason'])}."
    return said
