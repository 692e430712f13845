"""Stand-in for the rules of templates until pipeline.wikitext_templates has them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pipeline import wikitext
from pipeline.wikitext import Site


@dataclass(frozen=True)
class DumpTemplates:
    """Stand-in."""

    redirects: Mapping[str, str] = field(default_factory=dict)
    wrappers: Mapping[str, str] = field(default_factory=dict)


def read_templates(pages: Iterable[tuple[str, str]], site: Site | None) -> DumpTemplates:
    """Stand-in."""

    redirects: dict[str, str] = {}
    wrappers: dict[str, str] = {}
    for title, text in pages:
        target = wikitext.redirect_target(text)
        if target:
            redirects[title] = target
        elif len(text) < 100:
            wrappers[title] = text
    return DumpTemplates(redirects, wrappers)


@dataclass(frozen=True)
class Rules:
    """Stand-in."""

    language: str
    dump: DumpTemplates | None

    def expand(self, content: str) -> str | None:
        """Stand-in."""

        return None


def rules_for(
    language: str = "", added: Mapping[str, Sequence[str]] | None = None, dump: DumpTemplates | None = None
) -> Rules:
    """Stand-in."""
    return Rules(language, dump)


def unhandled(text: str, rules: Rules) -> Iterator[tuple[str, str]]:
    """Stand-in."""

    for part in text.split("{{")[1:]:
        if "}}" in part and not (rules.dump and part.split("}}")[0] in rules.dump.wrappers):
            yield part.split("}}")[0].split("|")[0].strip(), "{{" + part.split("}}")[0] + "}}"


def to_text(text: str, site: Site | None = None, rules: Rules | None = None) -> str:
    """Stand-in."""

    if rules and rules.dump:
        for name, body in rules.dump.wrappers.items():
            text = text.replace("{{" + name.partition(":")[2] + "}}", body)
    return wikitext.to_text(text, site)
