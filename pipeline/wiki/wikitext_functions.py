"""The rules of templates that need code: `"@convert" = ["convert", "cvt"]` in pipeline/wiki/templates names one of these.

A function gets the arguments of one template and returns wikitext, "" where nothing is to be read. What a pattern can
say (`pipeline.wiki.wikitext_rules`) is not here.
"""

import re
from collections.abc import Callable

_MARKUP = "[]{}'<>|=*#:;_&!-~\n"
HIDE = {ord(mark): chr(0xFDD0 + index) for index, mark in enumerate(_MARKUP)}
SHOW = {ord(stand_in): " " if mark == ord("\n") else chr(mark) for mark, stand_in in HIDE.items()}
"""`text.translate(HIDE)`: characters that must not be read as markup become Unicode's noncharacters, until SHOW."""

LAST_POSITION = 100
"""Of an argument by number: `{{name|100=x}}`."""


class Arguments:
    """Arguments of one template: `self[1]` by position, `self["name"]` by name in lower case; "" where absent."""

    __slots__ = ("name", "named", "positional")

    def __init__(self, name: str, parts: list[str]) -> None:
        self.name = name
        """of the template, as the page writes it"""
        self.positional: list[str] = []
        self.named: dict[str, str] = {}
        for part in parts:
            name, equals, value = part.partition("=")
            if not equals:
                self.positional.append(part.strip())
            elif name.strip().isdecimal():
                index = int(name.strip()[:3]) - 1
                if 0 <= index < LAST_POSITION:
                    self.positional += [""] * (index + 1 - len(self.positional))
                    self.positional[index] = value.strip()
            else:
                self.named[name.strip().lower()] = value.strip()

    def __getitem__(self, key: int | str) -> str:
        if isinstance(key, str):
            return self.named.get(key, "")
        return self.positional[key - 1] if 0 < key <= len(self.positional) else ""

    @property
    def own_name(self) -> str:
        """The template's name, tidied."""
        return self.name.replace("_", " ").strip()

    @property
    def filled(self) -> list[str]:
        """The positional arguments that are not empty."""
        return [each for each in self.positional if each]


Handler = Callable[[Arguments], str]


# ── values and units ─────────────────────────────────────────────────────────────────────────────────────────────────

_RANGE = {
    "to": " to ",
    "-": "–",
    "–": "–",
    "and": " and ",
    "&": " and ",
    "or": " or ",
    "by": " by ",
    "x": " × ",
    "×": " × ",
    "*": " × ",
    "+/-": " ± ",
    "±": " ± ",
    "+": " + ",
    ",": ", ",
    "to(-)": " to ",
    "to-": " to ",
    "and(-)": " and ",
    "or(-)": " or ",
    "by(x)": " by ",
    "xx": " × ",
    "til": " til ",
    "bis": " bis ",
}
_UNITS = {
    "sqmi": "sq mi",
    "sqft": "sq ft",
    "sqyd": "sq yd",
    "sqin": "sq in",
    "cuft": "cu ft",
    "cuyd": "cu yd",
    "cuin": "cu in",
    "cumi": "cu mi",
    "acre": "acres",
    "c": "°C",
    "f": "°F",
    "degc": "°C",
    "degf": "°F",
    "l/100 km": "L/100 km",
    "foot": "feet",
    "mile": "miles",
    "inch": "inches",
    "lb-f": "lbf",
    "usgal": "US gal",
    "impgal": "imp gal",
    "floz": "fl oz",
    "nmi": "nmi",
    "sqkm": "km2",
    "sqm": "m2",
    "cum": "m3",
    "kph": "km/h",
    "usdrygal": "US dry gal",
    "usfloz": "US fl oz",
    "impfloz": "imp fl oz",
    "ft.lbf": "ft⋅lbf",
    "lb.ft": "lb⋅ft",
    "lbft": "lb⋅ft",
}
_WITH = {
    "ft",
    "foot",
    "feet",
    "in",
    "yd",
    "mi",
    "lb",
    "oz",
    "st",
    "chain",
    "ch",
    "furlong",
    "lt",
    "long ton",
    "e6",
    "m",
    "km",
    "pole",
}
_NUMBER = re.compile(r"[-−+]?[\d.,/+ ]*\d")


def _unit(unit: str) -> str:
    return _UNITS.get(unit.lower(), unit)


def _convert(a: Arguments) -> str:
    """{{convert|5|ft|6|in|m}}, {{convert|10|to|20|km|mi}}: the value and the unit as the source gives them."""
    words = [each for each in a.positional if each]
    if not words:
        return ""
    text = words[0]
    index = 1
    while index + 1 < len(words) and words[index].lower() in _RANGE:
        text += _RANGE[words[index].lower()] + words[index + 1]
        index += 2
    if index < len(words):
        text += f" {_unit(words[index])}"
        while (
            words[index].lower() in _WITH
            and index + 2 < len(words)
            and _NUMBER.fullmatch(words[index + 1])
            and words[index + 2].lower() in _WITH
        ):
            text += f" {words[index + 1]} {_unit(words[index + 2])}"
            index += 2
    mid = a["adj"] == "mid" and index + 1 < len(words) and words[-1].startswith(("-", "long", "wide", "high", "tall"))
    return f"{text} {words[-1].lstrip('-')}" if mid else text


def _val(a: Arguments) -> str:
    """{{val|1.2|0.3|e=5|u=km}}"""
    text = a[1]
    if a[2] and a[3]:
        text += f"+{a[2].lstrip('+')}−{a[3].lstrip('-−')}"
    elif a[2]:
        text += f"±{a[2].lstrip('±')}"
    if a["e"]:
        text = f"{text}×10^{a['e']}" if text else f"10^{a['e']}"
    before, after = a["p"], a["s"]
    unit = a["u"] or a["ul"] or a["upl"] or a["up"]
    return f"{before}{text}{after}" + (f" {unit}" if unit and text else "") + (f"/{a['per']}" if a["per"] else "")


def _unit_value(a: Arguments) -> str:
    """fr {{unité|3|à=4|km|/h}}, {{unité|5,2e6|m|2}}: value, unit and the exponent of each unit"""
    if not a[1]:
        return ""
    text = a[1] + next((f" {word} {a[word]}" for word in ("à", "et", "ou", "a", "y", "o") if a[word]), "")
    if a["e"]:
        text += f"×10^{a['e']}"
    units = a.positional[1:]
    unit = ""
    for index, each in enumerate(units):
        if each and each.lstrip("-−").isdecimal() and index:
            unit += each if each != "1" else ""
        elif each:
            unit += f"⋅{each}" if unit and not each.startswith("/") else each
    return f"{text} {unit}".strip()


_RUPEES = {
    "c": "crore",
    "l": "lakh",
    "lc": "lakh crore",
    "k": "thousand",
    "m": "million",
    "b": "billion",
    "t": "trillion",
}


def _rupees(a: Arguments) -> str:
    """{{INRConvert|5|c}}"""
    unit = _RUPEES.get(a[2].lower(), "")
    return f"₹{a[1]} {unit}".rstrip() if a[1] else "₹"


def _fraction(a: Arguments) -> str:
    words = a.filled
    if len(words) == 1:
        return f"1/{words[0]}"
    if len(words) == 2:
        return f"{words[0]}/{words[1]}"
    return f"{words[0]} {words[1]}/{words[2]}" if len(words) == 3 else ""


def _exponent(a: Arguments) -> str:
    """{{e|5}}, or French {{e}} after a Roman number"""
    if not a[1]:
        return "e"
    return f"×10^{a[1]}" if a[1].lstrip("-−+").isdecimal() else a[1]


def _ordinal(a: Arguments) -> str:
    number = a[1].replace(",", "")
    if not number.isdecimal():
        return a[1]
    ending = "th" if number[-2:] in ("11", "12", "13") else {"1": "st", "2": "nd", "3": "rd"}.get(number[-1], "th")
    return a[1] + ending


# ── dates ────────────────────────────────────────────────────────────────────────────────────────────────────────────

_MONTHS = "January February March April May June July August September October November December".split()  # noqa: SIM905
_GERMAN_MONTHS = "Januar Februar März April Mai Juni Juli August September Oktober November Dezember".split()  # noqa: SIM905
_SPANISH_MONTHS = (
    "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre".split()  # noqa: SIM905
)
_RUSSIAN_MONTHS = (
    "января февраля марта апреля мая июня июля августа сентября октября ноября декабря".split()  # noqa: SIM905
)
_FRENCH_MONTHS = (
    "janvier février mars avril mai juin juillet août septembre octobre novembre décembre".split()  # noqa: SIM905
)


def _month(month: str, names: list[str] = _MONTHS) -> str:
    return names[int(month) - 1] if len(month) < 3 and month.isdecimal() and 1 <= int(month) <= 12 else month


def _as_of(a: Arguments) -> str:
    if a["alt"]:
        return a["alt"]
    word = "Since" if a["since"] else "As of"
    date = " ".join(each for each in (a[3], _month(a[2]), a[1]) if each)
    if not date:
        return ""
    if a["lc"].lower() in ("y", "yes", "on", "1", "true"):
        word = word.lower()
    return f"{word} {date}"


def _date(a: Arguments) -> str:
    """{{start date|1973|10|17|df=y}}"""
    year, month, day = a[1], _month(a[2]), a[3]
    if a["df"]:
        return " ".join(each for each in (day, month, year) if each)
    return f"{month} {day}, {year}" if day and month else " ".join(each for each in (month, year) if each)


def _french_date(a: Arguments) -> str:
    """{{date|17|octobre|1973|en musique}}, {{date|17/10/1973}}, {{date-|octobre 1973}}"""
    words = a.filled
    if words and (parts := re.fullmatch(r"(\d{1,2})/(\d{1,2})/(\d{1,4})", words[0])):
        words = [parts[1], _month(parts[2], _FRENCH_MONTHS), parts[3]]
    elif len(words) == 3 and words[1].isdecimal():
        words[1] = _month(words[1], _FRENCH_MONTHS)
    year = next((index for index, each in enumerate(words) if re.fullmatch(r"-?\d{3,4}", each)), 2)
    return " ".join(words[: year + 1])  # what follows the year names the link's target


def _spanish_date(a: Arguments) -> str:
    """{{fecha|17|10|1973}}"""
    words = a.filled[:3]
    if len(words) > 1:
        words[-2] = _month(words[-2], _SPANISH_MONTHS)
    return " de ".join(words)


def _spanish_century(a: Arguments) -> str:
    """{{siglo|XIX}}, {{siglo|V|a}}: before Christ"""
    era = {"a": " a. C.", "d": " d. C."}.get(a[2].lower(), "")
    return f"siglo {a[1]}{era}" if a[1] else ""


def _incise(a: Arguments) -> str:
    """fr {{incise|words}}; a second argument says that the sentence ends here"""
    return f"– {a[1]}" + ("" if a[2] else " –") if a[1] else ""


_ROMAN = re.compile(r"[IVXLCivxlc]+")


def _french_century(a: Arguments) -> str:
    """{{s|XIX|e}}, {{s|XIX}}; elsewhere {{s|words}} is a form of type"""
    return f"{a[1]}{a[2] or 'e'} siècle" if _ROMAN.fullmatch(a[1]) else a[1]


def _roman(a: Arguments) -> str:
    """fr {{rom-maj|XIX|19}}, {{rom-maj|XIX|e}}: the second argument explains, unless it is the ending"""
    return a[1] + ("e" if a[2] == "e" else "") if a[1] else ""


def _iso_date(a: Arguments, names: list[str], dot: str) -> str:
    parts = re.fullmatch(r"(\d{4})-(\d{1,2})-(\d{1,2})", a[1])
    if parts:
        return f"{int(parts[3])}{dot} {_month(str(int(parts[2])), names)} {parts[1]}"
    if all(a[n].isdecimal() and len(a[n]) < 5 for n in (1, 2, 3)):
        day, year = (a[1], a[3]) if len(a[3]) > 2 else (a[3], a[1])
        return f"{int(day)}{dot} {_month(str(int(a[2])), names)} {year}"
    return " ".join(a.filled)


def _german_date(a: Arguments) -> str:
    """{{Datum|1973-10-17}}, {{Datum|17|10|1973}}"""
    return _iso_date(a, _GERMAN_MONTHS, ".")


def _russian_date(a: Arguments) -> str:
    """{{дата|17|10|1973}}"""
    return _iso_date(a, _RUSSIAN_MONTHS, "")


# ── languages and names ──────────────────────────────────────────────────────────────────────────────────────────────


def _nihongo(a: Arguments) -> str:
    """English (漢字, rōmaji, extra)"""
    inside = ", ".join(each for each in (a[2] or a["kanji"], a[3] or a["romaji"], a[4] or a["extra"]) if each)
    head = a[1] or a["english"]
    if not head:
        return inside
    return f"{head} ({inside})" if inside else head


def _nihongo3(a: Arguments) -> str:
    """rōmaji (漢字, English)"""
    inside = ", ".join(each for each in (a[2], a[1], a[4]) if each)
    return f"{a[3]} ({inside})" if a[3] and inside else a[3] or inside


def _ship(a: Arguments) -> str:
    """{{ship|HMS|Name|hull number}}; the fourth argument says what of it is shown"""
    return " ".join(each for each in (a[1], a[2]) if each) + (f" ({a[3]})" if a[3] and not a[4] else "")


def _prefixed_ship(a: Arguments) -> str:
    """{{HMS|Name|hull number}}; the third argument says what of it is shown"""
    prefix = a.own_name.upper() if a.own_name.islower() else a.own_name
    return f"{prefix} {a[1]}" + (f" ({a[2]})" if a[2] and not a[3] else "") if a[1] else ""


def _bible(a: Arguments) -> str:
    """{{bibleverse|1|Corinthians|13:4|KJV}}: book and verse, without the edition"""
    words = a.filled
    return " ".join(words[:2]) if len(words) < 3 or not words[0].isdecimal() else " ".join(words[:3])


def _in_text_citation(a: Arguments) -> str:
    """{{harvtxt|Boolos|Jeffrey|1974}}: A & B (year), a part of the sentence"""
    words = a.filled
    if len(words) < 2:
        return ""
    names = words[:-1]
    last = f" & {names[-1]}" if len(names) > 1 else ""
    return ", ".join(names[:-1] or names) + f"{last} ({words[-1]})"


_LISTEN = frozenset(
    """
listen pronunciation play help info ? hear anhören hören ascolta escuchar прослушать écouter 聞く 聴く 発音 audio
""".split()  # noqa: SIM905
)


def _audio(a: Arguments) -> str:
    """{{audio|file.ogg|label}}: the label, unless it only says what it is for"""
    return "" if a[2].lower().strip("() ") in _LISTEN else a[2]


def _music(a: Arguments) -> str:
    signs = {"sharp": "♯", "#": "♯", "flat": "♭", "b": "♭", "natural": "♮", "doublesharp": "𝄪", "doubleflat": "𝄫"}
    return signs.get(a[1].lower(), "")


def _chinese(a: Arguments) -> str:
    """{{zh|s=…|t=…|p=…}}: the characters"""
    return (
        a["c"] or a["s"] or a["t"] or a["hant"] or a["hans"] or a["j"] or a["p"] or (a.filled[-1] if a.filled else "")
    )


FUNCTIONS: dict[str, Handler] = {
    "as_of": _as_of,
    "audio": _audio,
    "bible": _bible,
    "chinese": _chinese,
    "convert": _convert,
    "date": _date,
    "exponent": _exponent,
    "fraction": _fraction,
    "french_century": _french_century,
    "french_date": _french_date,
    "german_date": _german_date,
    "incise": _incise,
    "in_text_citation": _in_text_citation,
    "music": _music,
    "nihongo": _nihongo,
    "nihongo3": _nihongo3,
    "ordinal": _ordinal,
    "prefixed_ship": _prefixed_ship,
    "roman": _roman,
    "rupees": _rupees,
    "russian_date": _russian_date,
    "ship": _ship,
    "spanish_century": _spanish_century,
    "spanish_date": _spanish_date,
    "unit_value": _unit_value,
    "val": _val,
}
