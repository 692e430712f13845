"""What depends on the moment (the newest dump, the champion, the number of the retrain), settled once per retrain.

    assets/<recipe>/retrains/<D>.json    of the retrain D; D is the date of its newest dump, YYYYMMDD

The first process that needs it writes the file; every later step, retry and rerun of D reads it. So a rerun after the new
model was promoted asks for the same as the run before, and is answered from memory.
"""

import logging
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pipeline.config import Frozen, Start, WikimediaFrom
from pipeline.errors import RecipeError, SourceError
from pipeline.origins import transfer, wikimedia
from pipeline.recipe import Recipe
from pipeline.recipes.names import CHAMPION
from pipeline.storage import champion
from pipeline.store import Store
from pipeline.system.atomic import damaged, explained, read_kept, write_json
from pipeline.system.owners import held_lock

_DATE = re.compile(r"\d{8}")


@dataclass(frozen=True)
class Moment:
    """What one retrain found."""

    dump: str
    """its name: the date of its newest dump"""
    dumps: Mapping[str, str]
    """source → date of its dump, of those that ask for the latest"""
    sizes: Mapping[str, int | None]
    """source → bytes of that dump; None where the site doesn't say"""
    number: int
    """of the retrain, from 1"""
    champion: str | None
    """digest of the record of the release that was in use"""
    scored: str | None
    """digest of the record of its benchmark report; None where there is none"""


def wikis(recipe: Recipe) -> dict[str, str]:
    """Source → wiki, of the sources that ask for the latest dump."""
    named = {name: source.from_ for name, source in recipe.corpus.sources.items()} if recipe.corpus else {}
    return {n: o.wiki for n, o in named.items() if isinstance(o, WikimediaFrom) and o.dump == "latest"}


def known(store: Store, recipe: str) -> list[Moment]:
    """The retrains that there were, oldest first. Raises StoreError where a file of them is damaged."""
    found = [_read(path) for path in sorted(_folder(store, recipe).glob("*.json")) if not path.name.startswith(".")]
    return [moment for moment in found if moment is not None]


def now(store: Store, recipe: Recipe, dump: str | None = None, network: bool = False) -> Moment:
    """The retrain `dump`, or the newest that the recipe's wikis offer: as it was settled, or as it would be. Writes nothing.

    Without `network`, dumps that were asked for before count. Raises SourceError where no dump is known, RecipeError where
    `dump` is no date, StoreError where a file is damaged.
    """
    if dump is not None and not _is_date(dump):
        raise RecipeError(f"{dump!r} is no date of a dump", "Write it as YYYYMMDD.")
    if dump is not None and (settled := _read(_path(store, recipe.name, dump))):
        return settled
    found = _dumps(recipe, dump, network)
    dumps = {source: str(each["date"]) for source, each in found.items()}
    before = known(store, recipe.name)
    name = dump or max(dumps.values(), default=before[-1].dump if before else datetime.now(UTC).strftime("%Y%m%d"))
    if settled := _read(_path(store, recipe.name, name)):
        return settled
    in_use = champion.read(store, recipe.name).champion
    scored = champion.report_of(store, store.record(in_use)) if in_use else None
    number = max((moment.number for moment in before), default=0) + 1
    sizes = {source: wikimedia.size(each) for source, each in found.items()}
    return Moment(name, dumps, sizes, number, in_use, scored.digest if scored else None)


def _is_date(text: str) -> bool:
    try:
        return bool(_DATE.fullmatch(text)) and datetime.strptime(text, "%Y%m%d") is not None
    except ValueError:
        return False


def settle(store: Store, recipe: Recipe, dump: str | None = None) -> Moment:
    """As `now`, with a network, and kept: whoever comes later finds the same. Raises as `now` does, and StoreError where it
    can't be written."""
    with explained(_folder(store, recipe.name)), held_lock(store.home / "locks" / f"retrain-{recipe.name}"):
        moment = now(store, recipe, dump, network=True)
        path = _path(store, recipe.name, moment.dump)
        if not path.exists():
            write_json(path, asdict(moment))
        return moment


def resolved(store: Store, recipe: Recipe, moment: Moment) -> Recipe:
    """The recipe with what `moment` settled in the place of `latest` and `champion`: one that asks for dates and versions.

    Raises StoreError where a record of the champion is missing.
    """
    assert recipe.corpus is not None and recipe.pretraining is not None and recipe.retrain is not None
    sources = {
        name: source.model_copy(update={"from_": source.from_.model_copy(update={"dump": moment.dumps[name]})})
        if name in moment.dumps
        else source
        for name, source in recipe.corpus.sources.items()
    }
    changed: dict[str, Frozen] = {"corpus": recipe.corpus.model_copy(update={"sources": sources})}
    if recipe.vocabulary.from_ == CHAMPION:
        changed["vocabulary"] = recipe.vocabulary.model_copy(update={"from_": _vocabulary(store, moment)})
    if weights := _weights(store, recipe, moment):
        start = Start(**{"from": weights}, mode="warm" if recipe.retrain.start == "warm" else "continue")
        changed["pretraining"] = recipe.pretraining.model_copy(update={"start": start})
    return recipe.model_copy(update=changed)


def widest(recipe: Recipe) -> Recipe:
    """The recipe with every asset that some retrain of it has: what Dagster shows."""
    if recipe.retrain is None or recipe.pretraining is None or recipe.retrain.start == "scratch":
        return recipe
    start = Start(**{"from": CHAMPION}, mode=recipe.retrain.start)
    return recipe.model_copy(update={"pretraining": recipe.pretraining.model_copy(update={"start": start})})


def _vocabulary(store: Store, moment: Moment) -> str:
    """Version of the champion's vocabulary; "" where there is none, and one is made."""
    if moment.champion is None:
        return ""
    return store.record(store.record(moment.champion).inputs["wordpiece_vocab"]).version


def _weights(store: Store, recipe: Recipe, moment: Moment) -> str | None:
    """What pretraining begins with, as `pretraining.start.from` names it; None: drawn weights."""
    policy = recipe.retrain
    if policy is None or policy.start == "scratch" or moment.champion is None:
        return None
    if policy.scratch_every is not None and moment.number % policy.scratch_every == 0:
        return None
    release = store.record(moment.champion)
    if policy.start == "warm":
        return release.version
    return f"{store.record(release.inputs['pretrained']).version}/stable"


def _dumps(recipe: Recipe, until: str | None, network: bool) -> dict[str, dict[str, Any]]:
    found = {}
    for source, wiki in wikis(recipe).items():
        offer = _offer(wiki, until or "99999999", network)
        if offer is None:
            up_to = f" up to {until}" if until else ""
            raise SourceError(
                f"no finished dump of {wiki}{up_to} is known" + ("" if network else " here"),
                "Try again in a few days." if network else "Run with a network once.",
            )
        found[source] = offer
    return found


def _offer(wiki: str, until: str, network: bool) -> dict[str, Any] | None:
    """What the site offers; where it can't be reached, the newest that is known here, which is said."""
    if network:
        try:
            return wikimedia.offered(wiki, until)
        except transfer.Unreachable as error:
            stored = wikimedia.offered(wiki, until, network=False)
            if stored is None:
                raise
            say = logging.getLogger(__name__).warning
            say("%s; taking the newest dump of %s known here: %s", error.what, wiki, stored["date"])
            return stored
    return wikimedia.offered(wiki, until, network=False)


def _folder(store: Store, recipe: str) -> Path:
    return store.home / "assets" / recipe / "retrains"


def _path(store: Store, recipe: str, dump: str) -> Path:
    return _folder(store, recipe) / f"{dump}.json"


def _read(path: Path) -> Moment | None:
    found = read_kept(path)
    try:
        return None if found is None else Moment(**found)
    except TypeError as error:
        raise damaged(path, error) from None
