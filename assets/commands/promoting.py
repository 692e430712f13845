"""Which release of a recipe is in use: changed by a decision, or by a person (`bert promote`, `bert rollback`, `bert bar`)."""

from typing import Any

from assets.audits.attesting import attest
from pipeline.errors import RecipeError, StoreError
from pipeline.recipes.rehearsal import base_of, is_rehearsal
from pipeline.retrains import alerts
from pipeline.retrains.alerts import Alert
from pipeline.settings import settings
from pipeline.storage import champion
from pipeline.storage.record import utc_now
from pipeline.store import Record, Store, open_store
from pipeline.system.owners import user

Plain = dict[str, Any]
RELEASE, DECISION = "release", "promotion_decision"
SHORTEST = 6
"""characters of the beginning of a version that name it"""


def follow(store: Store, decision: Record) -> str:
    """Do what a decision says: where every gate passed, its release becomes the champion, with attestations. Returns what there is
    to say; "" where it is champion already.

    Nothing happens where the champion is another than the one that the decision compared with: then a person has to say.
    So it can be called again, after a crash or by a rerun, and does the same. Raises StoreError where the release is barred since,
    or broken.
    """
    told, release = decision.body["statistics"], store.record(decision.inputs[RELEASE])
    now = champion.read(store, decision.recipe).champion
    in_use = store.record(now).version if now else None
    if in_use == release.version:
        return ""
    if told["verdict"] != "promote":
        return _refused(decision, f"not promoted. {told['in_words']}")
    if in_use != told["champion"]:
        return _refused(
            decision,
            f"not promoted: the champion is {(in_use or 'none')[:12]}, and this decision compared with "
            f'{(told["champion"] or "none")[:12]}.  To promote it all the same: bert promote {decision.recipe} --reason "…"',
        )
    attest(store, release)
    champion.promote(store, decision.recipe, release, decision.digest, user(), told["in_words"], utc_now())
    _tell(store, decision.recipe)
    return f'promoted. {told["in_words"]}  Back: bert rollback {decision.recipe} --reason "…"'


def promote(recipe: str, reason: str) -> Plain:
    """Make the recipe's release the champion, whatever its gates said, which is told and recorded, with attestations.

    Raises RecipeError where it has none, StoreError where it is barred or broken.
    """
    if is_rehearsal(recipe):
        raise RecipeError(
            f"{recipe} is a rehearsal, of a share of the text", f"Make the whole: bert run {base_of(recipe)}"
        )
    store = open_store()
    record = store.pointer(recipe, RELEASE)
    if record is None:
        raise RecipeError(f"{recipe} has no release", f"Make it: bert run {recipe}/{RELEASE}")
    _reasoned(reason, f"bert promote {recipe}")
    now = champion.read(store, recipe).champion
    if now is not None and store.record(now).version == record.version:
        return {**_told(store, recipe), "gates": "It was the champion already; nothing was changed."}
    decision = store.pointer(recipe, DECISION)
    if decision is None and store.history(recipe, DECISION):
        raise StoreError(
            f"the record of {recipe}/{DECISION} is lost or was altered", "bert verify names it; bert run makes it anew."
        )
    if decision is not None and store.record(decision.inputs[RELEASE]).version != record.version:
        decision = None  # it is of another release
    attest(store, record)
    champion.promote(store, recipe, record, decision.digest if decision else None, user(), reason, utc_now())
    _tell(store, recipe)
    gates = decision.body["statistics"]["in_words"] if decision else "No gate was asked: there is no decision about it."
    return {**_told(store, recipe), "gates": gates}


def rollback(recipe: str, reason: str, to: str | None) -> Plain:
    """Go back to the champion before, or to an earlier one whose version begins with `to`; the one that goes is barred.

    Raises StoreError where there is none, or where its content is not whole.
    """
    store = open_store()
    _reasoned(reason, f"bert rollback {recipe}")
    champion.rollback(store, recipe, user(), reason, utc_now(), to)
    _tell(store, recipe)
    return _told(store, recipe)


def _refused(decision: Record, why: str) -> str:
    """Tell of a decision that was not followed, once for what it says, however often it is asked for; returns `why`."""
    following = f"bert audit {decision.recipe}/{DECISION}"
    alerts.alert(
        settings(), Alert("promotion refused", decision.recipe, decision.version[:16], why, following, asset=DECISION)
    )
    return why


def _tell(store: Store, recipe: str) -> None:
    """Tell of the last change of a champion."""
    newest = champion.read(store, recipe).history[0]
    version = store.record(newest.champion).version
    kind: alerts.Kind = "promoted" if newest.did == "promoted" else "rolled back"
    cause = f"release {version[:12]} is in use, by {newest.who}: {newest.why}"
    back = f'bert rollback {recipe} --reason "…"'
    alerts.alert(settings(), Alert(kind, recipe, newest.time, cause, f"bert status {recipe} · {back}", asset=RELEASE))


def bar(version: str, reason: str, lift: bool) -> Plain:
    """Never promote a version of a release again, or, with `lift`, allow it again. `version` may be the beginning of one.

    Raises RecipeError where no release or more than one begins so, StoreError where nothing would change.
    """
    store = open_store()
    whole = _release(store, version)
    _reasoned(reason, f"bert bar {version}{' --lift' if lift else ''}")
    ban = champion.bar(store, whole, user(), reason, utc_now(), lift)
    in_use = [name for name in champion.recipes(store) if _is_champion(store, name, whole)]
    return {"did": ban.did, "version": whole, "champion_of": in_use if not lift else []}


def in_use(store: Store, recipe: str) -> Plain | None:
    """The champion of a recipe as `bert status` shows it, or what is wrong with its file; None where nothing was ever
    promoted."""
    try:
        return _in_use(store, recipe)
    except StoreError as error:
        return {"error": error.what, "todo": error.todo}


def _in_use(store: Store, recipe: str) -> Plain | None:
    found = champion.read(store, recipe)
    if found.champion is None:
        return None
    newest = found.history[0]
    return {
        "version": store.record(found.champion).version,
        "previous": store.record(found.previous).version if found.previous else None,
        "since": newest.time,
        "did": newest.did,
        "who": newest.who,
        "why": newest.why,
    }


def in_use_text(told: Plain | None) -> str:
    """A line about the champion; "" where there is none."""
    if told is None:
        return ""
    if "error" in told:
        return f"✗ champion: {told['error']}\n  → {told['todo']}"
    return (
        f"champion: release {told['version'][:12]}, {told['did']} {told['since'][:16].replace('T', ' ')} by {told['who']}"
        f" ({told['why']})" + (f"; before it {told['previous'][:12]}" if told["previous"] else "")
    )


def changed_text(told: Plain) -> str:
    """What `promote` and `rollback` did."""
    lines = [f"{told['recipe']}: {in_use_text(told)}", *([told["gates"]] if told.get("gates") else [])]
    return "\n".join(lines)


def bar_text(told: Plain) -> str:
    """What `bar` did, and where the version is in use all the same."""
    lines = [f"{told['version'][:12]} is {told['did']}"]
    lines += [f"It is the champion of {name} still.  Next: bert rollback {name}" for name in told["champion_of"]]
    return "\n".join(lines)


def _told(store: Store, recipe: str) -> Plain:
    told = in_use(store, recipe)
    assert told is not None
    return {"recipe": recipe, **told}


def _reasoned(reason: str, command: str) -> None:
    if not reason.strip():
        raise RecipeError("--reason TEXT is missing: it stands in the history", f'{command} --reason "…"')


def _is_champion(store: Store, recipe: str, version: str) -> bool:
    found = champion.read(store, recipe).champion
    return found is not None and store.record(found).version == version


def _release(store: Store, beginning: str) -> str:
    """The one version of a release that begins so."""
    known = sorted({record.version for record in _releases(store)})
    found = [version for version in known if version.startswith(beginning)]
    if len(beginning) < SHORTEST or len(found) != 1:
        what = (
            f"{len(found)} releases begin with {beginning}"
            if len(beginning) >= SHORTEST
            else f"{beginning!r} is too short"
        )
        raise RecipeError(what, f"Known: {', '.join(version[:12] for version in known) or 'none'}.")
    return found[0]


def _releases(store: Store) -> list[Record]:
    """The releases that recipes have and had."""
    found = []
    for recipe in (recipe for recipe, asset in store.pointers() if asset == RELEASE):
        for digest in store.history(recipe, RELEASE):
            try:
                found.append(store.record(digest))
            except StoreError:
                continue  # `bert verify` tells of it
    return found
