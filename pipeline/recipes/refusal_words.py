"""What pydantic finds wrong with a value, in the words of those who write recipes: rules, and what to do."""

from collections.abc import Mapping, Set

from pydantic_core import ErrorDetails

from pipeline.recipes.yamlfile import Node

PATTERNS: Mapping[str, str] = {
    r"^[0-9a-f]{64}$": "must be a SHA-256: 64 digits of 0-9 and a-f, as sha256sum prints them",
    r"^[A-Za-z0-9_]+$": "must be a name of letters, digits and _ only",
    r"^[A-Za-z0-9_]+(@sample)?$": "must be the name of a recipe, or of its rehearsal",
    r"^[a-z][a-z0-9+]*:\S+$": "must be an address, as https://mlflow.example.com or sqlite:////data/mlflow.db",
    r"^(https?|file)://": "must begin with https://, http:// or file://",
    r"^[A-Za-z0-9._-]+==[A-Za-z0-9.!+]+$": "must be a package and its version, as NAME==1.2.3",
    r"^[^/]+\.whl$": "must be the name of a .whl file",
    r"^[a-z0-9_]+$": "must be the name of a wiki, as enwiki: small letters, digits and _",
    r"^(latest|\d{8})$": "must be latest, or the date of a dump, as 20260101",
    r"^https?://[^/?#\s]+(/[^?#\s]*)?$": "must be an address, as https://dumps.wikimedia.org",
    r"^https?://[^/?#\s]+([/?][^#\s]*)?$": "must be an address, as https://hooks.example.com/bert",
    r"^[^@\s<>,;]+@[^@\s<>,;]+$": "must be a mail address, as team@example.com",
    r"^[A-Za-z_][A-Za-z0-9_]*$": "must be the name of an environment variable",
    r"^[a-z0-9.:-]+$": "must be a host, as dumps.wikimedia.org",
}
"""Pattern of a field in pipeline/config.py or settings.py → the rule."""
_MAP, _LIST, _TEXT, _WHOLE = "must be a map of keys", "must be a list", "must be text", "must be a whole number"
_RULES: Mapping[str, str] = {
    **dict.fromkeys(("model_type", "dict_type"), _MAP),
    "tuple_type": _LIST,
    "string_type": _TEXT,
    **dict.fromkeys(("int_type", "int_from_float", "int_parsing"), _WHOLE),
    **dict.fromkeys(("float_type", "float_parsing"), "must be a number"),
    "bool_type": "must be true or false",
    "string_too_short": "must not be empty",
    "too_short": "has {actual_length} values, and must have {min_length} at least",
    "too_long": "has {actual_length} values, and must have {max_length} at most",
}
"""Kind of an error → the rule; what is not here is said plainly enough by pydantic."""
KEY = "[key]"
"""Last step of the location of an error that is of a key, not of its value."""


def rule_of(detail: ErrorDetails) -> str:
    """What the value must be."""
    known = _RULES.get(detail["type"], "")
    context = detail.get("ctx", {})
    if known:
        return known.format_map(context)
    if detail["type"] == "string_pattern_mismatch":
        return PATTERNS.get(str(context["pattern"]), "is not of the right form")
    if detail["type"] == "literal_error" and context["expected"] in ("True", "False"):
        return f"must be {context['expected'].lower()}"
    message = detail["msg"].removeprefix("Value error, ")
    return message[0].lower() + message[1:]


def advice_of(detail: ErrorDetails, key: str | int, node: Node, keys: Set[str]) -> str:
    """What to do about it; `key` and `node`: what is refused, `keys`: those that the map must have in its place."""
    kind = detail["type"]
    path = node.value.get("path") if isinstance(node.value, dict) else None
    if kind in ("model_from", "string_type") and path is not None:
        return f"Write `{key}: {path.text}`."
    scalar = node.text if node.value is not None and not isinstance(node.value, dict | tuple) else ""
    if kind in ("from", "model_from"):
        if scalar == "official":
            return f"Write `{key}: {{official: true}}`."
        return (
            f"Write `{key}: {{path: {scalar}}}` for a file or folder of this machine."
            if scalar
            else "Name one of these."
        )
    if kind == "tuple_type" and scalar:
        return f"Write `{key}: [{scalar}]`."
    if kind == "model_type":
        if scalar and "from" in keys:
            return f"Write `{key}: {{from: {scalar}}}`."
        return f"Its keys are {', '.join(sorted(keys))}."
    return "Correct the value."
