# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""`pipeline.wikitext.prose` compiled: the same text from the same markup, several times as fast.

Every function here is the twin of one in `pipeline.wikitext`, which is the reference: what is rare (links to files,
entities, tags inside a paragraph, headings) is handed to the functions there, so that only the loops over characters
stand twice. Tests hold the two equal on real dumps, on cases, and on generated markup.
"""

from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from libc.string cimport memcpy

ctypedef unsigned int Character  # Py_UCS4, which Cython would turn into a str

cdef extern from "Python.h":
    Character *PyUnicode_AsUCS4(object text, Character *buffer, Py_ssize_t size, int copy_null) except NULL
    object PyUnicode_FromKindAndData(int kind, const void *data, Py_ssize_t size)
    bint Py_UNICODE_ISSPACE(Character character)
    bint Py_UNICODE_ISALNUM(Character character)
    bint Py_UNICODE_ISDIGIT(Character character)

cdef extern from *:
    """
    #ifndef SOURCES
    #define SOURCES ""
    #endif
    #include <wchar.h>

    /* The next c at or after i, or n. The C library's search of wide characters takes several at a time. */
    static inline Py_ssize_t next_of(const unsigned int *s, Py_ssize_t i, Py_ssize_t n, unsigned int c) {
    #if WCHAR_MAX > 0xFFFF
        const wchar_t *found = i < n ? wmemchr((const wchar_t *) s + i, (wchar_t) c, (size_t) (n - i)) : NULL;
        return found ? found - (const wchar_t *) s : n;
    #else
        while (i < n && s[i] != c) i++;
        return i;
    #endif
    }

    /* Loops without a way out, which compilers turn into several characters at a time. */
    static inline int all_plain(const unsigned int *s, Py_ssize_t n) {
        unsigned int odd = 0;
        for (Py_ssize_t i = 0; i < n; i++)
            odd |= ((s[i] < 32) & (s[i] != 9) & (s[i] != 10)) | (s[i] == 127) | (s[i] - 0xFDD0 < 32);
        return !odd;
    }

    static inline int has_double_space(const unsigned int *s, Py_ssize_t n) {
        unsigned int found = 0;
        for (Py_ssize_t i = 0; i + 1 < n; i++)
            found |= (s[i] == 32) & (s[i + 1] == 32);
        return found;
    }
    """
    const char *_SOURCES "SOURCES"
    Py_ssize_t next_of(const Character *s, Py_ssize_t i, Py_ssize_t n, Character c)
    bint all_plain(const Character *s, Py_ssize_t n)
    bint has_double_space(const Character *s, Py_ssize_t n)

from pipeline import wikitext as python

SOURCES = (<bytes> _SOURCES).decode("ascii")
"""Digest of what this was built from; see setup.py."""

cdef enum:
    HOLE = 1
    CUT = 2
    LINK = 0
    BRACES = 1
    STACK = 256  # two hundred at most: a run of openers is pushed whole while fewer than a hundred are open
    NAMES = 128  # of tags with opaque content; about seventy are known
    LARGE = 1 << 22  # characters: scratch of a larger page is given back


cdef class Buffer:
    """Characters that grow."""

    cdef Character *at
    cdef Py_ssize_t length, room

    def __cinit__(self, Py_ssize_t room):
        self.room = room + 64
        self.length = 0
        self.at = <Character *> PyMem_Malloc(self.room * sizeof(Character))
        if self.at == NULL:
            raise MemoryError()

    def __dealloc__(self):
        PyMem_Free(self.at)

    cdef int reserve(self, Py_ssize_t more) except -1:
        if self.length + more > self.room:
            grown = <Character *> PyMem_Realloc(self.at, (2 * self.room + more) * sizeof(Character))
            if grown == NULL:
                raise MemoryError()
            self.at = grown
            self.room = 2 * self.room + more
        return 0

    cdef inline int put(self, Character character) except -1:
        if self.length >= self.room:
            self.reserve(1)
        self.at[self.length] = character
        self.length += 1
        return 0

    cdef inline int put_range(self, const Character *start, Py_ssize_t count) except -1:
        if count > 0:
            self.reserve(count)
            memcpy(self.at + self.length, start, count * sizeof(Character))
            self.length += count
        return 0

    cdef int put_text(self, str text) except -1:
        cdef Py_ssize_t count = len(text)
        if count:
            self.reserve(count)
            PyUnicode_AsUCS4(text, self.at + self.length, self.room - self.length, 0)
            self.length += count
        return 0


cdef inline str text_of(const Character *start, Py_ssize_t count):
    return PyUnicode_FromKindAndData(4, start, count) if count > 0 else ""


cdef inline Character lower(Character c):
    return c + 32 if 65 <= c <= 90 else c


cdef inline bint is_ascii_space(Character c):
    return c == 32 or 9 <= c <= 13


cdef list _spare = []  # scratch of pages before: fresh memory for each page costs a quarter of the time


cdef class Scratch:
    """The buffers that one page needs at a time."""

    cdef Buffer first, second
    cdef Lines lines

    def __cinit__(self):
        self.first, self.second = Buffer(1 << 16), Buffer(1 << 16)
        self.lines = Lines()


def prose(str text, names, rules):
    """See `pipeline.wikitext.prose`."""
    cdef Scratch scratch = _spare.pop() if _spare else Scratch()
    cdef Buffer first = scratch.first
    cdef Buffer second = scratch.second
    first.length = second.length = 0
    first.put_text(text)
    if "__DISAMBIG__" in text or is_marked(first, names, names.seen):
        _spare.append(scratch)
        return ""
    if not all_plain(first.at, first.length):
        text = python._plain(text)
        first.length = 0
        first.put_text(text)
    cut_tags(first, second)
    first.length = 0
    cut_nested(second, first, names, rules)
    if has_blocks(first):
        text = python._cut_blocks(text_of(first.at, first.length))
        first.length = 0
        first.put_text(text)
    second.length = 0
    text = scratch.lines.all_of(first, second, names.language)
    if first.room <= LARGE:
        _spare.append(scratch)
    return text


cdef bint is_marked(Buffer text, names, dict seen) except -1:
    """`pipeline.wikitext._is_marked`, but for the switch."""
    cdef const Character *s = text.at
    cdef Py_ssize_t n = text.length, i = 0, j, end
    while True:
        i = next_of(s, i, n, 123)
        if i + 1 >= n:
            return False
        if s[i + 1] != 123:
            i += 2
            continue
        j = i + 2
        while j < n and Py_UNICODE_ISSPACE(s[j]):
            j += 1
        end = j
        while end < n and end < j + 80 and not is_bracket(s[end]) and s[end] != 124 and s[end] != 60 and s[end] != 10:
            end += 1
        if end < j + 2:
            i += 1
            continue
        name = text_of(s + j, end - j)
        known = seen.get(name)
        if known is None:
            known = python._is_mark(name, names)
        if known:
            return True
        i = end


# ── tags whose content is no wikitext ────────────────────────────────────────────────────────────────────────────────

cdef dict _opaque_ids = {name: index for index, name in enumerate(python._OPAQUE_NAMES)}
cdef list _opaque_names = list(python._OPAQUE_NAMES)
cdef int _ref = _opaque_ids["ref"]
cdef int _nowiki = _opaque_ids["nowiki"]
cdef bint _kept[NAMES]
for _index, _name in enumerate(_opaque_names):
    _kept[_index] = _name in python._OPAQUE_KEPT
assert len(_opaque_names) <= NAMES


cdef int opaque_name(const Character *s, Py_ssize_t i, Py_ssize_t n, Py_ssize_t *end):
    """Index of the opaque tag whose name begins at i, and where the name ends; -1 for any other."""
    cdef char name[24]
    cdef int count = 0
    while i < n and count < 24:
        c = lower(s[i])
        if not (97 <= c <= 122 or c == 45):
            break
        name[count] = <char> c
        count += 1
        i += 1
    if count < 2 or count >= 24 or i >= n or not (is_ascii_space(s[i]) or s[i] == 47 or s[i] == 62):
        return -1
    end[0] = i
    found = _opaque_ids.get((<bytes> name[:count]).decode("ascii"))
    return -1 if found is None else <int> found


cdef Py_ssize_t tag_end(const Character *s, Py_ssize_t i, Py_ssize_t n):
    """Where the tag ends whose attributes begin at i; -1 if it does not."""
    cdef Py_ssize_t j
    while i < n:
        if s[i] == 62:
            return i + 1
        if s[i] == 60:
            return -1
        if s[i] == 34:
            j = i + 1
            while j < n and s[j] != 34 and s[j] != 60 and s[j] != 10:
                j += 1
            if j >= n or s[j] != 34:
                return -1
            i = j
        i += 1
    return -1


cdef Py_ssize_t find_closer(const Character *s, Py_ssize_t i, Py_ssize_t n, str name, Py_ssize_t *end):
    """Start and end of the next `</name >` from i; -1 if there is none."""
    cdef Py_ssize_t j, k
    cdef Py_ssize_t length = len(name)
    while True:
        i = next_of(s, i, n, 60)
        if i + 2 + length >= n:
            return -1
        if s[i + 1] == 47:
            j = i + 2
            k = 0
            while k < length and lower(s[j + k]) == <Character> name[k]:
                k += 1
            if k == length:
                j += length
                while j < n and is_ascii_space(s[j]):
                    j += 1
                if j < n and s[j] == 62:
                    end[0] = j + 1
                    return i
        i += 1


cdef Py_ssize_t find_open_ref(const Character *s, Py_ssize_t i, Py_ssize_t n):
    """Start of the next `<ref>` or `<ref name=x>` before n; -1 if there is none."""
    cdef Py_ssize_t j
    while i + 4 < n:
        if s[i] == 60 and lower(s[i + 1]) == 114 and lower(s[i + 2]) == 101 and lower(s[i + 3]) == 102:
            j = i + 4
            if is_ascii_space(s[j]):
                j += 1
                while j < n and s[j] != 60 and s[j] != 62 and s[j] != 47:
                    j += 1
            if j < n and s[j] == 62:
                return i
        i += 1
    return -1


cdef int cut_tags(Buffer source, Buffer out) except -1:
    """`pipeline.wikitext._cut_tags`."""
    cdef const Character *s = source.at
    cdef Py_ssize_t n = source.length
    cdef Py_ssize_t at = 0, i, start, after, inside, end, line_end = -1, line_from = -1, other
    cdef Py_ssize_t starts[NAMES]
    cdef Py_ssize_t ends[NAMES]
    cdef bint known[NAMES]
    cdef int name
    for i in range(NAMES):
        known[i] = False
    while True:
        i = at
        name = -1
        while True:
            i = next_of(s, i, n, 60)
            if i >= n:
                return out.put_range(s + at, n - at)
            if i + 3 < n and s[i + 1] == 33 and s[i + 2] == 45 and s[i + 3] == 45:
                after = i + 4
                break
            name = opaque_name(s, i + 1, n, &after)
            if name >= 0:
                break
            i += 1
        start = i
        out.put_range(s + at, start - at)
        if name < 0:
            end = next_of(s, after + 2, n, 62)
            while end < n and not (s[end - 1] == 45 and s[end - 2] == 45):
                end = next_of(s, end + 1, n, 62)
            if end >= n:
                return 0
            at = end + 1
            if (start == 0 or s[start - 1] == 10) and at < n and s[at] == 10:
                at += 1
            elif start == 0 or s[start - 1] == 32 or s[start - 1] == 10 or at >= n or s[at] == 32 or s[at] == 10:
                out.put(HOLE)
            continue
        inside = tag_end(s, after, n)
        if inside < 0:
            inside = after
            while inside < n and inside < after + 500 and s[inside] != 62:
                inside += 1
            if inside >= n or inside >= after + 500:
                at = after
                continue
            inside += 1
        i = inside - 2
        while i > after and Py_UNICODE_ISSPACE(s[i]):
            i -= 1
        if i >= after and s[i] == 47:
            if name != _nowiki:
                out.put(HOLE)
            at = inside
            continue
        if not known[name] or -1 < starts[name] < inside:
            starts[name] = find_closer(s, inside, n, _opaque_names[name], &ends[name])
            known[name] = True
        end, at = starts[name], ends[name] if starts[name] >= 0 else inside
        if name == _ref:
            if not line_from <= inside <= line_end:
                line_from = inside
                line_end = next_of(s, inside, n, 10)
            if end < 0:
                at = line_end
            elif end > line_end:  # a reference over several lines, or one that was never closed?
                other = find_open_ref(s, inside, end)
                if other >= 0:
                    end = -1
                    at = min(line_end, other)
        if end >= 0 and _kept[name]:
            out.put_text(python._opaque(
                _opaque_names[name], text_of(s + after, inside - after), text_of(s + inside, end - inside)
            ))
        else:
            out.put(HOLE)


# ── templates and links ──────────────────────────────────────────────────────────────────────────────────────────────

cdef inline bint is_bracket(Character c):
    return (c | 32) == 123 or (c | 32) == 125


cdef inline Py_ssize_t label_end(const Character *s, Py_ssize_t i, Py_ssize_t n):
    """The next bracket, bar or line break from i."""
    while i < n and not is_bracket(s[i]) and s[i] != 124 and s[i] != 10:
        i += 1
    return i


cdef int put_link(Buffer out, const Character *s, Py_ssize_t start, Py_ssize_t bar, Py_ssize_t end, names) except -1:
    """The text of a link without brackets inside; bar -1: it has no label."""
    cdef Py_ssize_t first = start, last = end if bar < 0 else bar, i
    cdef bint special = False
    for i in range(first, last):
        if s[i] == 58 or (bar < 0 and (s[i] == 35 or s[i] == 95)):
            special = True
            break
    if bar >= 0 and not special:
        for i in range(bar + 1, end):
            if not Py_UNICODE_ISSPACE(s[i]):
                return out.put_range(s + bar + 1, end - bar - 1)
        special = True
    if not special:
        while first < last and Py_UNICODE_ISSPACE(s[first]):
            first += 1
        while last > first and Py_UNICODE_ISSPACE(s[last - 1]):
            last -= 1
        if first < last:
            return out.put_range(s + first, last - first)
    return out.put_text(python._link(text_of(s + start, end - start), names))


cdef int put_template(Buffer out, const Character *s, Py_ssize_t start, Py_ssize_t end, rules, dict known) except -1:
    """The text of a template without brackets inside; `known` says of most names at once that they have no words."""
    cdef Py_ssize_t bar = start
    while bar < end and s[bar] != 124 and s[bar] != 58:
        bar += 1
    if (bar == end or s[bar] == 124) and known.get(text_of(s + start, bar - start)) is False:
        return out.put(HOLE)
    return put_shown(out, rules.expand(text_of(s + start, end - start)) or None)


cdef int put_shown(Buffer out, str value) except -1:
    """`pipeline.wikitext._standing`, or a hole."""
    if value is None:
        return out.put(HOLE)
    out.put_text(value)
    return out.put(HOLE) if value.endswith("\n") else 0


cdef int cut_nested(Buffer source, Buffer out, names, rules) except -1:
    """`pipeline.wikitext._cut_nested`."""
    cdef const Character *s = source.at
    cdef Py_ssize_t n = source.length, at = 0, i = 0, j, k, end
    cdef int kinds[STACK]
    cdef Py_ssize_t offsets[STACK]
    cdef Py_ssize_t counts[STACK]
    cdef int depth = 0, braces_open = 0, used
    cdef Py_ssize_t too_deep = 0, count, ignored, opened, offset
    cdef Character c
    cdef str content
    cdef dict without_words = rules.known
    while i < n:
        c = s[i]
        if not is_bracket(c) or i + 1 >= n or s[i + 1] != c:
            i += 1
            continue
        if c == 91:
            j = label_end(s, i + 2, n)
            if j > i + 2 and j < n:
                end = j
                if s[j] == 124:
                    end = label_end(s, j + 1, n)
                    if end == j + 1:
                        end = n
                if end + 1 < n and s[end] == 93 and s[end + 1] == 93 and (end + 2 >= n or s[end + 2] != 93):
                    out.put_range(s + at, i - at)
                    put_link(out, s, i + 2, j if j < end else -1, end, names)
                    i = at = end + 2
                    continue
        elif c == 123:
            j = i + 2
            while j < n and not is_bracket(s[j]):
                j += 1
            if j > i + 2 and j + 1 < n and s[j] == 125 and s[j + 1] == 125 and (j + 2 >= n or s[j + 2] != 125):
                out.put_range(s + at, i - at)
                put_template(out, s, i + 2, j, rules, without_words)
                i = at = j + 2
                continue
        k = i + 2
        while k < n and s[k] == c:
            k += 1
        out.put_range(s + at, i - at)
        count = k - i
        i = at = k
        if c == 91 or c == 123:
            if depth >= python._MAX_DEPTH:
                too_deep += count // 2
            elif c == 91:
                if count % 2:
                    out.put(91)
                for j in range(min(count // 2, <Py_ssize_t> python._MAX_DEPTH)):
                    kinds[depth], offsets[depth], counts[depth] = LINK, out.length, 2
                    depth += 1
            else:
                kinds[depth], offsets[depth], counts[depth] = BRACES, out.length, count
                depth += 1
                braces_open += 1
            continue
        ignored = min(too_deep, count // 2)
        too_deep -= ignored
        count -= 2 * ignored
        if c == 93:
            while count >= 2 and depth and kinds[depth - 1] == LINK:
                depth -= 1
                offset = offsets[depth]
                content = text_of(out.at + offset, out.length - offset)
                out.length = offset
                if count % 2 and content.count("[") > content.count("]"):
                    content += "]"
                    count -= 1
                out.put_text(python._link(content, names))
                count -= 2
            if count == 1:
                out.put(93)
        else:
            while count >= 2 and braces_open:
                depth -= 1
                if kinds[depth] == LINK:
                    continue
                offset, opened = offsets[depth], counts[depth]
                used = 3 if opened >= 3 and count >= 3 else 2
                content = text_of(out.at + offset, out.length - offset)
                out.length = offset
                value = python._parameter(content) if used == 3 else rules.expand(content)
                count -= used
                opened -= used
                if opened == 1:
                    out.put(123)
                if opened >= 2:
                    kinds[depth], offsets[depth], counts[depth] = BRACES, out.length, opened
                    depth += 1
                else:
                    braces_open -= 1
                put_shown(out, value)
            if count == 1:
                out.put(125)
    out.put_range(s + at, n - at)
    if depth:
        mark_unclosed(out, kinds, offsets, depth, names)
    return 0


cdef int mark_unclosed(Buffer out, int *kinds, Py_ssize_t *offsets, int depth, names) except -1:
    """Put CUT where templates and links to files begin that are never closed."""
    cdef Buffer marked = Buffer(out.length + depth)
    cdef Py_ssize_t at = 0
    cdef int each
    for each in range(depth):
        following = text_of(out.at + offsets[each], min(<Py_ssize_t> python._LONGEST_PREFIX, out.length - offsets[each]))
        if kinds[each] == BRACES or python._is_file(following, names):
            marked.put_range(out.at + at, offsets[each] - at)
            marked.put(CUT)
            at = offsets[each]
    marked.put_range(out.at + at, out.length - at)
    out.length = 0
    return out.put_range(marked.at, marked.length)


# ── blocks, lines, paragraphs ────────────────────────────────────────────────────────────────────────────────────────

cdef frozenset _blocks = frozenset(python._BLOCK_NAMES)
cdef frozenset _breaks = frozenset(python._BREAK_NAMES)


cdef Py_ssize_t names_tag(const Character *s, Py_ssize_t i, Py_ssize_t n, frozenset wanted):
    """Where the name ends if the `<` at i begins a tag of these names, opening or closing; else 0."""
    cdef char name[16]
    cdef int count = 0
    i += 1
    if i < n and s[i] == 47:
        i += 1
    while i < n and count < 16:
        c = lower(s[i])
        if not (97 <= c <= 122 or 48 <= c <= 57):
            break
        name[count] = <char> c
        count += 1
        i += 1
    if count == 0 or count >= 16 or (i < n and s[i] == 95):
        return 0
    return i if (<bytes> name[:count]).decode("ascii") in wanted else 0


cdef Py_ssize_t break_end(const Character *s, Py_ssize_t i, Py_ssize_t n):
    """Where the tag ends that ends a line and begins at i; 0 for any other."""
    i = names_tag(s, i, n, _breaks)
    if i:
        while i < n and s[i] != 60 and s[i] != 62:
            i += 1
        if i < n and s[i] == 62:
            return i + 1
    return 0


cdef bint has_blocks(Buffer text):
    """Whether there is a language variant, or a tag of an HTML block."""
    cdef Py_ssize_t n = text.length
    cdef Py_ssize_t i = next_of(text.at, 0, n, 60)
    while i < n:
        if names_tag(text.at, i, n, _blocks):
            return True
        i = next_of(text.at, i + 1, n, 60)
    i = next_of(text.at, 1, n, 123)
    while i < n:
        if text.at[i - 1] == 45:
            return True
        i = next_of(text.at, i + 1, n, 123)
    return False


cdef inline bint is_cjk(Character c):
    return c >= 0x3000 and (c <= 0x30FF or 0x3400 <= c <= 0x9FFF or 0xF900 <= c <= 0xFAFF or 0xFF00 <= c <= 0xFFEF)


cdef inline bint is_margin(Character c):
    return c == 32 or c == 9 or c == 0xA0 or c == HOLE


cdef class Lines:
    """`pipeline.wikitext._paragraphs` and `_inline`: takes lines, gathers paragraphs, and the text of the page."""

    cdef Buffer gathered, clean, closed, starts, result
    cdef Py_ssize_t tables
    cdef int dropped_level
    cdef bint began
    cdef Character last
    cdef str language

    def __cinit__(self):
        self.gathered, self.clean, self.closed, self.starts = Buffer(4096), Buffer(4096), Buffer(4096), Buffer(64)

    cdef str all_of(self, Buffer text, Buffer result, str language):
        """The paragraphs of `text`, joined; `result` is scratch."""
        cdef Py_ssize_t start = 0, end
        self.result = result
        self.language = language
        self.tables = self.dropped_level = 0
        self.began = False
        self.last = 0
        self.gathered.length = 0
        while start <= text.length:
            end = next_of(text.at, start, text.length, 10)
            self.take(text.at + start, end - start, True)
            start = end + 1
        self.finish()
        return text_of(self.result.at, self.result.length)

    cdef int take(self, const Character *line, Py_ssize_t n, bint whole) except -1:
        """One line; whole: it was not yet split at block tags."""
        cdef Py_ssize_t first = 0, last, i
        cdef Character mark
        n = next_of(line, 0, n, CUT)
        while first < n and is_margin(line[first]):
            first += 1
        last = n
        while last > first and is_margin(line[last - 1]):
            last -= 1
        if first == last:
            return self.finish()
        mark = line[first]
        if mark == 61 and line[last - 1] == 61 and last - first > 2:
            level, title = python._heading(text_of(line + first, last - first))
            if level <= 2:
                self.tables = 0
            if not self.tables:
                if level <= self.dropped_level:
                    self.dropped_level = 0
                if not self.dropped_level and python.words.is_appendix(title, level, self.language):
                    self.dropped_level = level
            return self.finish()
        i = first
        if mark in (58, 42, 35, 59):
            while i < last and (line[i] in (58, 42, 35, 59, 32)):
                i += 1
        if i + 1 < last and line[i] == 123 and line[i + 1] == 124:
            self.tables += 1
            return self.finish()
        if self.tables:
            if mark == 124 and first + 1 < last and line[first + 1] == 125:
                self.tables -= 1
            return self.finish()
        if self.dropped_level or mark in (42, 35, 58, 59, 124):
            return self.finish()
        if mark == 33 and python._is_header_row(text_of(line + first, last - first)):
            return self.finish()
        i = next_of(line, 0, n, 60) if whole else n
        while i < n:
            if break_end(line, i, n):
                return self.take_parts(line, n)
            i = next_of(line, i + 1, n, 60)
        if line[0] == 32 and not python._is_prose(text_of(line + first, last - first)):
            return self.finish()
        if last - first >= 4 and mark == 45 and line[first + 1] == 45 and line[first + 2] == 45 and line[first + 3] == 45:
            while first < last and line[first] == 45:
                first += 1
            line += first
            n = last - first
        i = next_of(line, 0, n, 39)
        while i + 2 < n:
            if line[i + 1] == 39 and line[i + 2] == 39:
                return self.gather_quoted(line, n)
            i = next_of(line, i + 1, n, 39)
        return self.gather(line, n)

    cdef int take_parts(self, const Character *line, Py_ssize_t n) except -1:
        """The parts of a line between block tags, each a paragraph of its own."""
        cdef Py_ssize_t start = 0, i = 0, end, first, last
        while i <= n:
            end = i if i == n else break_end(line, i, n) if line[i] == 60 else 0
            if end or i == n:
                first, last = start, i
                while first < last and (line[first] == 32 or line[first] == 9):
                    first += 1
                while last > first and (line[last - 1] == 32 or line[last - 1] == 9):
                    last -= 1
                self.take(line + first, last - first, False)
                if i < n:
                    self.finish()
                    start = i = end
                    continue
            i += 1
        return 0

    cdef int gather_quoted(self, const Character *line, Py_ssize_t n) except -1:
        """A line with bold text: odd numbers of both kinds of quotes need MediaWiki's rule."""
        cdef Py_ssize_t i = 0, size, bold = 0, italic = 0
        cdef Buffer copied
        while i < n:
            size = 0
            while i < n and line[i] == 39:
                size += 1
                i += 1
            if 3 <= size <= 4 or size >= 5:
                bold += 1
            if size == 2 or size >= 5:
                italic += 1
            i += 1
        if bold % 2 == 0 or italic % 2 == 0:
            return self.gather(line, n)
        text = python._apostrophes(text_of(line, n))
        copied = Buffer(len(text))
        copied.put_text(text)
        return self.gather(copied.at, copied.length)

    cdef int gather(self, const Character *line, Py_ssize_t n) except -1:
        """Add a line to the paragraph."""
        while n and (line[0] == 32 or line[0] == 9):
            line += 1
            n -= 1
        while n and (line[n - 1] == 32 or line[n - 1] == 9):
            n -= 1
        if self.began and not (n and is_cjk(self.last) and is_cjk(line[0])):
            self.gathered.put(32)
        self.gathered.put_range(line, n)
        self.began = True
        self.last = line[n - 1] if n else 0
        return 0

    cdef int finish(self) except -1:
        """End the paragraph: its inline markup is stripped and it joins the result."""
        if not self.began:
            return 0
        self.began = False
        try:
            return self.inline(self.gathered.at, self.gathered.length)
        finally:
            self.gathered.length = 0

    cdef int inline(self, const Character *s, Py_ssize_t n) except -1:
        """`pipeline.wikitext._inline`; a paragraph with external links, literal text or hostile markup is done there."""
        cdef Py_ssize_t i = 0, j
        cdef Character c
        cdef bint holes = False
        cdef Buffer clean = self.clean
        clean.length = 0
        clean.reserve(n)
        while i < n:
            c = s[i]
            if c >= 63 and c != 91 and c != 95 and c < 0xA0:
                clean.at[clean.length] = c
                clean.length += 1
            elif c == 39:
                j = i + 1
                while j < n and s[j] == 39:
                    j += 1
                if j - i == 1 or j - i == 4 or j - i == 6:
                    clean.put(39)
                i = j
                continue
            elif c == 38:
                j = i + 1
                while j < n and (48 <= s[j] <= 57 or 97 <= lower(s[j]) <= 122 or s[j] == 35):
                    j += 1
                if j < n and (s[j] == 60 or s[j] == 39):
                    return self.append_text(python._inline(text_of(s, n)))
                if j < n and s[j] == 59 and j - i < 34:
                    if not self.put_decoded(text_of(s + i, j + 1 - i)):
                        return self.append_text(python._inline(text_of(s, n)))
                    i = j + 1
                    continue
                clean.put(c)
            elif c == 60:
                if i + 1 < n and s[i + 1] == 39:
                    return self.append_text(python._inline(text_of(s, n)))
                if i + 1 < n and (s[i + 1] == 47 or 97 <= lower(s[i + 1]) <= 122):
                    j = i + 1
                    while j < n and s[j] != 60 and s[j] != 62 and s[j] != 91 and s[j] != 38:
                        if s[j] == 39 and j + 1 < n and s[j + 1] == 39:
                            break
                        j += 1
                    if j >= n or s[j] != 62 or j - i > 300:
                        return self.append_text(python._inline(text_of(s, n)))
                    shown = tag_shown(text_of(s + i, j + 1 - i))
                    if shown is not None:
                        clean.put_text(shown)
                        i = j + 1
                        continue
                clean.put(c)
            elif c == 91:
                j = i + 1
                while j < n and (97 <= lower(s[j]) <= 122):
                    j += 1
                if j < n and (s[j] == 58 or (j == i + 1 and s[j] == 47)):
                    return self.append_text(python._inline(text_of(s, n)))
                clean.put(c)
            elif (c == 95 and i + 1 < n and s[i + 1] == 95) or 0xFDD0 <= c <= 0xFDEF:
                return self.append_text(python._inline(text_of(s, n)))
            elif c == HOLE:
                holes = True
                clean.put(c)
            else:
                put_plain(clean, c)
            i += 1
        if holes:
            self.close_holes(clean)
            return self.append(self.closed.at, self.closed.length)
        return self.append(clean.at, clean.length)

    cdef bint put_decoded(self, str entity) except -1:
        """Put the character of an entity; False where what it stands for needs more care."""
        decoded = _entities.get(entity)
        if decoded is None:
            if len(_entities) >= CACHED:
                _entities.clear()
            decoded = _entities[entity] = python._decoded(entity)
        for character in decoded:
            if 0xFDD0 <= <Py_UCS4> character <= 0xFDEF:
                return False
            put_plain(self.clean, <Py_UCS4> character)
        return True

    cdef int close_holes(self, Buffer text) except -1:
        """`pipeline.wikitext._close_holes` into `closed`: `begin` is where its `left` begins, `starts` where each piece
        of its `done` does."""
        cdef Buffer out = self.closed
        cdef Buffer starts = self.starts
        cdef const Character *s = text.at
        cdef Py_ssize_t n = text.length, i = 0, j, begin = 0, end, pairs
        cdef Character last, first
        cdef bint spaced, lead
        out.length = starts.length = 0
        out.reserve(n + 64)
        while i < n and s[i] != HOLE:
            out.put(s[i])
            i += 1
        while i < n:
            while i < n and s[i] == HOLE:
                i += 1
            end = i
            while end < n and s[end] != HOLE:
                end += 1
            pairs = 0
            lead = False  # a space that was put before what is right of the hole
            while True:
                spaced = lead
                while out.length > begin and out.at[out.length - 1] == 32:
                    out.length -= 1
                    spaced = True
                j = i
                while j < end and s[j] == 32:
                    j += 1
                    spaced = True
                if out.length == begin and starts.length:
                    starts.length -= 1
                    begin = starts.at[starts.length]
                    if spaced:
                        out.put(32)
                    continue
                last = out.at[out.length - 1] if out.length > begin else 0
                if is_paired(last):
                    while j < end and is_separator(s[j]):
                        j += 1
                elif j < end and is_closer(s[j]):
                    while out.length > begin and is_separator(out.at[out.length - 1]):
                        out.length -= 1
                    if out.length == begin and starts.length:
                        starts.length -= 1
                        begin = starts.at[starts.length]
                        continue
                    last = out.at[out.length - 1] if out.length > begin else 0
                if is_paired(last) and j < end and is_closer(s[j]) and pairs < python._MAX_PAIRS:
                    pairs += 1
                    out.length -= 1
                    i = j + 1
                    lead = (
                        out.length == begin or out.at[out.length - 1] == 32 or (i < end and s[i] == 32)
                    ) and not (i < end and s[i] == 32)
                    continue
                break
            first = s[j] if j < end else 0
            if last == 0:
                while j < end and (s[j] == 32 or is_clause(s[j])):
                    j += 1
            else:
                if is_opening(last):
                    spaced = False
                elif first == 0:
                    pass
                elif is_stop(first) and not (
                    first == 46 and j + 1 < end and (s[j + 1] == 46 or Py_UNICODE_ISDIGIT(s[j + 1]))
                ):
                    if (is_clause(last) and (is_clause(first) or first == 46 or first == 0x3002)) or (first == last and (first == 46 or first == 0x3002)):
                        out.length -= 1
                    spaced = False
                elif is_closing(first) or (is_cjk(last) and is_cjk(first)):
                    spaced = False
                starts.put(<Character> begin)
                begin = out.length
                if spaced:
                    out.put(32)
            out.put_range(s + j, end - j)
            i = end
        return 0

    cdef int append(self, const Character *s, Py_ssize_t n) except -1:
        """Add a paragraph to the result: without white space around it, single spaces inside; nothing if no word is left."""
        cdef Py_ssize_t i
        cdef Buffer result = self.result
        cdef Py_ssize_t before = result.length
        cdef bint word = False
        while n and Py_UNICODE_ISSPACE(s[0]):
            s += 1
            n -= 1
        while n and Py_UNICODE_ISSPACE(s[n - 1]):
            n -= 1
        if not n:
            return 0
        for i in range(n):
            if Py_UNICODE_ISALNUM(s[i]) and not is_filler(s[i]):
                word = True
                break
        if not word:
            return 0
        result.reserve(n + 2)
        if before:
            result.put(10)
            result.put(10)
        if not has_double_space(s, n):
            return result.put_range(s, n)
        for i in range(n):
            if s[i] != 32 or s[i - 1] != 32:
                result.at[result.length] = s[i]
                result.length += 1
        return 0

    cdef int append_text(self, str text) except -1:
        """Add a finished paragraph."""
        if text:
            if self.result.length:
                self.result.put(10)
                self.result.put(10)
            self.result.put_text(text)
        return 0


cdef enum:
    CACHED = 10000

cdef dict _entities = {}
cdef dict _tags = {}


cdef str tag_shown(str tag):
    """What a reader sees of a tag, nothing or a space; None where it is no tag."""
    shown = _tags.get(tag)
    if shown is None:
        if len(_tags) >= CACHED:
            _tags.clear()
        shown = _tags[tag] = python._without_tags(tag)
    return None if shown == tag else shown


cdef inline int put_plain(Buffer out, Character c) except -1:
    """Put a character as every paragraph ends up with it."""
    if (c == 0xA0 or c == 9 or c == 0x2002 or c == 0x2003 or c == 0x2007 or c == 0x2009 or c == 0x200A or c == 0x2028
        or c == 0x2029 or c == 0x202F):
        return out.put(32)
    if c == 0xAD or c == 0x200B or c == 0x200E or c == 0x200F or c == 0x2060 or c == 0xFEFF:
        return 0
    return out.put(c)


cdef inline bint is_filler(Character c):
    return c == 0x3164 or c == 0x115F or c == 0x1160 or c == 0xFFA0


cdef inline bint is_paired(Character c):
    return c == 40 or c == 0xFF08 or c == 91


cdef inline bint is_closer(Character c):
    return c == 41 or c == 0xFF09 or c == 93


cdef inline bint is_separator(Character c):
    return c == 32 or is_clause(c) or c == 47 or c == 0xB7 or c == 0x2013 or c == 0x2014 or c == 45


cdef inline bint is_clause(Character c):
    return c == 44 or c == 59 or c == 58 or c == 0x3001 or c == 0xFF0C or c == 0xFF1B or c == 0xFF1A


cdef inline bint is_stop(Character c):
    return is_clause(c) or c == 46 or c == 33 or c == 63 or c == 0x3002 or c == 0xFF01 or c == 0xFF1F or c == 0xFF0E


cdef inline bint is_opening(Character c):
    return (
        c == 40 or c == 0xFF08 or c == 91 or c == 0x300C or c == 0x300E or c == 0x201C or c == 0x2018 or c == 0xAB
        or c == 0x2039
    )


cdef inline bint is_closing(Character c):
    return (
        c == 41 or c == 0xFF09 or c == 93 or c == 0x300D or c == 0x300F or c == 0x201D or c == 0x2019 or c == 0xBB
        or c == 0x203A
    )
