"""Lines of a book that are no prose, told by the line alone: headings, page numbers, separators, ends, title pages."""

import re

HEADING_CHARACTERS = 160
"""A longer line is no heading."""

_ROMAN = r"(?:(?=[CLXVI])C{0,3}(?:XC|XL|L?X{0,4})(?:IX|IV|V?I{0,4}))"
_WORD_NUMBERS = """
one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen
nineteen twenty thirty forty fifty sixty eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf deux trois
quatre cinq sept huit neuf dix onze douze uno dos tres cuatro cinco seis siete ocho nueve diez once doce due tre
quattro cinque sei sette otto nove dieci
""".split()  # noqa: SIM905
_ORDINALS = """
first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth fifteenth
sixteenth seventeenth eighteenth nineteenth twentieth thirtieth fortieth last erste[sr]? zweite[sr]? dritte[sr]?
vierte[sr]? fünfte[sr]? sechste[sr]? siebente[sr]? siebte[sr]? achte[sr]? neunte[sr]? zehnte[sr]? elfte[sr]?
zwölfte[sr]? letzte[sr]? premier première deuxième seconde? troisième quatrième cinquième sixième septième huitième
neuvième dixième onzième douzième dernier dernière primer primer[oa] segund[oa] tercer tercer[oa] cuart[oa]
quint[oa] sext[oa] séptim[oa] octav[oa] noven[oa] décim[oa] prim[oa] second[oa] terz[oa] quart[oa] sest[oa]
settim[oa] ottav[oa] non[oa] undecim[oa]
""".split()  # noqa: SIM905
_TENS = r"(?:twenty|thirty|forty|fifty|sixty)[ -]?"
_NUMBER = (
    rf"(?:{_ROMAN}|\d{{1,3}}[a-z]?|(?:{_TENS})?(?:{'|'.join(_WORD_NUMBERS)})"
    rf"|(?:the |le |la |el |il |der |das |die )?(?:{_TENS})?(?:{'|'.join(_ORDINALS)}))"
)
_PARTS = (
    "chapter|chap|book|part|volume|vol|act|scene|canto|section|sect|letter|stave|fytte|fit|adventure|episode|tale|story|lecture"
    "|kapitel|capitel|buch|teil|theil|band|akt|aufzug|auftritt|szene|scene|brief|abschnitt"
    "|chapitre|livre|partie|tome|acte|scène|lettre"
    "|capítulo|capitulo|cap|libro|parte|tomo|acto|jornada|escena"
    "|capitolo|atto|scena|canto|volume|lettera"
    "|hoofdstuk|deel|boek|kapittel|luku|kap|livro"
)
_PLACES = (
    "preface|foreword|introduction|introductory|prologue|epilogue|conclusion|dedication|appendix|afterword|postscript|proem"
    "|interlude|entr'acte|intermezzo|prelude|overture|l'envoi|envoi|advertisement|author's (?:note|preface|foreword|apology)"
    "|a note|publisher's note|editor's note|translator's (?:note|preface)|prefatory note|introductory note|to the reader"
    "|biographical note|bibliography|glossary|dramatis person(?:ae|æ)|acknowledge?ments|about the author"
    "|list of (?:illustrations|plates|maps|characters)|half.title|frontispiece|argument|epigraph|copyright"
    "|vorwort|vorrede|vorbemerkung|einleitung|einführung|nachwort|prolog|epilog|schluss|schluß|anhang|widmung|vorspiel"
    "|préface|avant-propos|prologue|épilogue|dédicace|avertissement|au lecteur|postface|appendice"
    "|prefacio|prólogo|prologo|epílogo|epilogo|introducción|introduzione|prefazione|conclusión|conclusione|dedicatoria|al lector"
    "|dedica|ai lettori|proemio|préambule|voorwoord|inleiding|förord"
)
CONTENTS = re.compile(
    r"(?:the |table of |general )*(?:contents|chapters)(?: of (?:the )?(?:volume|vol\.|book|part)[^\n]{0,30})?"
    r"|(?:list of |the )*(?:illustrations|plates|maps|engravings)(?: in [^\n]{0,30})?"
    r"|inhalt|inhaltsverzeichnis|inhaltsverzeichniß|inhalts-?übersicht|verzeichnis der abbildungen"
    r"|table(?: des (?:mati[èe]res|chapitres|gravures))?|índice|indice|tabla de contenidos?|índice general|sommaire|sommario|inhoud",
    re.I,
)
"""What a table of contents or a list of illustrations is called (to match the whole line without its decoration)."""

_END_OF = (
    r"(?!.* (?:was|were|is|are|had|has|came|would|could|will)\b)(?:the )?end of (?:the )?(?:project|book|volume|vol\.?|part|story|first|second|third|fourth|fifth|last)[^\n]{0,60}"
    r"|fin (?:du|de la|del?) (?:tome|livre|premi|second|deuxi|trois|dern|volume|partie|tomo|libro|parte|la parte)[^\n.!?]{0,40}"
    r"|ende (?:des|der) (?:erst|zweit|dritt|viert|letzt|buch|teil|theil|band)[^\n.!?]{0,40}"
    r"|fine (?:del|della) (?:prim|second|terz|volume|libro|tomo|parte)[^\n.!?]{0,40}"
)
_END_WORDS = r"the end|the very end|end|finis|fine|fin|ende|fim|einde|slut|loppu"
_END = re.compile(rf"(?:{_END_WORDS}|{_END_OF})[.!:]?", re.I)
_END_CAPITALS = re.compile(rf"(?:{_END_WORDS}|(?:the )?end of [^\n!?]{{1,60}}|{_END_OF})[.!:]?", re.I)

NOTES = re.compile(
    r"(?:the )?(?:transcriber|transcribers|transcriber's|transcribers'|transcriber’s|transcribers’|transcription|redactor's|etext"
    r" editor's|typographical)"
    r" (?:end ?)?(?:notes?|corrections|errors(?: corrected)?|changes)(?: and errata)?"
    r"|notes? (?:du|de la|des?) transcri\w+|nota del? transcri\w+|nota del trascrittore"
    r"|anmerkungen? (?:zur|der) (?:transkription|bearbeiter\w*)|errata|corrigenda|corrections made",
    re.I,
)
"""What a transcriber's notes and lists of printer's errors are called."""

ADVERTS = re.compile(
    r"advertisements?|(?:other |some |more |recent |popular )*(?:books|works|novels|stories|volumes|romances|publications)"
    r"(?: published| written)? (?:by|from|of)\b[^\n]{0,60}|by the same author|(?:also )?by [^\n]{3,40}|du même auteur"
    r"|works of [^\n]{3,50}|a (?:list|catalogue|selection) of[^\n]{0,60}|obras del mismo autor|dello stesso autore"
    r"|von demselben verfasser|im gleichen verlag[^\n]{0,40}|index|footnotes?|notes|(?:publisher|bookseller)s?'?s? (?:list|catalogue)",
    re.I,
)
"""What begins the pages behind a book's end."""

PUBLISHER = re.compile(
    r"\bcopyright\b|©|\(c\) ?\d{4}|all rights reserved|\bisbn\b|library of congress|\bpublish(?:ed|ers|ing)\b|\bprinted (?:in|by|and)\b"
    r"|\b(?:first|second|third|\d+th) (?:edition|impression|printing|thousand)\b|\bprinters?\b|\bthousand\b|illustrated by"
    r"|with (?:\w+ )?illustrations|translated (?:by|from)|author of|edited by|\bedition\b|& co\b|\bltd\b|\bpress\b|\bverlag\b|\béditeur"
    r"|traduit|übersetzt|traducción|traduzione|novel by|entered according to act of congress|\$ ?\d|\bcloth\b|12mo|crown 8vo|\bnet\b"
    r"|tous droits|alle rechte|smashwords|license notes?|electronic edition|ebook",
    re.I,
)
"""Words of title pages and publishers' adverts."""

_PART = re.compile(
    rf"(?:the )?(?:(?P<part>{_PARTS})\.? (?:no\. ?|the )?(?P<number>{_NUMBER})|(?P<ordinal>{_NUMBER})\.? (?P<part2>{_PARTS}))"
    r"(?![\w'’])(?P<tail>.*)",
    re.I,
)
_PLACE = re.compile(rf"(?:the )?(?:{_PLACES})(?![\w'’])(?P<tail>.*)", re.I)
_LONE_NUMERAL = re.compile(rf"[\[(]?(?:(?P<roman>{_ROMAN})|(?P<digits>\d{{1,4}}))[.:)\]]{{0,2}}[—-]?")
_NUMBERED = re.compile(
    rf"(?P<number>{_ROMAN}|\d{{1,3}})(?P<mark>\. ?[—–-]*|[:)] ?|\.? ?[—–-]+ ?| )(?=[^\s.])(?P<title>.+)"
)
_LOWER_ROMAN = re.compile(rf"(?=..){_ROMAN.lower()}\.?")
_PAGE = re.compile(
    r"\[ ?(?:pg|page|p|seite|s)\.? ?(?:\d{1,4}|[ivxlc]{1,8}) ?\]|\{ ?(?:p\. ?)?(?:\d{1,4}|[ivxlc]{1,8}) ?\}"
    r"|[-–—] ?\d{1,4} ?[-–—]|page \d{1,4}|pg\.? \d{1,4}|\[\d{1,4}\]|\|? ?page \d{1,4} ?\|?",
    re.I,
)
_SEPARATOR = re.compile(r"[\s*\-_=~·•.#+—–<>o|:&/\\^§†‡⁂❦☙]*")
_DECORATION = " \t*_=~#|+-—–·•<>"
_SENTENCE_INSIDE = re.compile(r"[a-zà-ÿ]{3}[.!?]['\"”’]? [A-Z\"“]")
_LETTER_PART = re.compile(
    r"letter|letters|lettre|lettera|brief|story|tale|fit|scene|lecture|section|act|adventure|episode|band|tome", re.I
)


def bare(line: str) -> str:
    """The line without white space, emphasis marks and rules around it, its white space single."""
    return " ".join(line.strip(_DECORATION).replace("_", "").split())


def is_separator(line: str) -> bool:
    """Whether the line has only asterisks, dashes, dots and the like: "* * *", "-----", "[* * *]"."""
    return bool(line) and len(line) < 200 and bool(_SEPARATOR.fullmatch(line)) and line.strip() != "o"


def is_page_number(line: str) -> bool:
    """Whether the line is only the number of a page: "[Pg 12]", "{xii}", "- 12 -", "12", "xii"."""
    line = line.strip()
    if not line or len(line) > 20:
        return False
    return bool(_PAGE.fullmatch(line) or line.isdigit() or _LOWER_ROMAN.fullmatch(line))


def is_end(line: str) -> bool:
    """Whether the line ends a book or a volume: "THE END", "Finis.", "End of Vol. I.", "Fin du tome premier"."""
    if len(line) > 90:
        return False
    plain = bare(line)
    if plain[:1] in ("(", "[") and plain[-1] in ")]":
        plain = bare(plain[1:-1])  # "(End of volume one.)"
    if plain.isupper():
        return bool(_END_CAPITALS.fullmatch(plain))
    return (
        plain[:1].isupper()
        and bool(_END.fullmatch(plain))
        and plain.rstrip(".!:").lower() not in ("fine", "end", "slut")
    )


def is_heading(line: str) -> bool:
    """Whether the line alone is surely the heading of a chapter, a part or a preface, in English, German, French, Spanish
    or Italian: "CHAPTER I", "Book the First", "IV. The Problem", "XII", "Erstes Kapitel", "PREFACE", "Part One: Home".

    Titles that look like any other short line ("The Problem") are not known by themselves.
    """
    if len(line) > HEADING_CHARACTERS:
        return False
    plain = bare(line)
    if not plain or plain[0] in "\"“”«»„‘'" or (plain[0].islower() and len(plain) > 40):
        return False
    return _is_part(plain) or _is_lone_numeral(plain) or _is_place(plain) or _is_numbered_title(plain)


def has_number_only(line: str) -> bool:
    """Whether a heading has a number and no title, so that its title may follow: "CHAPTER I.", "IV", "Book the First"."""
    plain = bare(line)
    if _is_lone_numeral(plain):
        return True
    part = _PART.fullmatch(plain)
    return part is not None and not part["tail"].strip(" .:—–-")


def _is_part(plain: str) -> bool:
    part = _PART.fullmatch(plain)
    if part is None or (plain[0].islower() and not plain.islower()):
        return False
    tail = part["tail"]
    rest = tail.strip(" .:;,)—–-]*")
    if not rest or rest.strip("()[]").lower() in ("continued", "concluded", "fortsetzung", "suite", "continuación"):
        return not (plain.islower() and len(plain.split()) > 3)
    if plain.isupper():
        return True
    word = (part["part"] or part["part2"]).lower()
    mark = tail.lstrip()[:1]
    if part["ordinal"] and not part["part"]:
        return bool(mark in ".:—–-" and title_like(rest))  # "The first part, of course, was easy."
    if _LETTER_PART.fullmatch(word) and mark not in ".:—–-(":
        return False
    number = part["number"]
    if mark in ".:—–-([" and not _SENTENCE_INSIDE.search(rest):
        return tail.rstrip()[-1] not in ",;" and (rest[0].isupper() or not rest[0].isalpha() or plain.islower())
    return (
        (number.isupper() or number.isdigit() or number[0].isupper())
        and title_like(rest)
        and tail.rstrip()[-1] not in ".,;!?"
    )


def _is_lone_numeral(plain: str) -> bool:
    numeral = _LONE_NUMERAL.fullmatch(plain)
    return bool(numeral and (numeral["roman"] or numeral["digits"])) or bool(_LOWER_ROMAN.fullmatch(plain))


def _is_place(plain: str) -> bool:
    place = _PLACE.fullmatch(plain)
    if place is None or plain[0].islower():
        return False
    rest = place["tail"].strip(" .:—–-")
    if not rest or plain.isupper():
        return True
    if CONTENTS.fullmatch(rest) or re.match(r"(?:to|by|of|zur|de|von|du) ", rest, re.I) is None:
        return place["tail"].lstrip()[:1] in (":", "—") and title_like(rest) and plain[-1] not in ".!?,;"
    return len(plain) < 60 and plain[-1] not in ".!?,;" and title_like(rest)


def _is_numbered_title(plain: str) -> bool:
    numbered = _NUMBERED.fullmatch(plain)
    if numbered is None or not numbered["number"]:
        return False
    title, mark = numbered["title"], numbered["mark"].strip()
    if not mark and (numbered["number"] in "ICDLMVX" or numbered["number"].isdigit()):
        return title.isupper() and len(title) > 5 and numbered["number"] != "I"
    if title.isupper() and len(title.strip(" .")) > 1:
        return True
    if _SENTENCE_INSIDE.search(title) or title[-1] in ",;:":
        return False
    return title[0].isupper() and title[-1] not in '.!?…—"”' and title_like(title) and (bool(mark) or len(plain) < 60)


_SMALL_WORDS = frozenset(
    """
a an the and or nor but of in on at to for from by with as is his her its their my our your not no into upon over
under after before between who which that how what when where why was were are be than then so if it he she they we
you i der die das den dem des ein eine einer und oder von vom zu zum zur im in am an auf mit nach bei für wie er
sie es ist le la les l un une des du de d et ou à au aux en dans par pour sur avec que qui où se sa son ses el los
las un una unos y o del al con por para que se su sus como il lo gli i uno e di da nel nella dei della delle a
without against through de' al' vs
""".split()  # noqa: SIM905
)


def title_like(text: str) -> bool:
    """Whether most words that could have a capital have one, as in titles: "The Story of Little Boy Blue"."""
    words = [word.strip("'\"“”‘’().,:;!?—–-_") for word in text.replace("—", " ").replace("--", " ").split()]
    words = [word for word in words if word and not word[0].isdigit()]
    if not words or len(words) > 20:
        return False
    strong = [word for word in words if word.lower() not in _SMALL_WORDS]
    if not strong:
        return words[0][0].isupper()
    return sum(word[0].isupper() for word in strong) >= 0.7 * len(strong)
