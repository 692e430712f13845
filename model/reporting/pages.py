"""Pages of Markdown and HTML from the templates of this folder."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from model.reporting.isolated import in_page, isolated

TEMPLATES = Path(__file__).parent / "templates"


def render(template: str, filters: Mapping[str, Callable[..., Any]], **content: Any) -> str:
    """A template filled in; what stands in it is escaped and isolated in HTML, and in Markdown where the template says `| md`."""
    import jinja2

    is_page = template.removesuffix(".j2").endswith(".html")

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=is_page,
        finalize=in_page if is_page else None,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"md": escape_markdown, "isolated": isolated, **filters}
    return environment.get_template(template).render(**content)


def write(path: Path, text: str) -> None:
    """Write a text file that ends with one newline."""
    path.write_text(text.rstrip("\n") + "\n", encoding="utf-8")


def escape_markdown(text: Any) -> str:
    """Text from data as it may stand in a paragraph or a table cell of Markdown: as it is, on one line, no markup, isolated."""
    escaped = isolated(" ".join(str(text).split()))
    for character, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        escaped = escaped.replace(character, entity)
    return re.sub(r"([\\`*_\[\]|#~!])", r"\\\1", escaped)
