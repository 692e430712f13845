"""Templates and parser functions that stand for words of the sentence: name → the text that a reader sees.

A handler gets the arguments and returns wikitext, or "" where nothing is to be read. What has no handler here is
dropped by `pipeline.wikitext`. Policy: the source's own value and unit, no computed conversion; no pronunciation, no
coordinates, nothing that depends on today's date.
"""

import re
from collections.abc import Callable
from typing import Literal

from pipeline.wikitext_names import TEMPLATE

_MARKUP = "[]{}'<>|=*#:;_&!-~\n"
HIDE = {ord(mark): chr(0xFDD0 + index) for index, mark in enumerate(_MARKUP)}
SHOW = {ord(stand_in): " " if mark == ord("\n") else chr(mark) for mark, stand_in in HIDE.items()}
"""`text.translate(HIDE)`: characters that must not be read as markup become Unicode's noncharacters, until SHOW."""


class Arguments:
    """Arguments of one template: `self[1]` by position, `self["name"]` by name; "" where absent."""

    def __init__(self, parts: list[str]) -> None:
        self.positional: list[str] = []
        self.named: dict[str, str] = {}
        for part in parts:
            name, equals, value = part.partition("=")
            if not equals:
                self.positional.append(part.strip())
            elif name.strip().isdecimal():
                index = int(name.strip()[:3]) - 1
                if 0 <= index < 100:
                    self.positional += [""] * (index + 1 - len(self.positional))
                    self.positional[index] = value.strip()
            else:
                self.named[name.strip().lower()] = value.strip()

    def __getitem__(self, key: int | str) -> str:
        if isinstance(key, str):
            return self.named.get(key, "")
        return self.positional[key - 1] if 0 < key <= len(self.positional) else ""

    @property
    def filled(self) -> list[str]:
        """The positional arguments that are not empty."""
        return [each for each in self.positional if each]


Handler = Callable[[Arguments], str]


def _nth(*positions: int) -> Handler:
    """The first of these positional arguments that is not empty."""
    return lambda a: next((a[position] for position in positions if a[position]), "")


def _named(*names: str) -> Handler:
    """The first of these named arguments that is not empty, else the first positional one."""
    return lambda a: next((a[name] for name in names if a[name]), a[1])


def _joined(by: str) -> Handler:
    return lambda a: by.join(a.filled)


def _text(words: str) -> Handler:
    return lambda a: words


def _around(before: str, after: str = "") -> Handler:
    return lambda a: f"{before}{a[1]}{after}" if a[1] else ""


def _last(a: Arguments) -> str:
    return a.filled[-1] if a.filled else ""


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
    "to(-)": " to ",
    "and(-)": " and ",
    "or(-)": " or ",
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


_MONTHS = "January February March April May June July August September October November December".split()  # noqa: SIM905


def _month(month: str) -> str:
    return _MONTHS[int(month) - 1] if month.isdecimal() and 1 <= int(month) <= 12 else month


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


def _circa(a: Arguments) -> str:
    return " – ".join(f"c. {each}" for each in a.filled[:2])


def _span(word: str) -> Handler:
    return lambda a: f"{word} " + "–".join(a.filled[:2]) if a.filled else ""


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


def _fraction(a: Arguments) -> str:
    words = a.filled
    if len(words) == 1:
        return f"1/{words[0]}"
    if len(words) == 2:
        return f"{words[0]}/{words[1]}"
    return f"{words[0]} {words[1]}/{words[2]}" if len(words) == 3 else ""


def _last_or_only(a: Arguments) -> str:
    """{{w|target|label}}"""
    return a[2] or a[1]


def _chinese(a: Arguments) -> str:
    """{{zh|s=…|t=…|p=…}}: the characters"""
    return (
        a["c"] or a["s"] or a["t"] or a["hant"] or a["hans"] or a["j"] or a["p"] or (a.filled[-1] if a.filled else "")
    )


def _currency(sign: str, after: str = "") -> Handler:
    return lambda a: f"{sign}{a[1]}{after}".strip()


def _quote(a: Arguments) -> str:
    """A block: a paragraph of its own."""
    text = a["text"] or a["quote"] or a["content"] or a["文章"] or a["引用文"] or a["zitat"] or a["citation"] or a[1]
    return f"\n\n{text}\n\n" if text else ""


def _keep_name(name: str) -> Handler:
    return lambda a: name


def _ship(a: Arguments) -> str:
    return " ".join(each for each in (a[1], a[2]) if each) + (f" ({a[3]})" if a[3] and not a[4] else "")


def _named_ship(prefix: str) -> Handler:
    return lambda a: f"{prefix} {a[1]}" + (f" ({a[2]})" if a[2] and not a[3] else "") if a[1] else ""


def _bible(a: Arguments) -> str:
    words = a.filled
    return " ".join(words[:2]) if len(words) < 3 or not words[0].isdecimal() else " ".join(words[:3])


def _century(a: Arguments) -> str:
    """{{s|XIX|e}}"""
    return f"{a[1]}{a[2] or 'e'} siècle" if a[1] else ""


def _label_or_first(a: Arguments) -> str:
    return a["lt"] or a["label"] or a["texte"] or a["display"] or a["d"] or a["fr"] or a["text"] or a[1]


def _born_died(a: Arguments) -> str:
    """{{bd|1879年|3月14日|1955年|4月18日}}"""
    return f"（{a[1]}{a[2]}－{a[3]}{a[4]}）" if a[1] else ""


def _ordinal(a: Arguments) -> str:
    number = a[1].replace(",", "")
    if not number.isdecimal():
        return a[1]
    ending = "th" if number[-2:] in ("11", "12", "13") else {"1": "st", "2": "nd", "3": "rd"}.get(number[-1], "th")
    return a[1] + ending


def _music(a: Arguments) -> str:
    signs = {"sharp": "♯", "#": "♯", "flat": "♭", "b": "♭", "natural": "♮", "doublesharp": "𝄪", "doubleflat": "𝄫"}
    return signs.get(a[1].lower(), "")


def _old_style(a: Arguments) -> str:
    return f"{a[1]} [O.S. {a[3]}] {a[2]}".strip() if a[3] else f"{a[1]} {a[2]}".strip()


def _translated(a: Arguments) -> str:
    """zh {{tsl|en|title|local title|label}}"""
    return a[4] or a[3] or a[2]


def _reading(a: Arguments) -> str:
    """{{読み仮名|漢字|よみ}}"""
    inside = "、".join(a.positional[1:4])
    return f"{a[1]}（{inside.strip('、')}）" if inside.strip("、") else a[1]


def _section_link(a: Arguments) -> str:
    return " § ".join(a.filled)


def _measure(a: Arguments) -> str:
    """it {{M|100|ul=km}}"""
    unit = a["u"] or a["ul"] or a["um"] or a[2]
    return f"{a[1]} {unit}".strip() if a[1] else ""


def _hour(a: Arguments) -> str:
    return f"{a[1]} h {a[2]}".strip() if a[1] else ""


_LISTEN = {
    "listen",
    "pronunciation",
    "play",
    "help",
    "info",
    "?",
    "hear",
    "anhören",
    "écouter",
    "聞く",
    "聴く",
    "発音",
    "audio",
}
_HANDLERS: dict[str, Handler] = {}


def _register(names: str, handler: Handler) -> None:
    for name in names.split("|"):
        _HANDLERS[name.strip()] = handler


_register("convert|cvt|converted|conv|convertir|unit convert|convert/spell", _convert)
_register(
    "lang|langx|langue|lang2|wikt-lang|wt|native name|native phrase|script|rtl-lang|language-text|lang-x", _nth(2)
)
_register("lang-zh|zh|zh-cn|zh-tw|chinese|zho|lang-zh-short|lang-zh-hant|lang-zh-hans|zhi|zhp", _chinese)
_register("lang-rus|rus|lang-ka|langr", _nth(1))
_register("transl|transliteration|translit|xlit|tlit|transliteration/ja|romanization", _last)
_register("nihongo|japonais|nihongo foot|nihongo4|nihongo krt", _nihongo)
_register("nihongo2|nihongo title", _nth(1))
_register("nihongo3|nihongo-s", _nihongo3)
_register("korean|lang-ko|ko|ko-hhrm|韓国語", lambda a: a["hangul"] or a["한글"] or a[1])
_register("as of|asof|as-of", _as_of)
_register("circa|c.|ca.|ca|circa.|around", _circa)
_register("floruit|fl.|fl", _span("fl."))
_register("reign|r.|ruled", _span("r."))
_register("born|b.|geboren", _around("b. "))
_register("died|d.", _around("d. "))
_register("val|valeur|value", _val)
_register("frac|sfrac|fraction|mixed|bruch|xfrac|fracción|дробь", _fraction)
_register("sortname|sort name|sortierter name", lambda a: " ".join(each for each in (a[1], a[2]) if each))
_register("chem|fchim|chem2|chemical formula|hlist-inline|linktext|gaps|num gaps|gap|formula chimica", _joined(""))
_register("key press|keypress|key|taste|touche", _joined("+"))
_register("post-nominals|postnominals|post-nominal|post nominals", _joined(" "))
_register("us$|usd|united states dollar", _currency("US$"))
_register("gbp|£|pound sterling", _currency("£"))
_register("eur|€|euro", _currency("€"))
_register("inr|₹|indian rupee|rupee|inrconvert|indian rupees", _currency("₹"))
_register("jpy|¥", _currency("¥"))
_register("a$|aud", _currency("A$"))
_register("c$|cad|cad$", _currency("C$"))
_register("nzd|nz$", _currency("NZ$"))
_register("php|₱", _currency("₱"))
_register("cny|rmb|cn¥", _currency("CN¥"))
_register("krw|₩", _currency("₩"))
_register("ngn|₦|naira", _currency("₦"))
_register("try|₺", _currency("₺"))
_register("brl|r$", _currency("R$"))
_register("bitcoin|btc", _currency("₿"))
_register("quote|blockquote|cquote|quotation|centered pull quote|rquote|pull quote|block quote|bquote", _quote)
_register("citation bloc|zitat|cita|citazione|цитата|quote1|bloque cita|引用文|引用|quotetext|行内引用", _quote)
_register(
    "ill|interlanguage link|interlanguage link multi|illm|link-interwiki|仮リンク|lien|ilm|iii|ill2|ill-wd",
    _label_or_first,
)
_register(
    "link-en|link-de|link-fr|link-es|link-it|link-ru|link-ja|link-ko|link-zh|link-pt|日本語版にない記事リンク",
    _nth(3, 1),
)
_register("le|en-link|internal link helper/en|internal link helper|藍鏈|ilh", _nth(3, 1))
_register("tsl|translink|link-xx", _translated)
_register("нп|нп1|нп2|нп3|нп4|нп5|iw|не переведено|не переведено 2|не переведено 3|не переведено 5|нп-п", _nth(2, 1))
_register("w|wp|wikipedia link|lw|link|plainlink", _last_or_only)
_register("bd|bd2", _born_died)
_register("読み仮名|読み仮名 ruby不使用|ルビ|ruby|ふりがな|furigana|振り仮名|ruby-ja|ruby-zh-b|ruby-zh-p", _reading)
_register("傍点", lambda a: a["文章"] or a[1])
_register("ship", _ship)
for _prefix in (
    "HMS",
    "USS",
    "SS",
    "RMS",
    "HMAS",
    "HMCS",
    "MV",
    "USNS",
    "USCGC",
    "SMS",
    "INS",
    "MS",
    "PS",
    "GTS",
    "ORP",
):
    _register(_prefix.lower(), _named_ship(_prefix))
_register("sclass|sclass2|sclass-", lambda a: f"{a[1]}-class {a[2]}".strip() if a[1] else "")
_register(
    "bibleverse|bibleref|bibleref2|bible verse|sourcetext-bible|b-bible|bible|bibleverse with invalid book", _bible
)
_register(
    "start date|end date|birth date|death date|dts|start-date|film date|birth-date|death-date|date table sorting", _date
)
_register("birth date and age|death date and age|start date and age|birth-date and age|bda", _date)
_register("date|date-|date de naissance|date de naissance-|date de décès|date de décès-|datum", _joined(" "))
_register("unité|unité/2|unidad|unitat|unit|dunité|unità|единица", lambda a: " ".join(a.filled[:2]))
_register("fecha", _joined(" de "))
_register("s|s-|siècle|siècle2", lambda a: _century(a) if a[2] else a[1])
_register("sap|sap-|rom-maj|rom|rom maj", lambda a: a[1] + (a[2] if a[2] == "e" else ""))
_register(
    "sp|sp-", lambda a: " ".join(a.filled[:2]) if len(a.filled) < 5 else f"{a[1]}{a[2]} {a[3]} {a[4]}{a[5]} siècle"
)
_register("-s|-s-|siècle av jc", lambda a: f"{a[1]}{a[2] or 'e'} siècle av. J.-C." if a[1] else "")
_register("heure", _hour)
_register("siglo", lambda a: f"siglo {a[1]}" if a[1] else "")
_register("m|medida", _measure)
_register("ordinal|ord", _ordinal)
_register("music", _music)
_register("oldstyledate|old style date|oldstyledatedy|юлд", _old_style)
_register("section link|slink|seclink", _section_link)
_register("angbr|angle bracket|angbr ipa|angle|grapheme|‹›", _around("⟨", "⟩"))
_register("bra-ket|bra", _around("⟨", "|"))
_register("gloss|glossar|single quotes", _around("'", "'"))
_register("lit|lit.|literal translation|literally|literal", lambda a: f"lit. '{a[1]}'" if a[1] else "")
_register(
    "e|e10|esp", lambda a: f"×10^{a[1]}" if a[1] and a[1].lstrip("-−+").isdecimal() else ("e" if not a[1] else a[1])
)
_register("sqrt|radic|radical", _around("√"))
_register("no.|numero|num.|nr|n°|nº|numéro", lambda a: f"No. {a[1]}".strip())
_register("p.|page|pg", lambda a: f"p. {a[1]}" if a[1] else "")
_register("incise", lambda a: f"– {a[1]}" + ("" if a[2] else " –") if a[1] else "")
_register("née|nee", _around("née "))
_register("né", _around("né "))
_register('"|guil|guillemets|«', lambda a: f"« {a[1]} »" if a[1] else '"')
_register("isbn", _around("ISBN "))
_register("flag|flagcountry|flagu|flagathlete|флагификация|страна|flaglink", _nth(1))
_register(
    "color|colour|fontcolor|font color|colored text|foreground|text color|font colour|couleur|farbe|цвет|colore", _last
)
_register("resize|font|fontsize|size|taille|フォントサイズ|font size", _last)
_register("audio|listen-inline", lambda a: "" if a[2].lower().strip("() ") in _LISTEN else a[2])
_register("abbr|abbreviation|tooltip|hover title|abbrlink|abréviation|abrd|abr|comment|h:title|explain|аббр", _nth(1))
_register("langnf", _nth(3, 2))
_register(
    "nowrap|nobr|nowr|nobreak|no break|small|smaller|big|larger|smallcaps|small caps|sc|sm|smcaps|smallcaps all"
    "|sub|sup|mvar|math|mathit|em|strong|italic|italics|bold|kbd|code|tt|mono|samp|var|noitalic|no italic|nobold|nocaps"
    "|underline|underlined|strikethrough|strike|overline|uline|vanchor|visible anchor|visible anchors|not a typo|proper name"
    "|typo|sic|as written|iast|unicode|polytonic|polytonisch|hebrew|hebr|arabic|arab|greek|cyrl|nastaliq|nq|syriac|armenian"
    "|my|burmese|devanagari|script/hebrew|script/arabic|gk|pie|okinatext|aut|auteur|nts|num|number|nombre|число"
    "|citation needed span|cn-span|fix span|disputed span|citation needed lead|clarify span|dubious span"
    "|citation|référence nécessaire|refnec|référence souhaitée|douteux|passage évasif|pas clair|quand|passage promotionnel"
    "|pertinence détail|cita requerida|senza fonte|cn|нет аи 2|要出典範囲|要検証範囲|独自研究範囲|要説明範囲|誰範囲2"
    "|補助漢字フォント|jis2004フォント|jis90フォント|拡張漢字|僻字|cjk-new-char|補助漢字|cjkv|en|lang-en-short|linkja"
    "|tutto attaccato|esd|versalita|petit|exp|ind|terme défini|souverain|souverain2|souverain-|souverain2-"
    "|by|by2|lj|日本語|ja|jp|zh2|下線|縦書き|small2|sprache|hochgestellt|s2|большой|ударение|accent|уд"
    "|wikicode|inline|font-style|no wrap|ne|nbs|h2|blue|green|gray|grey|red|black|white|transparent"
    "|linktext2|oq|quoted|qi|stl|dfn|term|define|highlight|text|nwr|smalldiv|small div"
    "|latin|lat|grc|mw|cuneiform|ethi|runic|gothic|cher|tibetan|bo-textonly|tham|khmer|lao|jav"
    "|textes|corr|correct|doublement|ipa-like|fs|fw|fontfamily|visible|nihongo core",
    _nth(1),
)
_register(
    "nbsp|space|spaces|nnbsp|thinsp|thin space|hair space|hairsp|pad|emsp|ensp|figure space|sp.|br|-nbsp|\\|crlf",
    _text(" "),
)
_register("snd|spnd|spaced ndash|spaced en dash|spaced endash|sndash|– |spnd2|spaced-ndash|spacedendash", _text(" – "))
_register("ndash|en dash|endash|nd|–|nsndns|nsnd", _text("–"))
_register("mdash|em dash|emdash|—", _text("—"))
_register("spaced em dash|spaced mdash|smdash|snds|snd2", _text(" — "))
_register("·|dot|middot|bullet|bull|•|spaced bullet", _text(" · "))
_register("'|apos|apostrophe|`", _text("'"))
_register("'s", _text("'s"))
_register("' \"|\"'|'\"", _text("'\""))
_register("okina|hamza|ʻ|'okina", _text("ʻ"))
_register("ayin", _text("ʿ"))
_register("!", lambda a: a[1] or "|".translate(HIDE))
for _mark, _names in {"=": "=|equals", "{": "(|lbrace", "}": ")|rbrace", "[": "lbrack", "]": "rbrack"}.items():
    _register(_names, _text(_mark.translate(HIDE)))
_register("pi|π", _text("π"))
_register("times|×", _text("×"))
_register("minus|−", _text("−"))
_register("plusminus|±|+-|pm", lambda a: f"±{a[1]}")
_register("half|1/2", _text("½"))
_register("solar mass|msun", _text("M☉"))
_register("co2|carbon dioxide", _text("CO2"))
_register("h2o", _text("H2O"))
_register("°c", _text("°C"))
_register("°f", _text("°F"))
_register("°|deg|degree|degrees", lambda a: f"{a[1]}°")
_register("sharp", _text("♯"))
_register("flat", _text("♭"))
_register("natural", _text("♮"))
_register("av jc|avjc|-c|av. j.-c.", _text("av. J.-C."))
_register("ap jc|apjc", _text("apr. J.-C."))
_register("ac|a. c.|a.c.", _text("a. C."))
_register("dc|d. c.|d.c.", _text("d. C."))
_register("1er|premier", _text("1er"))
_register("ier", _text("Ier"))
_register("1re|première", _text("1re"))
_register("ire", _text("Ire"))
_register("er", _text("er"))
_register("re", _text("re"))
_register("me", _text("me"))
_register("m.", _text("M."))
_register("mme", _text("Mme"))
_register("mlle", _text("Mlle"))
_register("dr", _text("Dr"))
_register("mgr", _text("Mgr"))
_register("bc|bce", lambda a: f"{a[1]} BC".strip())
_register("ad|ce", lambda a: f"{a[1]} AD".strip())

_ARABIC = {
    "ألمانية": "الألمانية",
    "إنجليزية": "الإنجليزية",
    "إنج": "الإنجليزية",
    "فرنسية": "الفرنسية",
    "إسبانية": "الإسبانية",
    "إيطالية": "الإيطالية",
    "روسية": "الروسية",
    "لاتينية": "اللاتينية",
    "فارسية": "الفارسية",
    "تركية": "التركية",
    "يونانية": "اليونانية",
    "عبرية": "العبرية",
    "يابانية": "اليابانية",
    "صينية": "الصينية",
    "هولندية": "الهولندية",
}
for _name, _language in _ARABIC.items():
    _register(_name, _around(f"(ب{_language}: ", ")"))

_ORDINAL_NAME = re.compile(r"\d{1,3}(?:e|ers?|res?|ème|nd|nde|st|th|rd)|[ivxlc]{1,7}e(?: siècle)?")
_LANGUAGE_NAME = {
    "ens": "englisch",
    "las": "lateinisch",
    "frs": "französisch",
    "els": "griechisch",
    "grcs": "altgriechisch",
    "its": "italienisch",
    "ess": "spanisch",
    "rus": "russisch",
    "pls": "polnisch",
    "css": "tschechisch",
    "nls": "niederländisch",
    "ars": "arabisch",
    "hes": "hebräisch",
    "jas": "japanisch",
    "svs": "schwedisch",
    "das": "dänisch",
    "pts": "portugiesisch",
    "hus": "ungarisch",
    "tr_s": "türkisch",
    "trs": "türkisch",
    "uks": "ukrainisch",
    "sas": "sanskrit",
}
_SPACES = re.compile(r"[\s_]+")
_FUNCTIONS: dict[str, Callable[[str], str]] = {
    "formatnum": str,
    "lc": str.lower,
    "uc": str.upper,
    "lcfirst": lambda text: text[:1].lower() + text[1:],
    "ucfirst": lambda text: text[:1].upper() + text[1:],
    "padleft": str,
    "nowrap": str,
}
"""Parser functions whose first argument is what is read."""

_known: dict[str, Handler | Literal[False]] = {}
_KNOWN_LIMIT = 100_000


def _find(raw: str) -> Handler | Literal[False]:
    name = _SPACES.sub(" ", raw).strip().lower()
    prefix, colon, rest = name.partition(":")
    if colon and prefix.strip() in TEMPLATE:
        name = rest.strip()
    if name in _HANDLERS:
        return _HANDLERS[name]
    if name.startswith(("lang-", "script/")):
        return _nth(1)
    if name.endswith("範囲"):  # Japanese marks of doubtful passages: 要出典範囲, 疑問点範囲, …
        return _nth(1)
    if name in _LANGUAGE_NAME:
        word = _LANGUAGE_NAME[name]
        return lambda a: f"{word} {a[1]}" if a[1] else word
    if _ORDINAL_NAME.fullmatch(name):
        roman = re.match(r"[ivxlc]+(?=e)", name)
        return _keep_name(roman.group().upper() + name[roman.end() :] if roman else name)
    return False


def expand(content: str) -> str | None:
    """The wikitext that `{{content}}` stands for, arguments already expanded; None where it has no words to read."""
    name, bar, rest = content.partition("|")
    handler = _known.get(name)
    if handler is None:
        if len(_known) >= _KNOWN_LIMIT:
            _known.clear()
        handler = _find(name)
        if len(name) < 100:
            _known[name] = handler
    if handler is False:
        if ":" in name:
            function, _, first = name.strip().partition(":")
            change = _FUNCTIONS.get(function.strip().lower())
            return change(first.strip()) if change else None
        return None
    return handler(Arguments(rest.split("|") if bar else [])) or None
