"""The vocabulary that lies beside a model made elsewhere, and how texts are normalised for it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.errors import DataError
from pipeline.formats.foreign_json import parsed
from pipeline.tokenizer import check, read_vocabulary


@dataclass(frozen=True)
class Words:
    """A vocabulary and its normaliser."""

    vocabulary: tuple[str, ...]
    lowercase: bool
    strip_accents: bool
    differences: tuple[str, ...]
    """what its tokenizer does that ours does not do, in words"""


def read_words(folder: Path, lowercase: bool | None, strip_accents: bool | None) -> Words:
    """Read vocab.txt, or tokenizer.json without one, and what tokenizer.json or tokenizer_config.json say of lowercase and
    accents; `lowercase` and `strip_accents` are what the recipe states (None: nothing).

    Raises:
        DataError: there is no vocabulary, files beside each other disagree, the recipe says otherwise than the files, or
            nothing says whether texts are lowercased.
    """
    described, plain = _json(folder / "tokenizer.json"), _json(folder / "tokenizer_config.json")
    listed = None if described is None else _listed(described, folder / "tokenizer.json")
    if (folder / "vocab.txt").is_file():
        vocabulary = read_vocabulary(folder / "vocab.txt")
        if listed is not None and listed != vocabulary:
            raise DataError(
                f"{folder}: vocab.txt and tokenizer.json list different tokens", "Take both from one model."
            )
    elif listed is not None:
        vocabulary = listed
    else:
        raise DataError(f"{folder} has neither vocab.txt nor tokenizer.json", "Put the model's own vocab.txt there.")
    normaliser = _normaliser(described or {})
    said = {
        "lowercase": normaliser.get("lowercase", (plain or {}).get("do_lower_case")),
        "strip_accents": normaliser.get("strip_accents", (plain or {}).get("strip_accents")),
    }
    lower = _agreed("lowercase", said["lowercase"], lowercase, folder)
    if lower is None:
        raise DataError(
            f"{folder}: neither tokenizer.json nor tokenizer_config.json says whether texts are lowercased",
            "Write vocabulary: {lowercase: true} or false in the recipe, as the model was trained.",
        )
    # Whoever leaves it open means what lowercase says (google-research/bert; transformers' null).
    if said["strip_accents"] is None and said["lowercase"] is not None:
        said["strip_accents"] = lower
    strip = _agreed("strip_accents", said["strip_accents"], strip_accents, folder)
    return Words(vocabulary, lower, lower if strip is None else strip, _differences(normaliser, plain or {}))


def _json(path: Path) -> dict[str, Any] | None:
    if not path.is_file():
        return None
    try:
        return dict(parsed(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise DataError(f"{path} can't be read: {error}", "Take it from the model anew, or remove it.") from None


def _listed(described: Mapping[str, Any], path: Path) -> tuple[str, ...]:
    """The tokens of a tokenizer.json in the order of their ids."""
    model = described.get("model")
    if not isinstance(model, dict) or model.get("type", "WordPiece") != "WordPiece":
        kind = model.get("type") if isinstance(model, dict) else model
        raise DataError(f"{path}: its model is {kind!r}, not WordPiece", "This is not the tokenizer of a BERT.")
    if model.get("continuing_subword_prefix", "##") != "##":
        raise DataError(
            f"{path}: its pieces go on with {model['continuing_subword_prefix']!r}, not ##", "Take a BERT's."
        )
    numbers = model.get("vocab")
    if not isinstance(numbers, dict) or sorted(map(str, numbers.values())) != sorted(map(str, range(len(numbers)))):
        raise DataError(f"{path}: its tokens are not numbered from 0 on", "Take it from the model anew.")
    tokens = tuple(sorted(numbers, key=lambda token: int(numbers[token])))
    check(tokens, str(path))
    return tokens


def _normaliser(described: Mapping[str, Any]) -> dict[str, Any]:
    found = described.get("normalizer")
    return found if isinstance(found, dict) and found.get("type") == "BertNormalizer" else {}


def _agreed(key: str, said: Any, stated: bool | None, folder: Path) -> bool | None:
    if said is not None and not isinstance(said, bool):
        raise DataError(f"{folder}: its tokenizer says {key} {said!r}", "It is true or false.")
    if said is not None and stated is not None and said != stated:
        raise DataError(
            f"{folder}: its tokenizer has {key} {str(said).lower()}, the recipe's vocabulary.{key} is "
            f"{str(stated).lower()}",
            f"Remove vocabulary.{key} from the recipe.",
        )
    return stated if said is None else said


def _differences(normaliser: Mapping[str, Any], plain: Mapping[str, Any]) -> tuple[str, ...]:
    found = []
    if normaliser.get("clean_text") is False:
        found.append("it keeps control characters, which are removed here")
    if normaliser.get("handle_chinese_chars", plain.get("tokenize_chinese_chars")) is False:
        found.append("it keeps runs of Chinese characters together, where each is a word here")
    return tuple(found)
