"""Project Gutenberg's own words around a book: header, small print, credits and licence, as files have them since 1991."""

import re
from collections.abc import Iterator

HEADER_CHARACTERS = 60_000
"""A header with its small print is shorter than this (the longest, of 2001 to 2003, has about 20,000)."""
CREDIT_PARAGRAPHS = 40
"""So many paragraphs at each end of a book are searched for credits."""
CREDIT_CHARACTERS = 2_000
LANGUAGES = {
    "english": "en",
    "french": "fr",
    "german": "de",
    "spanish": "es",
    "italian": "it",
    "portuguese": "pt",
    "dutch": "nl",
    "finnish": "fi",
    "swedish": "sv",
    "danish": "da",
    "norwegian": "no",
    "latin": "la",
    "greek": "el",
    "chinese": "zh",
    "japanese": "ja",
    "russian": "ru",
    "polish": "pl",
    "czech": "cs",
    "hungarian": "hu",
    "esperanto": "eo",
    "catalan": "ca",
    "tagalog": "tl",
    "hebrew": "he",
    "arabic": "ar",
    "welsh": "cy",
    "irish": "ga",
    "romanian": "ro",
    "bulgarian": "bg",
    "icelandic": "is",
    "afrikaans": "af",
    "galician": "gl",
    "serbian": "sr",
}
"""Names in the headers → ISO 639-1."""

# "*** START OF THIS PROJECT GUTENBERG EBOOK A LONG\nTITLE ***": the mark may go on over a few lines to its asterisks.
_START = re.compile(
    r"^[ \t]{0,8}(?:\*{1,5} ?(?:START|BEGINNING) OF (?:THE |THIS )?(?:COPYRIGHTED )?PROJECT[ _]GUTENBERG"
    r"(?:[^\n]*\*{2,}|[^\n*]*\n(?:[^\n*]+\n){0,3}[^\n*]*\*{2,}|[^\n]*)"
    r"|\*END\*? ?(?:OF )?THE SMALL PRINT[^\n]*"
    r"|\*+ ?END ?\*+ ?THE SMALL PRINT[^\n]*)[ \t]*(?:\n|\Z)",
    re.M | re.I,
)
_END = re.compile(
    r"^[ \t]{0,40}(?:\*{1,5} ?END OF (?:THE |THIS )?(?:COPYRIGHTED )?PROJECT[ _]GUTENBERG"
    r"|[*\[( ]{0,6}(?:This is the )?End (?:of|to) (?:the |this )?(?:Project|Etext of Project)[ _]Gutenberg"
    r"|(?:Fin|Fine|Ende|Einde|Fim|Final|Loppu|Slut) (?:de |del |di |des |dieses |van |van dit |do |av )?(?:l'|this |the )?"
    r"(?:Project|Projekt)[ _-]Gutenberg"
    r"|\*+ ?START ?\*+ ?THE SMALL PRINT"
    r"|START: FULL LICEN[SC]E|THE FULL PROJECT GUTENBERG LICEN[SC]E"
    r"|Updated editions will replace the previous one)",
    re.M | re.I,
)
_SMALL_PRINT = re.compile(r"[ \t]*\*+ ?START ?\*+ ?THE SMALL PRINT", re.I)
_OPENING = re.compile(
    r"\W{0,20}(?:(?:the |this is the )?project gutenberg|[^\n]{0,80}\bproject gutenberg(?:'s)? (?:e-?text|ebook))", re.I
)
"""How the first lines of a file of the project begin."""
_BOILERPLATE = re.compile(
    r"project gutenberg|gutenberg\.(?:org|net)|pglaf|\be-?texts?\b|small print|promo\.net|ibiblio\.org", re.I
)
_FIELD = re.compile(r"^(Title|Author|Language)[ \t]*:[ \t]*(\S[^\n]*(?:\n[ \t]{4,}\S[^\n]*){0,4})", re.M)
_NUMBER = re.compile(r"\[?\b(?:eBook|Etext|E-text)[ \t]*(?:#|No\. ?)[ \t]*(\d{1,6})\b", re.I)
_FIRST_LINE = re.compile(
    r"^[*\s]{0,20}(?:The )?Project Gutenberg(?:'s)?(?: (?:Etext|E-text|eBook) of)?,? (\S[^\n*]{0,150}?)(?:,? by ([^\n*]{1,80}?))?[ \t*]{0,20}$",
    re.M | re.I,
)

_CREDIT = re.compile(
    r"[\s\[(*_|+-]*(?:"
    r"(?:Produced|Prepared|Transcribed|Scanned|Proof-?read|Digiti[sz]ed|Typed|Encoded|E-?text(?: was)? (?:prepared|produced"
    r"|transcribed|scanned))\b[^\n]{0,60}\b(?:by|for|from)\b"
    r"|This (?:e-?text|e-?book|text|file|book|html|Project Gutenberg e-?text)(?: edition| version)? (?:was|is|has been)"
    r" (?:first |originally )?(?:prepared|produced|transcribed|scanned|typed|created|converted|proof-?read|made available)\b"
    r"|(?:Etext|E-text|eBook|HTML|Text file)(?: version)?(?: was)? (?:by|prepared|produced|created|transcribed)\b"
    r"|(?:Note|Editorial note|Nota|Remarque)\s*:\s+(?:Project Gutenberg|Images? of the original|The original|This (?:e-?)?text)"
    r"|(?:Project Gutenberg also has|Images of the original pages)\b"
    r"|(?:Erstellt|Produziert|Herausgegeben) von [^\n]{0,80}(?:Proofread|pgdp)"
    r"|(?:Produit|Préparé|Transcrit) par|(?:Prodotto|Preparato) da|Producido por|Produzido por"
    r"|Most recently updated|Release date|Posting date|Last updated|Character set encoding|First posted)",
    re.I,
)
_PROOFREADERS = re.compile(
    r"Distributed Proofread|pgdp\.net|Project Gutenberg|archive\.org|Internet Archive|Google Books|Google Print|gutenberg\."
    r"|gallica\.bnf|HathiTrust|hathitrust|[\w.+-]{1,40}@[\w-]{1,40}\.[a-z]{2,4}\b|\bPG edition",
    re.I,
)
_PARAGRAPH = re.compile(r"\n[ \t]*\n\s*")


def strip_gutenberg(text: str) -> tuple[str, dict[str, str]]:
    """(The book, what its header says) without Project Gutenberg's header, small print, credits and licence.

    Of title, author, language (as written: "English") and number those are given that the header states. A text without
    the project's marks comes back as it is, with {}. A file that holds several books, each with its marks, gives all of
    them, with the header of the first. The marks were collected from files of 1991 to today (PG's own header templates).
    """
    starts, ends = list(_START.finditer(text)), list(_END.finditer(text))
    parts = list(_parts(text, [m.span() for m in starts], [m.start() for m in ends]))
    if not starts:
        begin = _unmarked_header(text[: min(HEADER_CHARACTERS, ends[0].start() if ends else HEADER_CHARACTERS)])
        if not ends and not begin:
            return text, {}
        parts = [(max(begin, parts[0][0]), parts[0][1])]
    header = _header(text[: min(parts[0][0], HEADER_CHARACTERS)])
    return "\n\n\n\n".join(_strip_credits(text[start:stop]) for start, stop in parts), header


def _parts(text: str, starts: list[tuple[int, int]], ends: list[int]) -> Iterator[tuple[int, int]]:
    """Where the books stand: from the last start mark of a header to the next end mark."""
    marks = sorted([(begin, stop) for begin, stop in starts] + [(end, -1) for end in ends])
    first = next((stop for position, stop in marks if not (stop < 0 and _SMALL_PRINT.match(text, position))), -1)
    begin: int | None = None if first >= 0 else 0
    found = False
    small_print = False
    for position, stop in marks:
        if (
            stop < 0
            and _SMALL_PRINT.match(text, position)
            and position - (begin or 0) < HEADER_CHARACTERS
            and not found
        ):
            continue  # of the header
        if stop < 0:
            if begin is not None:
                found = True
                yield begin, position
            begin = None
            small_print = bool(_SMALL_PRINT.match(text, position))
        elif small_print and found and text[position : position + 12].lstrip(" *").upper().startswith("END"):
            small_print = False  # the end of a small print that stands behind the book
        elif begin is None or position - begin < HEADER_CHARACTERS:
            begin, small_print = stop, False
    if begin is not None:
        yield begin, len(text)
    elif not found:
        yield 0, len(text)


def _unmarked_header(head: str) -> int:
    """Where the header ends in a file without a start mark: behind the last paragraph that speaks of the project."""
    first_lines = [line for line in head.split("\n", 40)[:40] if line.strip()][:5]
    if not any(map(_OPENING.match, first_lines)):
        return 0
    end = start = 0
    for paragraph in [*_PARAGRAPH.finditer(head), None]:
        stop = paragraph.end() if paragraph else len(head)
        if start > 8_000 and start - end > 3_000:
            break
        if _BOILERPLATE.search(head, start, stop):
            end = stop
        start = stop
    return end


def _header(head: str) -> dict[str, str]:
    header: dict[str, str] = {}
    for field in _FIELD.finditer(head):
        header.setdefault(field.group(1).lower(), " ".join(field.group(2).split()))
    if number := _NUMBER.search(head):
        header["number"] = number.group(1)
    if "title" not in header and (first := _FIRST_LINE.search(head)):
        header["title"] = first.group(1).strip(" .")
        if first.group(2):
            header["author"] = first.group(2).strip(" .")
    return header


def is_credit(paragraph: str) -> bool:
    """Whether a paragraph says who made the electronic text: "Produced by … Distributed Proofreading Team"."""
    if len(paragraph) > CREDIT_CHARACTERS:
        return False
    if _CREDIT.match(paragraph):
        return True
    return len(paragraph) < 400 and bool(_PROOFREADERS.search(paragraph))


def _strip_credits(book: str) -> str:
    """Without the paragraphs of credits among the first and the last ones."""
    head, tail = _ends(book)
    if head == tail:
        return "".join(_without_credits(book))
    return "".join([*_without_credits(book[:head]), book[head:tail], *_without_credits(book[tail:])])


def _ends(book: str) -> tuple[int, int]:
    """(offset behind the first paragraphs, offset of the last ones); equal where a book has not so many."""
    head = tail = 0
    for count, gap in enumerate(_PARAGRAPH.finditer(book)):
        head = gap.end()
        if count == CREDIT_PARAGRAPHS:
            break
    else:
        return 0, 0
    tail = len(book)
    for _ in range(CREDIT_PARAGRAPHS):
        tail = book.rfind("\n\n", head, tail)
        if tail < 0:
            return 0, 0
    return head, tail


def _without_credits(part: str) -> Iterator[str]:
    start = 0
    for gap in [*_PARAGRAPH.finditer(part), None]:
        stop, end = (gap.start(), gap.end()) if gap else (len(part), len(part))
        if is_credit(part[start : min(stop, start + CREDIT_CHARACTERS + 1)]):
            yield "\n\n"  # keeps what stood around it apart
        else:
            yield part[start:end]
        start = end
