"""What looks like a secret in recipes and settings: they stand in records, which are shown and kept for ever.

Names and addresses alone are judged, and what is found is told without its value. A secret under a plain name in plain text can't be
known from a word.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

_PARTS = (
    *("secret", "password", "passwd", "passphrase", "credential", "accesskey", "apikey", "accountkey", "privatekey"),
    *("sharedkey", "connectionstring", "authtoken"),
)
"""secret wherever they stand in a name written without its separators"""
_WORDS = frozenset(
    {"token", "auth", "authorization", "pwd", "pass", "bearer", "cookie", "jwt", "sas", "sig", "signature"}
)
"""secret as whole words of a name: `max_tokens`, `author` and `passes` are not"""
_TOLD_ELSEWHERE = frozenset({"from", "file", "path", "env", "name", "variable", "url", "uri"})
"""last words of a name that say where a secret lies: `password_from`, `token_file`"""
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s\"'<>`]+")
_PAIRS = (
    re.compile(r"(?<![\w$./-])-{0,2}(?P<name>[A-Za-z][\w.-]*)=(?P<value>[^\s,;&]+)"),  # TOKEN=abc --password=abc
    re.compile(r"(?<!\S)--(?P<name>[A-Za-z][\w-]*)\s+(?P<value>[^\s-]\S*)"),  # --password abc
    re.compile(
        r"[\"'](?P<name>[A-Za-z][\w.-]*)[\"']\s*:\s*(?P<value>[^\s,{}\[\]]+)"
    ),  # "password": "abc", of JSON or not quite
    re.compile(r"(?P<name>[Aa]uthorization)\s*:\s*(?P<value>\S+)"),  # a header
)
_GIVEN_ELSEWHERE = re.compile(
    r"[\"'\\]*(?:\$\w|\$\{\w+[^}]*\}|\{\w+\}|%\w+%)|(?:true|false|null|none)\b|[\"'\\]+$|$", re.I
)
"""a value that names a variable, or is none"""
_DEEPEST = 50


def is_secret_name(name: str) -> bool:
    """Whether what such a key, variable or option holds is a secret: `AWS_SECRET_ACCESS_KEY`, `apiKey`, `sig`."""
    words = re.findall(r"[a-z0-9]+", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name).lower())
    joined = "".join(words)
    if words and words[-1] in _TOLD_ELSEWHERE:
        return False
    return bool(_WORDS.intersection(words)) or any(part in joined for part in _PARTS)


def holds_login(url: str) -> bool:
    """Whether a URL holds a user or password. A port that is no number is taken for a part of a password with `/`, `?` or `#` in it."""
    authority = re.split(r"[/?#]", url.partition("://")[2], maxsplit=1)[0]
    port = authority.rpartition("]")[2].partition(":")[2]
    return "@" in authority or bool(port and not re.fullmatch(r"\d+|\{\w+\}|\$\{?\w+\}?", port))


def secret_of_url(url: str) -> str:
    """What of a secret the URL holds, or "": a user or password, or a query that gives access (a presigned URL)."""
    rest = url.partition("://")[2]
    if holds_login(url):
        return "a URL with a user or password"
    query = re.split(r"[?#]", rest, maxsplit=1)[1:]
    for name, _, value in (part.partition("=") for part in re.split(r"[&;#?]", "".join(query))):
        if value and (is_secret_name(name) or (name.lower() == "key" and re.fullmatch(r"[\w-]{16,}", value))):
            return f"a URL with {name}="
    return ""


def url_secret_in(text: str) -> str:
    """What of a secret the first URL in the text holds that holds one, or ""."""
    return next(filter(None, map(secret_of_url, _URL.findall(text))), "")


def secret_in_text(text: str) -> str:
    """What looks like a secret in a text, or "": a URL, `NAME=value`, `--name value`, `"name": value`, a header."""
    if found := url_secret_in(text):
        return found
    for pattern in _PAIRS:
        for pair in pattern.finditer(text):
            if is_secret_name(pair["name"]) and not _GIVEN_ELSEWHERE.match(pair["value"]):
                return f"a value for {pair['name']}"
    return ""


def secrets_in(value: Any, at: str = "") -> Iterator[tuple[str, str]]:
    """(key path, what looks like a secret there) of maps, lists and texts at any depth; JSON inside of a text is looked into.

    Neither holds a value.
    """
    yield from _secrets_in(value, at, 0)


def _secrets_in(value: Any, at: str, depth: int) -> Iterator[tuple[str, str]]:
    if depth > _DEEPEST:
        yield at, "more levels than can be looked through"
    elif isinstance(value, dict):
        yield from _secrets_of_map(value, at, depth)
    elif isinstance(value, list | tuple):
        if found := secret_in_text(" ".join(item for item in value if isinstance(item, str))):  # ["--password", "abc"]
            yield at, found
            return
        for index, item in enumerate(value):
            yield from _secrets_in(item, f"{at}.{index}" if at else str(index), depth + 1)
    elif isinstance(value, str):
        inner = _json(value)
        if isinstance(inner, dict | list):
            yield from _secrets_in(inner, at, depth + 1)
        elif found := secret_in_text(value):
            yield at, found


def _secrets_of_map(value: dict[Any, Any], at: str, depth: int) -> Iterator[tuple[str, str]]:
    named = value.get("name", value.get("key"))
    if (
        isinstance(named, str) and is_secret_name(named) and _holds(value.get("value"))
    ):  # as Kubernetes writes variables
        yield at, f"a value for {named}"
    for key, inner in value.items():
        name = str(key)
        if secret_in_text(name):
            yield at, "a secret as the name of a key"
            continue
        path = f"{at}.{name}" if at else name
        if is_secret_name(name) and _holds(inner):
            yield path, "a secret, by its name,"
        else:
            yield from _secrets_in(inner, path, depth + 1)


def _holds(value: Any) -> bool:
    """Whether a value can be a secret: a flag, nothing, and the name of a variable can't."""
    if value is None or isinstance(value, bool) or value in ("", [], (), {}):
        return False
    return not (isinstance(value, str) and _GIVEN_ELSEWHERE.match(value))


def _json(text: str) -> Any:
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
