"""Article markup → prose: `to_text`. Only paragraphs remain; lists, tables, headings, captions, references and all other
furniture of a page are gone.

How it works, each step linear in the length of the page:

    _cut_tags       comments, references and other tags whose content is no wikitext
    _cut_nested     one stack for {{templates}} and [[links]], resolved where they close
    _paragraphs     line by line: tables, lists, headings, sections that hold references
    _inline         quotes, external links, tags, entities

What is removed leaves a HOLE, one character, and white space and punctuation are repaired only beside holes
(`_close_holes`): a rule for all parentheses or all spaces would damage what the author wrote.
"""

import hashlib
import html
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from html.entities import html5
from importlib import import_module
from itertools import pairwise
from pathlib import Path

from pipeline.wiki import wikitext_names as words
from pipeline.wiki.wikitext_functions import HIDE, SHOW
from pipeline.wiki.wikitext_templates import Rules, rules_for


@dataclass(frozen=True)
class Site:
    """What a dump says of its wiki; the default says nothing."""

    name: str = ""
    """database name, for example enwiki"""
    base: str = ""
    """address of the main page"""
    language: str = ""
    namespaces: tuple[tuple[int, str], ...] = ()
    """(number, name) of every namespace"""


HOLE = "\x01"
_CUT = "\x02"  # what follows on this line belongs to a template that is never closed
_MAX_DEPTH = 100
_CONTROLS = dict.fromkeys((*range(9), 11, *range(14, 32), 127)) | {0x0C: " "}
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ufdd0-\ufdef]")
_STAND_INS = dict.fromkeys(range(64976, 65008))


@dataclass(frozen=True)
class _Names:
    file: frozenset[str]
    category: frozenset[str]
    language: str
    disambiguation: frozenset[str]
    seen: dict[str, bool]
    """which names of templates mark disambiguation pages, as pages write them"""


@lru_cache(maxsize=16)
def _names(site: Site | None) -> _Names:
    declared = dict(site.namespaces) if site else {}
    language = site.language if site else ""
    marks = set(words.DISAMBIGUATION)
    for short_language, names in words.DISAMBIGUATION_SHORT.items():
        if language in ("", short_language):
            marks.update(names)
    return _Names(
        file=words.FILE | {declared.get(6, "file").lower().replace("_", " ")},
        category=words.CATEGORY | {declared.get(14, "category").lower().replace("_", " ")},
        language=language,
        disambiguation=frozenset(marks),
        seen={},
    )


def to_text(wikitext: str, site: Site | None = None, rules: Rules | None = None) -> str:
    """The prose of a page, paragraphs separated by one blank line; "" for redirects and disambiguation pages.

    `site` names the wiki's namespaces and language; without it, or where it is wrong, all known languages count. `rules`
    say what templates show; without them, those of the site's language. Never raises, takes time linear in the length of
    the page.
    """
    if is_redirect(wikitext):
        return ""
    names = _names(site)
    return _scanner()(wikitext, names, rules or rules_for(names.language))


@cache
def _scanner() -> Callable[[str, _Names, Rules], str]:
    """The compiled twin of `prose` where it was built, which needed a C compiler; else `prose` itself.

    One that was built from other sources might give other text, so it is not taken, with a warning.
    """
    try:
        wikitext_scan = import_module("pipeline.wikitext_scan")
    except ImportError:
        return prose
    read = [Path(__file__).with_name(name).read_bytes() for name in ("wikitext.py", "wikitext_scan.pyx")]
    if hashlib.sha256(b"".join(read)).hexdigest() != wikitext_scan.SOURCES:
        warnings.warn(
            "the compiled scanner is older than its source: pip install --editable . (or make env)", stacklevel=1
        )
        return prose
    compiled: Callable[[str, _Names, Rules], str] = wikitext_scan.prose
    return compiled


def prose(text: str, names: _Names, rules: Rules) -> str:
    """Markup → prose; "" for what says that it is a disambiguation page."""
    if _is_marked(text, names):
        return ""
    text = _cut_blocks(_cut_nested(_cut_tags(_plain(text)), names, rules))
    return "\n\n".join(filter(None, map(_inline, _paragraphs(text, names.language))))


def _plain(text: str) -> str:
    """Line breaks as \\n, without control characters and without the characters that stand in for hidden markup."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text.translate(_CONTROLS | _STAND_INS) if _FORBIDDEN.search(text) else text


_REDIRECT = re.compile(rf"\s*#\s*(?:{words.REDIRECT})\s*+:?\s*+\[\[([^\[\]|#{{}}\n]*)", re.I)


def redirect_target(wikitext: str) -> str | None:
    """The title that a redirect page names; None for any other page."""
    found = _REDIRECT.match(wikitext)
    return found.group(1).strip() if found else None


def is_redirect(wikitext: str) -> bool:
    """Whether the page only sends the reader elsewhere."""
    return _REDIRECT.match(wikitext) is not None


def is_disambiguation(wikitext: str, site: Site | None = None, title: str = "") -> bool:
    """Whether the page lists what its title may mean: by its templates, a switch, or the ending of its title."""
    return title.endswith(words.DISAMBIGUATION_TITLE) or _is_marked(wikitext, _names(site))


def _is_marked(wikitext: str, names: _Names) -> bool:
    if "__DISAMBIG__" in wikitext:
        return True
    return any(_is_mark(name, names) for name in _TEMPLATE_NAME.findall(wikitext))


def _is_mark(name: str, names: _Names) -> bool:
    """Whether a template of this name, as a page writes it, marks disambiguation pages."""
    known = names.seen.get(name)
    if known is None:
        if len(names.seen) >= _SEEN_LIMIT:
            names.seen.clear()
        known = names.seen[name] = name.replace("_", " ").strip().lower() in names.disambiguation
    return known


_SEEN_LIMIT = 100_000
_TEMPLATE_NAME = re.compile(r"\{\{\s*+([^\[\]{}|<\n]{2,80})")


# ── tags whose content is no wikitext ────────────────────────────────────────────────────────────────────────────────

_TAGS_CASE = re.I | re.A  # names of tags are ASCII, and ſ is no s
_FORMULAS = frozenset({"math", "chem", "ce"})
_CODE = frozenset({"syntaxhighlight", "source"})
_DROPPED = (
    "ref|gallery|timeline|score|imagemap|mapframe|maplink|graph|templatestyles|templatedata|hiero|poem|pre|references|"
    "inputbox|categorytree|section|indicator|includeonly|charinsert|dynamicpagelist|rss|quiz|style|script|phonos|"
    "languages|noeditsection|seo|listing|see|do|buy|eat|drink|sleep|video|audio|img|svg|canvas|iframe|title|"
    "abstract|randomimage|ruby-rt|rt|rp"
)
_OPAQUE_KEPT = ("nowiki", *sorted(_FORMULAS), *sorted(_CODE))
_OPAQUE_NAMES = (*_OPAQUE_KEPT, *_DROPPED.split("|"))
_OPAQUE = re.compile(rf"<(?:!--|({'|'.join(_OPAQUE_NAMES)})(?=[\s/>]))", _TAGS_CASE)
_TAG_END = re.compile(r"""[^<>"]*(?:"[^"<\n]*"[^<>"]*)*>""")
_PLAIN_FORMULA = re.compile(r"[^\\{}^_$]{1,12}")


def _cut_tags(text: str) -> str:
    """Cut comments and tags with opaque content; <nowiki> keeps its content, hidden from all that follows."""
    out: list[str] = []
    closing: dict[str, tuple[int, int]] = {}  # name → (start, end) of the next closing tag; start -1: there is none
    at = 0
    while opening := _OPAQUE.search(text, at):
        start, after = opening.span()
        out.append(text[at:start])
        name = (opening.group(1) or "").lower()
        if not name:
            end = text.find("-->", after)
            if end < 0:
                return "".join(out)
            at = end + 3
            before = text[start - 1] if start else "\n"
            following = text[at : at + 1]
            if before == "\n" and following == "\n":
                at += 1  # a line of its own leaves no blank line
            elif before in " \n" or following in " \n":
                out.append(HOLE)
            continue
        tag = _TAG_END.match(text, after)
        inside = tag.end() if tag else text.find(">", after, after + 500) + 1
        if not inside:
            at = after
            continue
        if text[after : inside - 1].rstrip().endswith("/"):
            out.append("" if name == "nowiki" else HOLE)
            at = inside
            continue
        end, at = _closing_tag(text, name, inside, closing)
        out.append(_opaque(name, text[after:inside], text[inside:end]) if end >= 0 else HOLE)
    out.append(text[at:])
    return "".join(out)


@lru_cache(maxsize=256)
def _closer(name: str) -> re.Pattern[str]:
    return re.compile(rf"</{name}\s*>", _TAGS_CASE)


def _closing_tag(text: str, name: str, inside: int, closing: dict[str, tuple[int, int]]) -> tuple[int, int]:
    """(end of the content, where to go on); (-1, …) for a tag that is never closed.

    The next closing tag is looked up once and remembered, so that many unclosed tags stay linear.
    """
    known = closing.get(name)
    if known is None or -1 < known[0] < inside:
        found = _closer(name).search(text, inside)
        known = closing[name] = found.span() if found else (-1, -1)
    start, end = known
    if name == "ref":
        line_end = text.find("\n", inside)
        line_end = len(text) if line_end < 0 else line_end
        if start < 0:
            return -1, line_end
        if start > line_end:  # a reference over several lines, or one that was never closed?
            other = _OPEN_REF.search(text, inside, start)
            if other:
                return -1, min(line_end, other.start())
        return start, end
    return (start, end) if start >= 0 else (-1, inside)


_OPEN_REF = re.compile(r"<ref(?:\s[^<>/]*)?>", _TAGS_CASE)


def _opaque(name: str, attributes: str, content: str) -> str:
    if name == "nowiki":
        return html.unescape(content).translate(HIDE)
    if name in _FORMULAS:
        content = content.strip()
        return content.translate(HIDE) if _PLAIN_FORMULA.fullmatch(content) else HOLE
    if name in _CODE and "inline" in attributes:
        return content.translate(HIDE)
    return HOLE


# ── templates and links ──────────────────────────────────────────────────────────────────────────────────────────────

_NESTING = re.compile(
    r"\[\[([^\[\]{}|\n]+)(?:\|([^\[\]{}|\n]+))?\]\](?!\])"  # most links and templates have nothing inside
    r"|\{\{([^\[\]{}]+)\}\}(?!\})"
    r"|\[\[+|\]\]+|\{\{+|\}\}+"
)
_LINK, _BRACES = 0, 1
_LONGEST_PREFIX = 40


def _cut_nested(text: str, names: _Names, rules: Rules) -> str:
    """Resolve templates, parameters and links, innermost first.

    A closer matches the nearest opener of its kind; openers between that were never closed become plain text. A link
    does not close across the braces of a template. Closers without opener are dropped.
    """
    out: list[str] = []
    stack: list[tuple[int, int, int]] = []  # kind, index of its placeholder in out, number of braces
    braces_open = 0
    too_deep = 0
    at = 0
    for token in _NESTING.finditer(text):
        start, end = token.span()
        if start > at:
            out.append(text[at:start])
        at = end
        simple = token.lastindex
        if simple == 3:
            out.append(_standing(rules.expand(token.group(3)) or HOLE))
            continue
        if simple:
            target, label = token.group(1, 2)
            if ":" in target or "#" in target or "_" in target or not (label or target).strip():
                out.append(_link(token.group()[2:-2], names))
            else:
                out.append(label or target.strip())
            continue
        mark = text[start]
        count = end - start
        if mark in "[{":
            if len(stack) >= _MAX_DEPTH:
                too_deep += count // 2
            elif mark == "[":
                out.append("[" if count % 2 else "")
                for _ in range(min(count // 2, _MAX_DEPTH)):
                    stack.append((_LINK, len(out), 2))
                    out.append("")
            else:
                stack.append((_BRACES, len(out), count))
                out.append("")
                braces_open += 1
            continue
        ignored = min(too_deep, count // 2)
        too_deep -= ignored
        count -= 2 * ignored
        if mark == "]":
            while count >= 2 and stack and stack[-1][0] == _LINK:
                index = stack.pop()[1]
                content = "".join(out[index:])
                del out[index:]
                if count % 2 and content.count("[") > content.count("]"):  # [[a|b [c]]]
                    content += "]"
                    count -= 1
                out.append(_link(content, names))
                count -= 2
            if count == 1:
                out.append("]")
        else:
            while count >= 2 and braces_open:
                kind, index, opened = stack.pop()
                if kind == _LINK:
                    continue
                used = 3 if opened >= 3 and count >= 3 else 2
                content = "".join(out[index:])
                del out[index:]
                value = _parameter(content) if used == 3 else rules.expand(content)
                count -= used
                opened -= used
                out.append("{" if opened == 1 else "")
                if opened >= 2:
                    stack.append((_BRACES, len(out) - 1, opened))
                else:
                    braces_open -= 1
                out.append(HOLE if value is None else _standing(value))
            if count == 1:
                out.append("}")
    out.append(text[at:])
    for kind, index, _ in stack:
        following = _following(out, index)
        if kind == _BRACES or _is_file(following, names):
            out[index] = _CUT
    return "".join(out)


def _standing(value: str) -> str:
    """What a template shows; a hole after a block, so that a space after it sets no typewriter text."""
    return value + HOLE if value.endswith("\n") else value


def _following(out: list[str], index: int) -> str:
    """The first characters after a placeholder: enough for the name of a namespace."""
    gathered = ""
    for part in out[index + 1 :]:
        gathered += part
        if len(gathered) >= _LONGEST_PREFIX:
            break
    return gathered[:_LONGEST_PREFIX]


def _is_file(following: str, names: _Names) -> bool:
    """Whether a link that begins so is one to a file."""
    return following.partition(":")[0].strip().lower() in names.file


def _parameter(content: str) -> str:
    """{{{name|default}}}: on a page itself no parameter has a value."""
    default = content.partition("|")[2]
    return default or HOLE


_MEDIA_SUFFIX = re.compile(
    r"\.(?:jpe?g|jp2|a?png|avif|heic|gif|svg|tiff?|xcf|djvu|pdf|og[gamvx]|opus|web[mp]|mp[34]|mpe?g|wav|flac|midi?|stl|bmp)"
    r"\s*$",
    re.I,
)
_WEB = ("http", "https", "ftp")
_PIPE_TRICK = re.compile(r"(?:\([^()]*\)|（[^（）]*）)$")


def _link(content: str, names: _Names) -> str:
    """What a reader sees of [[content]]: the label, or the title; HOLE for files, categories and other languages."""
    target, bar, label = content.partition("|")
    if "\n\n" in content and ":" not in target:
        return content  # never meant to be a link
    target = target.strip()
    shown = target.startswith(":")
    if shown:
        target = target.lstrip(": ")
    prefix, colon, rest = target.partition(":")
    if colon:
        prefix = prefix.replace("_", " ").strip()
        lower = prefix.lower()
        if rest.startswith("//") and lower in _WEB:  # [[http://example.org label]], [[http://example.org|label]]
            return label if label.strip() else target.partition(" ")[2].strip() or HOLE
        if not shown:
            if lower in names.file or lower in names.category or prefix in words.LANGUAGES:
                return HOLE
            if lower not in words.MEDIA and lower not in words.INTERWIKI and _MEDIA_SUFFIX.search(target):
                return HOLE
        if lower in words.MEDIA and not bar:
            return HOLE
        if shown and (lower in names.category or lower in names.file):
            target, colon = rest.strip(), ""  # "see [[:Category:Composers]]" names the composers
        if (lower in words.INTERWIKI or prefix in words.LANGUAGES) and not label.strip():
            target = rest.strip(": ")
            while target.partition(":")[0] in words.LANGUAGES and ":" in target:
                target = target.partition(":")[2]
    if label.strip():
        return label
    if bar:
        return _PIPE_TRICK.sub("", (target.rpartition(":")[2] if colon else target).rstrip()).rstrip() or HOLE
    return target.lstrip("#").replace("_", " ") or HOLE


_VARIANT = re.compile(r"-\{([^{}]*)\}-")
_RULE = re.compile(r"\s*+(?:[^:;=>]*+=>)?\s*+([A-Za-z]{2,3}(?:-[A-Za-z]+)*)\s*:(.*)", re.S)


def _choose_variants(text: str) -> str:
    """-{zh-hans:…; zh-hant:…}-: the first variant; rules that only change later text show nothing."""
    for _ in range(4):
        text, changed = _VARIANT.subn(_variant, text)
        if not changed:
            break
    return text


def _variant(found: re.Match[str]) -> str:
    flags, bar, rule = found.group(1).rpartition("|")
    flag = flags.strip().upper()
    if (bar and flag in ("H", "T", "-", "+", "H;")) or ("H" in flag.split(";")):
        return HOLE
    if bar and flag == "R":
        return rule
    first = _RULE.match(rule.split(";")[0])
    return first.group(2).strip() if first and first.group(1).lower() in _VARIANTS else rule


_VARIANTS = frozenset(
    [
        "zh",
        "zh-hans",
        "zh-hant",
        "zh-cn",
        "zh-tw",
        "zh-hk",
        "zh-mo",
        "zh-sg",
        "zh-my",
        "sr",
        "sr-ec",
        "sr-el",
        "sr-cyrl",
        "sr-latn",
        "kk",
        "kk-cyrl",
        "kk-latn",
        "kk-arab",
    ]
) | frozenset(
    [
        "uz",
        "uz-latn",
        "uz-cyrl",
        "ku",
        "ku-latn",
        "ku-arab",
        "iu",
        "gan",
        "gan-hans",
        "gan-hant",
        "tg",
        "tg-latn",
        "crh",
        "crh-latn",
        "crh-cyrl",
    ]
)


# ── HTML blocks, lines, paragraphs ───────────────────────────────────────────────────────────────────────────────────

_BLOCKS = ("table", "ul", "ol", "dl", "h1", "h2", "h3", "h4", "h5", "h6", "figure", "noscript")
_INCLUDES = ("noinclude", "onlyinclude")
_BLOCK_NAMES = (*_BLOCKS, *_INCLUDES)
_HTML_BLOCK = re.compile(rf"<(/?)(?:{'|'.join(_BLOCKS)})\b[^<>]*>", _TAGS_CASE)


def _cut_blocks(text: str) -> str:
    """Choose language variants; cut tables, lists and headings written as HTML."""
    if "-{" in text:
        text = _choose_variants(text)
    return _cut_html_blocks(_INCLUDE_TAG.sub("", text)) if "<" in text else text


def _cut_html_blocks(text: str) -> str:
    """Cut tables, lists and headings written as HTML, outermost first; one that is never closed loses its tags only."""
    out: list[str] = []
    depth = at = start = 0
    for tag in _HTML_BLOCK.finditer(text):
        if not tag.group(1):
            if not depth:
                out.append(text[at : tag.start()])
                start = at = tag.end()
            depth += 1
        elif depth:
            depth -= 1
            if not depth:
                out.append(f"\n{HOLE}\n{HOLE}")  # the second: a space after the block sets no typewriter text
                at = tag.end()
    if depth:
        out.append(_HTML_BLOCK.sub("", text[start:]))
    else:
        out.append(text[at:])
    return "".join(out)


_INCLUDE_TAG = re.compile(rf"</?(?:{'|'.join(_INCLUDES)})\b[^<>]*>", _TAGS_CASE)
_BREAK_NAMES = ("div", "p", "blockquote", "center", "section", "article", "li", "dd", "dt", "hr")
_BREAK_TAG = re.compile(rf"</?(?:{'|'.join(_BREAK_NAMES)})\b[^<>]*>", _TAGS_CASE)
_CJK = re.compile("[\u3000-\u30ff\u3400-\u9fff\uf900-\ufaff\uff00-\uffef]")


def _paragraphs(text: str, language: str) -> Iterator[str]:
    """The prose paragraphs, with their inline markup."""
    gathered: list[str] = []
    tables = 0
    dropped_level = 0  # of the section that is being dropped
    lines = iter(text.split("\n"))
    waiting: list[str] = []  # what follows a block tag on the line before
    while True:
        line = waiting.pop() if waiting else next(lines, None)
        if line is None:
            break
        cut = line.find(_CUT)
        if cut >= 0:
            line = line[:cut]
        bare = line.strip(" \t\xa0\x01")
        mark = bare[:1]
        keeps = False
        if not bare:
            pass
        elif mark == "=" and bare[-1] == "=" and len(bare) > 2:
            level, title = _heading(bare)
            if level <= 2:
                tables = 0
            if not tables:
                if level <= dropped_level:
                    dropped_level = 0
                if not dropped_level and words.is_appendix(title, level, language):
                    dropped_level = level
        elif (mark == "{" and bare.startswith("{|")) or (mark in ":*#;" and bare.lstrip(":*#; ").startswith("{|")):
            tables += 1
        elif tables:
            if mark == "|" and bare.startswith("|}"):
                tables -= 1
        elif dropped_level or mark in "*#:;|" or (mark == "!" and _is_header_row(bare)):
            pass
        elif "<" in bare and len(parts := _BREAK_TAG.split(line)) > 1:
            waiting += [part.strip(" \t") for part in reversed(_between(parts))]
            continue
        elif line[0] == " " and not _is_prose(bare):
            pass
        else:
            keeps = True
        if keeps:
            if bare.startswith("----"):
                line = bare.lstrip("-")
            if "'''" in line:
                line = _apostrophes(line)
            gathered.append(line.strip(" \t"))
        elif gathered:
            yield _join(gathered)
            gathered = []
    if gathered:
        yield _join(gathered)


def _between(parts: list[str]) -> list[str]:
    """The parts of a line with a blank line between each two."""
    lines = [""] * (2 * len(parts) - 1)
    lines[::2] = parts
    return lines


def _heading(bare: str) -> tuple[int, str]:
    """(level, title in lower case without markup) of a line `== title ==`."""
    title = bare.strip("=")
    level = min((len(bare) - len(title)) // 2, 6) or 1
    if "<" in title:
        title = _TAG.sub("", title)
    return level, title.replace("''", "").strip(" '\t:\x01").lower()


def _is_header_row(bare: str) -> bool:
    """A stray `! header` of a table, and not the name of a language that begins with a click."""
    return bare[1:2] in " !" or "!!" in bare or "|" in bare


def _is_prose(bare: str) -> bool:
    """Whether a line that begins with a space, and so is set as typewriter text, still reads like a sentence."""
    return len(bare) >= 80 and bare.rstrip(" '\"”)\x01")[-1:] in ".!?。"


def _join(lines: list[str]) -> str:
    text = lines[0]
    if len(lines) == 1:
        return text
    parts = [text]
    for before, line in pairwise(lines):
        glue = "" if _CJK.match(before[-1:]) and _CJK.match(line[:1]) else " "
        parts += (glue, line)
    return "".join(parts)


_QUOTES = re.compile("'{2,}")
_LONG_QUOTES = re.compile("'{4,}")


def _apostrophes(line: str) -> str:
    """MediaWiki's rule for an odd number of both ''' and '': one ''' is an apostrophe before an italic word."""
    runs = list(_QUOTES.finditer(line))
    sizes = [min(len(run.group()), 5) for run in runs]
    bold = sum(size in (3, 4, 5) for size in sizes)
    italic = sum(size in (2, 5) for size in sizes)
    if bold % 2 == 0 or italic % 2 == 0:
        return line
    best = None
    for run, size in zip(runs, sizes, strict=True):
        if size not in (3, 4):
            continue
        at = run.start()
        before, earlier = line[at - 1 : at], line[at - 2 : at - 1] if at > 1 else ""
        rank = 2 if before in ("", " ") else 0 if earlier in ("", " ") else 1
        if best is None or rank < best[0]:
            best = (rank, run)
    if best is None:
        return line
    run = best[1]
    return line[: run.start()] + "'".translate(HIDE) + line[run.start() + 1 :]


# ── inside a paragraph ───────────────────────────────────────────────────────────────────────────────────────────────

_EXTERNAL = re.compile(
    r"\[(?:(?:https?|ftps?|ircs?|git|svn|gopher|telnet|nntp|worldwind)://|//|mailto:|news:|tel:|urn:|geo:)"
    r"[^\s\[\]<>\x01]*+\x01?[ \t\xa0]*+([^\[\]\n]*+(?:\[[^\[\]\n]*+\][^\[\]\n]*+)*+)\]",  # no way back: it would take n² steps
    re.I,
)
_TAGS = (
    "abbr|b|bdi|bdo|big|blockquote|br|caption|center|cite|code|col|colgroup|data|dd|del|dfn|div|dl|dt|em|figure|font|h[1-6]|"
    "hr|i|includeonly|ins|kbd|li|link|mark|meta|noinclude|nowiki|ol|onlyinclude|p|q|rb|rbc|rp|rt|rtc|ruby|s|samp|section|"
    "small|span|strike|strong|sub|sup|table|tbody|td|tfoot|th|thead|time|tr|translate|tt|tvar|u|ul|var|wbr|ref|gallery|"
    "math|chem|ce|pre|poem|syntaxhighlight|source|score|timeline|imagemap|references|templatestyles|mapframe|maplink|graph"
)
_TAG = re.compile(rf"</?(?:{_TAGS})(?![\w-])[^<>]*>|</?[a-zA-Z][\w-]{{0,30}}\s*/?>", _TAGS_CASE)
_LINE_TAG = re.compile(r"<(?:br|hr)\b[^<>]*>|</?br\s*>", _TAGS_CASE)
_ENTITY = re.compile(r"&(?:#(\d{1,8})|#[xX]([0-9a-fA-F]{1,7})|([a-zA-Z][a-zA-Z0-9]{1,31}));")
_SWITCH = re.compile(r"__(?=[^\Wa-z_])[^\Wa-z]{3,40}?__")
_BLANK = re.compile("[\xa0\u2002\u2003\u2007\u2009\u200a\u2028\u2029\u202f\t]")
_HIDDEN = re.compile("[\ufdd0-\ufdef]")
_INVISIBLE = re.compile("[\u00ad\u200b\u200e\u200f\u2060\ufeff]")
_RARE = re.compile(f"[{_BLANK.pattern[1:-1]}{_HIDDEN.pattern[1:-1]}{_INVISIBLE.pattern[1:-1]}]")
_SPACES = re.compile(" {2,}")
_FILLERS = "\u115f\u1160\u3164\uffa0"  # letters by name, and blank
_WORD = re.compile(rf"[^\W_{_FILLERS}]")
_SEEN = re.compile(
    rf"[^\s\x00-\x1f\x7f-\x9f\u00ad\u034f\u061c{_FILLERS}\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    r"\u2800\ufe00-\ufe0f\ufeff\ufff0-\ufffb\U000e0000-\U000e0fff]"
)


def is_blank(text: str) -> bool:
    """Whether there is nothing in it that can be seen: white space, characters of no width as U+200B, fillers."""
    return not _SEEN.search(text)


def _inline(text: str) -> str:
    """One paragraph without what marks up words: external links, quotes, tags, switches, entities; then its holes are
    closed. "" where no word is left."""
    if "&" in text:
        text = text.replace("&nbsp;", " ").replace("&#160;", " ")
    if "[" in text:
        text = _EXTERNAL.sub(lambda found: found.group(1).strip() or HOLE, text)
    if "''" in text:
        if "''''" in text:
            text = _LONG_QUOTES.sub(lambda run: "'" if len(run.group()) in (4, 6) else "", text)
        text = text.replace("'''", "").replace("''", "")
    if "<" in text:
        text = _without_tags(text)
    if "__" in text:
        text = _SWITCH.sub(_switch, text)
    if "&" in text:
        text = _decoded(text)
    hidden = False
    if _RARE.search(text):
        text = _INVISIBLE.sub("", _BLANK.sub(" ", text))
        hidden = _HIDDEN.search(text) is not None
    if HOLE in text:
        text = _close_holes(text)
    if hidden:
        text = text.translate(SHOW)
    text = text.strip()
    if "  " in text:
        text = _SPACES.sub(" ", text)
    return text if _WORD.search(text) else ""


def _switch(found: re.Match[str]) -> str:
    """`__TOC__` shows nothing; `__FILE__` is what somebody writes about C. Names in other scripts are switches."""
    name = found.group()
    return name if name.isascii() and name.strip("_") not in words.SWITCHES else HOLE


def _without_tags(text: str) -> str:
    return _TAG.sub("", _LINE_TAG.sub(" ", text))


def _decoded(text: str) -> str:
    return _ENTITY.sub(_character, text)


def _character(entity: re.Match[str]) -> str:
    decimal, hexadecimal, name = entity.groups()
    if name:
        return html5.get(f"{name};", entity.group())
    code = int(decimal) if decimal else int(hexadecimal, 16)
    if code in (9, 10, 13):
        return " "
    if code < 32 or 0x7F <= code < 0xA0 or 0xD800 <= code < 0xE000 or 0xFDD0 <= code <= 0xFDEF or code > 0x10FFFF:
        return ""
    return chr(code)


_OPENING = "(（[「『“‘«‹"
_CLOSING = ")）]」』”’»›"
_PAIRED = "(（["
_SEPARATORS = " ;,:、，；：/·–—-"
_STOPS = ",.;:!?。、，；：！？．"
_CLAUSE = ",;:、，；："
_MAX_PAIRS = 20  # of empty parentheses around one hole; keeps a row of thousands linear
_HOLES = re.compile(f"{HOLE}+")


def _close_holes(paragraph: str) -> str:
    """Repair white space and punctuation beside holes: `( ⌫; x)` → `(x)`, `a ⌫, b` → `a, b`, `a (⌫) b` → `a b`."""
    pieces = _HOLES.split(paragraph)
    done: list[str] = []  # finished text
    left = pieces[0]
    for right in pieces[1:]:
        pairs = 0
        while True:
            before, after = left.rstrip(" "), right.lstrip(" ")
            spaced = len(before) < len(left) or len(after) < len(right)
            if not before and done:
                left = done.pop() + (" " if spaced else "")
                continue
            opened = before[-1:]
            if opened and opened in _PAIRED:
                after = after.lstrip(_SEPARATORS)
            elif after[:1] and after[0] in ")）]":
                before = before.rstrip(_SEPARATORS)
                opened = before[-1:]
                if not before and done:
                    left = done.pop()
                    continue
            if opened and opened in _PAIRED and after[:1] and after[0] in ")）]" and pairs < _MAX_PAIRS:
                pairs += 1
                outside = before[:-1]
                spaced = outside[-1:] == " " or after[1:2] == " " or not outside
                left, right = outside, after[1:]
                if spaced and not right.startswith(" "):
                    right = f" {right}"
                continue
            break
        left = _push(done, before, after, spaced)
    done.append(left)
    return "".join(done)


def _push(done: list[str], before: str, after: str, spaced: bool) -> str:
    """Finish the text before a hole and return the text after it, with the white space that belongs between."""
    last, first = before[-1:], after[:1]
    if not last:
        return after.lstrip(_CLAUSE + " ")
    if last in _OPENING or not first:
        glue = "" if first or last in _OPENING else " " if spaced else ""
    elif first in _STOPS and not (first == "." and after[1:2].isdigit()) and after[:2] != "..":
        if (first in ",.;:、，；：。" and last in _CLAUSE) or (first == last and first in ".。"):
            before = before[:-1]
        glue = ""
    elif first in _CLOSING:
        glue = ""
    else:
        glue = " " if spaced and not (_CJK.match(last) and _CJK.match(first)) else ""
    done.append(before)
    return glue + after
