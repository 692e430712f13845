"""Where sentences end: by the `sentencex` library, with repairs of what it gets wrong in prose.

Before the library sees a text, characters that lead it astray are masked by others of the same length, so that every
offset stays: quotation marks become spaces (it skips whatever stands between two of them, and a page of dialogue would
be one sentence), and the full stop after a word that looks like an abbreviation ("said I. He", "No. He", "for me. Oxen")
becomes an exclamation mark. Then each boundary it finds is moved behind the closing marks, and taken back where the
sentence goes on: before a lower-case letter, after an abbreviation, after an ordinal number ("Karl IV."), before what
tells who spoke ("Stop!" I cried). benchmarks/sentences.py counts the errors with and without this.
"""

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from pathlib import Path

PIECE_CHARACTERS = 1 << 13
"""No longer string goes to the library at once: the time it takes grows faster than the length."""

ABBREVIATIONS = Path(__file__).parent / "abbreviations"
"""A file LANGUAGE.txt for each language that needs one; README.txt says how they are written."""

_LONGEST_WORD = 40
"""Characters looked at before a full stop: no abbreviation is longer."""

_BLANK_LINES = re.compile(r"\n[^\S\n]*\n\s*")
_WIDE_WHITESPACE = "".join(c for c in map(chr, range(128, 0x3001)) if c.isspace())

_DOUBLE_QUOTES = '"“”„‟«»‹›'
_SINGLE_QUOTES = "'’‘‚‛"
_NO_APOSTROPHE = {quote: re.compile(rf"{quote}(?:(?!\w)|(?<!\w{quote}))") for quote in _SINGLE_QUOTES}
_WHOLE_SENTENCE_BRACKETS = {
    bracket: re.compile(rf"""\{bracket}(?:(?<=[.!?…"”’']\s.)|(?<=\n.)|(?<=\A.)|(?<=\A["“].))(?=\W?[^\W\da-z_])""")
    for bracket in "(["
}
_ENGLISH_STARTS = (
    "The|This|That|These|Those|It|Its|He|She|They|Their|We|You|There|Here|When|While|Where|What|Who|Why|How|If|In|On|At"
    "|As|For|From|After|Before|During|Since|Until|Although|Though|Because|But|And|Yet|So|Then|Thus|However|Such|Some"
    "|Many|Most|Several|Other|Another|Both|All|Also|Each|Every|An?"
)
"""English words that are no part of a name: behind an initial, a unit or a symbol (CO2. It, of n. Such) they begin a
sentence."""
_ENGLISH_WORDS = (
    r"(?<= I\.)(?=\s+[A-Z](?!\.))",
    r"(?<=\bNo\.)(?=\s+(?:I\b(?![.,;:)])|[A-Z][a-z'’]))",
    r"(?=\s+(?:I|You|We|He|She|It|That|They|There|What|Who)['’](?:m|ve|ll|s|d|re)\b)",
    rf"(?:(?<=\W[^\Wv]\.)|(?<=\W\w\w\.)|(?<=[A-Z]\d\.))(?=\s(?:{_ENGLISH_STARTS})\s)",
    r"(?<=\Wetc\.)(?=\s+[A-Z][a-z])",
    r"(?<=/\w\.)(?=\s+[A-Z])",
)
"""Full stops that end a sentence though the library doubts it: after I and No that are no initial and no number; before
"I'll", "It's" and others that only begin sentences; after "etc." and units (m/s.) before a capital."""
_FULL_STOP_IN_BRACKET = re.compile(rf"\(([^()\n]{{2,400}}(?<=\w[a-z\d])\.)\)(?=\s(?:{_ENGLISH_STARTS})\s)")
"""The library skips a bracket with the full stop in it: (such as the C-160.) Also."""
_ENDING_DOTS = re.compile(r"\.(?:(?:\.{3,7}|(?: \.){3,7})(?=\s+[A-Z])|\.\.(?=\s+\([A-Z]))")
"""Four dots, which are a full stop and an ellipsis; an ellipsis before a whole sentence in brackets."""

# All are bounded: a run of a million dots or quotes would be read again from each of its characters.
_GAP = re.compile(
    r"""[.!?…]{0,8}(?:(?<=[.!?…])[“‘«‹]{1,2})?["'’”»›)\]」』）】》〉]{0,8}\s*(?:[»”’)\]]{1,8}(?:\s+|\Z))?"""
)
"""From a mark to the next sentence. German closes with “ or «; a mark may stand alone, as in French: « Oui. »"""
_BEFORE_WORD = re.compile(r"""[^\w,;:]{0,64}""")
_NUMBER = re.compile(r"\d|(?:[IVXLCDM]{2,}|[VXLCDM])\b|I(?=[.,;:)])")
_SHILLINGS = re.compile(r"\d{1,2}[sd]\b")
_WHO_SPOKE = re.compile(
    r"""(?:I|(?:(?:Mrs?|Dr|Capt)\.\ )?(?!(?:He|She|It|They|We|You|The|This|That|His|Her|And|But|Then|There)\b)
        [A-Z][\w'’-]{1,20}(?:\ [A-Z][\w'’-]{1,20}){0,2})
    \ (?:almost\ |half\ |then\ |again\ |\w{2,15}ly\ )?
    (?:said|cried|asked|inquired|enquired|replied|answered|exclaimed|shouted|whispered|murmured|muttered|demanded
    |repeated|interrupted|insisted|shrieked|screamed|gasped|groaned|growled|snarled|snapped|roared|yelled|bellowed
    |faltered|stammered|sobbed|ejaculated|remarked|observed|suggested|protested|retorted|says?|cries|asks)\b""",
    re.VERBOSE,
)
"""English alone puts the verb of speaking behind a capital ("Stop!" Jim cried): "cried Jim" begins in lower case."""
_NO_NAME = frozenset(["Not", "Nor", "Neither", "So", "And", "But", "Or", "Am", "Than", "Nay", "Yes", "No", "Do", "Did"])
"""capitalised words before the pronoun I at a sentence's end; before the initial I stands a name"""
_ENGLISH_START = re.compile(rf"(?:{_ENGLISH_STARTS})\b")
_HOUR = re.compile(r"\b[ap]\. ?m\.\Z", re.IGNORECASE)
_OF_THE_HOUR = re.compile(
    r"(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day\b|(?:[ACEMP][SD]?T|GMT|UTC|BST|CES?T|JST)\b"
    r"|(?:Eastern|Central|Mountain|Pacific|Atlantic|Greenwich|Moscow|local)(?: \w{3,8}){0,2} [Tt]ime\b"
)
"""what may stand behind "5 p.m.": a day, a time zone"""

_ORDINAL = re.compile(r"(?:\d{1,3}|[IVXLC]{1,8})\Z")
_WORD = re.compile(r"\w{1,40}")

_CJK_MARKS = "。！？"
_CJK_CLOSING = "」』”’"
_CJK_NUMBER = re.compile(rf"(?<=[{_CJK_MARKS}])\d")
_AFTER_QUOTATION = re.compile(
    # Japanese: particles of quoting and of case, which begin no sentence, but also begin words that do
    r"と(?!ころ|ても|にかく|りあえず|うとう|つぜん|きどき|きに|もかく|もあれ|っさ|たん|はいえ|なり)"
    r"|って|など|なんて|を|である|です(?!が|から)|だった|だと"
    r"|の(?!ち|んび|ろの|どか)|が(?![っらたさや])|は(?![いじったるや])|に(?![やっわこ])|から(?!から|っ)|まで"
    # Chinese: who spoke, up to ten characters before a verb of speaking
    r"|的(?![确確士])"
    r"|(?![没沒无無不谁誰])[^\s\d，。！？；：、“”‘’「」『』]{0,10}?(?:[说說问問喊叫答嚷吼]|(?<!知)道)(?:起来|起來|[道了着著]{0,2})(?:[，。！？：；“「]|\Z)"
)
"""What goes on behind a Chinese or Japanese quotation that ends with a mark of its own."""


def sentence_ends(text: str, language: str, abbreviations: Collection[str] = (), lines: bool = False) -> list[int]:
    """Character offset after each sentence of `text`; the last is its length, an empty text has none.

    `language` is a code such as "en"; one that the library does not know is split by its general rules. After one of
    `abbreviations` ("Abb.", in any case, with or without its last full stop) no sentence ends, as after those in
    pipeline/prose/abbreviations. A sentence takes the whitespace after it along, so that the slices between the offsets
    join to exactly `text`; no slice is only whitespace, unless all of `text` is. A blank line always ends a sentence.
    `lines`: every line is a sentence, and nothing else ends one.
    """
    if lines:
        return _without_blank(text, (match.end() for match in re.finditer(r"\n|\Z", text)))
    from sentencex import segment

    rules = _rules(language, abbreviations if isinstance(abbreviations, frozenset) else frozenset(abbreviations))
    return _without_blank(text, _boundaries(text, rules, lambda piece: segment(language, piece)))


@dataclass(frozen=True)
class _Rules:
    """What is known of a language beyond the library."""

    ending_none: frozenset[str]
    """abbreviations, folded and without spaces and the last full stop: no sentence ends after them"""
    last_parts: frozenset[str]
    """what of them stands behind their last space"""
    before_numbers: frozenset[str]
    """abbreviations only where a number follows"""
    known: frozenset[str]
    """both of these"""
    full_stop: re.Pattern[str] | None
    """full stops after words that the library takes for abbreviations"""
    ordinals_after: frozenset[str] | None
    """words before an ordinal number, which is written with a full stop ("der 2. Weltkrieg"); "*": all are; None: the
    language writes it otherwise"""
    starts: frozenset[str]
    """words that only begin a sentence where they follow a number and a full stop in upper case"""
    english: bool


@lru_cache(maxsize=64)
def _rules(language: str, added: frozenset[str]) -> _Rules:
    code = re.split(r"[-_]", language.lower())[0]
    file = ABBREVIATIONS / f"{code}.txt"
    lines = file.read_text(encoding="utf-8").split("\n") if code.isalpha() and file.is_file() else []
    entries = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    before = [word for entry in entries if entry.startswith("1. ") for word in entry.split()[1:]]
    starts = [word for entry in entries if entry.startswith("^ ") for word in entry.split()[1:]]
    whole = [*added, *(entry for entry in entries if entry[0] not in "!^1" and not entry.endswith(" 1"))]
    folded = [" ".join(entry.split()).casefold().removesuffix(".") for entry in whole if entry.strip()]
    words = _behind_words([entry[1:] for entry in entries if entry[0] == "!"])
    words.extend(_ENGLISH_WORDS if code == "en" else ())
    if starts:
        words.append(rf"(?<=[IVXLC]\.)(?=\s+(?:{'|'.join(map(re.escape, starts))})\s)")
    last_parts = frozenset(entry.split(" ")[-1] for entry in folded)
    numbered = frozenset(entry[:-2].casefold().removesuffix(".") for entry in entries if entry.endswith(" 1"))
    return _Rules(
        frozenset(entry.replace(" ", "") for entry in folded),
        last_parts,
        numbered,
        last_parts | numbered,
        re.compile(rf"\.(?:{'|'.join(words)})") if words else None,
        frozenset(before) if before else None,
        frozenset(starts),
        code == "en",
    )


def _behind_words(words: Iterable[str]) -> list[str]:
    """Patterns of the place behind a space and one of the words, by length: the fewer alternatives, the faster."""
    by_length: dict[int, list[str]] = {}
    for word in words:
        by_length.setdefault(len(word), []).append(rf"(?<={re.escape(word)})")
    return [rf"(?<= .{{{length}}})(?:{'|'.join(found)})" for length, found in by_length.items()]


def _without_blank(text: str, boundaries: Iterable[int]) -> list[int]:
    ends: list[int] = []
    start = 0
    for end in boundaries:
        if end == start:
            continue
        if not text[start].isspace() or not text[start:end].isspace():
            ends.append(end)
        elif ends:
            ends[-1] = end
        start = end
    return ends or ([len(text)] if text else [])


def _boundaries(text: str, rules: _Rules, segment: Callable[[str], Iterable[str]]) -> list[int]:
    masked = _mask(text, rules)
    found: list[int] = []
    start = 0
    for match in _BLANK_LINES.finditer(text):
        found += _paragraph(text, masked, start, match.end(), rules, segment)
        start = match.end()
    return found + _paragraph(text, masked, start, len(text), rules, segment)


def _mask(text: str, rules: _Rules) -> str:
    """The text as the library sees it, of the same length."""
    masked = text
    if not text.isascii():
        # The library fails where a whitespace character of several bytes (U+0085, U+00A0, …) stands between an initial
        # and a period.
        for space in _WIDE_WHITESPACE:
            if space in text:
                masked = masked.replace(space, " ")
    if "..." in text or ". . ." in text:
        masked = _ENDING_DOTS.sub(lambda dots: "!".rjust(len(dots.group())), masked)
    for bracket, pattern in _WHOLE_SENTENCE_BRACKETS.items():
        if bracket in text:
            masked = pattern.sub(" ", masked)
    if rules.english and ".)" in text:
        masked = _FULL_STOP_IN_BRACKET.sub(r" \1!", masked)
    if any(mark in text for mark in _CJK_MARKS):
        masked = _CJK_NUMBER.sub("々", masked)  # the library ends no sentence before a digit without a space
    else:  # in Chinese and Japanese they stay: no upper case shows that a sentence inside has ended
        for quote in _DOUBLE_QUOTES[:1] if text.isascii() else _DOUBLE_QUOTES:
            masked = masked.replace(quote, " ")
        for quote, pattern in _NO_APOSTROPHE.items():
            if quote in masked:
                masked = pattern.sub(" ", masked)
    return rules.full_stop.sub("!", masked) if rules.full_stop else masked


def _paragraph(
    text: str, masked: str, start: int, stop: int, rules: _Rules, segment: Callable[[str], Iterable[str]]
) -> list[int]:
    """Offsets of the ends of the sentences in text[start:stop]; the last is `stop`."""
    if start == stop:
        return []
    ends = []
    before = start
    for end in _library_ends(masked, start, stop, segment):
        if text[end - 1] == " " != masked[end - 2] and end - start > 1 and text[end].isalpha():
            mark = end - 1  # nearly always: a mark, a space, a word
        else:
            from_ = max(start, end - 64)
            mark = from_ + len(masked[from_:end].rstrip())
            gap = _GAP.match(text, mark, stop)
            end = gap.end() if gap else end
        if before < end < stop and not _goes_on(text, start, mark, end, stop, rules):
            ends.append(end)
            before = end
    ends.append(stop)
    return ends


def _library_ends(masked: str, start: int, stop: int, segment: Callable[[str], Iterable[str]]) -> list[int]:
    """Where the library ends a sentence before `stop`."""
    ends: list[int] = []
    if stop - start <= PIECE_CHARACTERS:
        ends.extend(accumulate(map(len, segment(masked[start:stop])), initial=start))
        return ends[1:-1] if ends[-1] == stop else []
    while start < stop:
        piece = masked[start : min(stop, start + PIECE_CHARACTERS)]
        lengths = [len(sentence) for sentence in segment(piece)]
        if sum(lengths) != len(piece):
            lengths = [len(piece)]  # the library lost a character: better one long sentence than a wrong offset
        last = start + len(piece) == stop
        del lengths[-1]  # what may go on behind the piece begins the next one
        for length in lengths:
            start += length
            ends.append(start)
        if last:
            break
        if not lengths:  # a sentence longer than a piece: on with its last word, whose full stop may be the end
            cut = piece.rfind(" ", len(piece) - _LONGEST_WORD, len(piece) - 1)
            start += cut if cut > 0 else len(piece)
    return ends


def _goes_on(text: str, start: int, mark: int, end: int, stop: int, rules: _Rules) -> bool:
    """Whether the sentence goes on at `end`, though a mark that may end one stands before `mark`."""
    following = text[end]
    last = text[mark - 1]
    if end == mark and last == "." and "A" <= text[mark - 2] <= "Z" and following.isascii() and following.isalnum():
        return True  # K.I.T.T. between Japanese characters
    if not following.isupper():
        closing = text[end - 1]
        if closing in _CJK_CLOSING and (
            _AFTER_QUOTATION.match(text, end, stop) or (closing == "』" and last in "!?！？")  # 『BASTARD!!』, a title
        ):
            return True
        found = _BEFORE_WORD.match(text, end, stop)
        word = found.end() if found else end
        if word == stop or text[word].islower() or text[word] in ",;:":
            return True
        if word - end >= 64 or _SHILLINGS.match(text, end):
            return True  # a long run of punctuation; £3. 10s.
    if last == ".":
        if _abbreviated(text, start, mark, end, rules):
            return True
        letter = text[mark - 2]
        if letter.isupper() and text[max(0, mark - 4) : mark - 2] == ".-":
            return True  # J.-J. Rousseau
        if rules.english:
            return letter in "mMI" and _english_goes_on(text, start, mark, end, stop)
        return rules.ordinals_after is not None and end > mark and _ordinal(text, start, mark, end, stop, rules)
    return (
        rules.english
        and last in "!?"
        and end - mark > 1
        and text[mark] in "\"'”’"
        and _WHO_SPOKE.match(text, end, stop) is not None
    )


def _abbreviated(text: str, start: int, mark: int, end: int, rules: _Rules) -> bool:
    from_ = mark - _LONGEST_WORD
    if from_ < start:
        from_ = start
    space = text.rfind(" ", from_, mark - 1)
    word = text[from_ if space < 0 else space + 1 : mark - 1]
    if word.isalpha() and word.casefold() not in rules.known:
        return False
    window = text[from_ : mark - 1]
    words = window.split()
    if not words or window[-1].isspace():
        return False
    last = words[-1].lstrip("\"'“‘„«»‹([{-–—*_").casefold()
    if last in rules.before_numbers:
        return _NUMBER.match(text, end) is not None
    if last not in rules.last_parts:
        return False
    joined = last
    if joined in rules.ending_none:
        return True
    for word in words[-2:-5:-1]:
        joined = word.lstrip("\"'“‘„«»‹([{-–—*_").casefold() + joined
        if joined in rules.ending_none:
            return True
    return False


def _ordinal(text: str, start: int, mark: int, end: int, stop: int, rules: _Rules) -> bool:
    """Whether the full stop before `mark` makes a number an ordinal: der 2. Weltkrieg, Karl IV. Lucemburský."""
    words = text[max(start, mark - _LONGEST_WORD) : mark - 1].split()
    last = words[-1].lstrip("\"'„»«([-–—") if words else ""
    if not _ORDINAL.match(last):
        return False
    before = words[-2].lstrip("\"'„»«([-–—").lower() if len(words) > 1 else ""
    if rules.ordinals_after and before in rules.ordinals_after:
        return True
    following = _WORD.match(text, end, stop)
    if following is None or following.group() in rules.starts:
        return False
    return not last.isdigit() or "*" in (rules.ordinals_after or ())


def _english_goes_on(text: str, start: int, mark: int, end: int, stop: int) -> bool:
    """Whether "I." is an initial (Samuel I. Hayakawa), and whether a day or time zone follows the hour."""
    if text[mark - 2] in "mM":
        return _HOUR.search(text[max(start, mark - 6) : mark]) is not None and bool(_OF_THE_HOUR.match(text, end, stop))
    if text[max(start, mark - 3) : mark] != " I." or _ENGLISH_START.match(text, end, stop):
        return False
    words = text[max(start, mark - _LONGEST_WORD) : mark - 3].split()
    return bool(words) and words[-1][0].isupper() and words[-1] not in _NO_NAME and words[-1][-1] not in ",;:!?"
