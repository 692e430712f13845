"""Wikimedia's dumps: which files a wiki's dump has, and the kept copies of them.

The site (`downloads.site` of settings.yaml: Wikimedia's own, or a mirror) has two layouts:

    /<wiki>/<YYYYMMDD>/dumpstatus.json       articles only; names every file with size and SHA-1, and which jobs are done
    /other/mediawiki_content_current/<wiki>/<YYYY-MM-DD>/xml/bzip2/     all namespaces; SHA256SUMS, and _SUCCESS when done

The first is preferred, for it is smaller and its multistream files can be read in parallel; the second is taken where the
first has no finished dump. What `latest` means is asked once, by `resolve`, and kept in
`BERT_HOME/downloads/wikimedia/<wiki>.json`; whoever reads the files afterwards takes that answer.
"""

import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pipeline.config import WikimediaFrom
from pipeline.errors import SourceError
from pipeline.formats.foreign_json import parsed
from pipeline.origins import transfer
from pipeline.origins.downloads import Fetched, Wanted, WrongDigest, fetch
from pipeline.selection.sampling import first_bytes
from pipeline.settings import settings
from pipeline.system import atomic
from pipeline.system.owners import held_lock
from pipeline.wikipedia import numeric_order

JOBS = ("articlesmultistreamdump", "articlesdump")
"""In order of preference: multistream dumps can be read in parallel, with the index files that belong to them."""
EXPORTS = "other/mediawiki_content_current"
MAX_PAGE_BYTES = 64 << 20

_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]*"
_FILE = re.compile(rf"{_NAME}\.(xml|txt)[A-Za-z0-9._-]*\.bz2")
_SHA1 = re.compile(r"[0-9a-f]{40}")
_SUM = re.compile(r"([0-9a-f]{64}) [ *](?:\./)?(.*)")


def resolve(from_: WikimediaFrom, network: bool = True) -> dict[str, Any]:
    """{wiki, date, files: [{name, size_bytes, sha1} or {name, sha256}]} of the dump that is asked for.

    `latest` asks the site; without `network`, or when the site can't be reached, it is the newest that was asked for
    before. A date that was asked for before needs no network. SourceError when the dump is gone, unfinished or unknown.
    """
    known = _known(from_.wiki)
    if from_.dump != "latest":
        if from_.dump in known:
            return known[from_.dump]
        if not network:
            raise SourceError(f"the files of {from_.wiki} {from_.dump} are not known yet", "Run with a network once.")
        return _keep(from_.wiki, _dump(from_.wiki, from_.dump))
    if network:
        try:
            return _keep(from_.wiki, _newest(from_.wiki))
        except transfer.Unreachable as error:
            if not known:
                raise
            logging.getLogger(__name__).warning("%s; taking the newest dump known here: %s", error.what, max(known))
    if not known:
        raise SourceError(f"the newest dump of {from_.wiki} is not known yet", "Run with a network once.")
    return known[max(known)]


def offered(wiki: str, until: str = "99999999", network: bool = True) -> dict[str, Any] | None:
    """The newest finished dump of a wiki, of this date at most, in the form of `resolve`; None where there is none. Nothing
    is remembered. Without `network`: of those that were asked for before. Raises SourceError when the site can't be asked,
    or says what can't be right."""
    if not network:
        known = _known(wiki)
        return max((d for d in known.values() if d["date"] <= until), key=lambda d: str(d["date"]), default=None)
    for dates, look in ((_dates(wiki), _dump_files), (_export_dates(wiki), _export_files)):
        for date in dates:
            if date <= until and (found := look(wiki, date)):
                return found
    return None


def size(dump: Mapping[str, Any]) -> int | None:
    """Bytes of a dump; None where the site doesn't say them."""
    sizes = [each.get("size_bytes") for each in dump["files"]]
    return None if None in sizes else sum(sizes)


def files(from_: WikimediaFrom, share: float = 1.0) -> tuple[dict[str, Any], Fetched]:
    """(the dump as the last `resolve` answered it, with its `url`; kept files). Downloads what is missing; with a `share` below 1
    only the first XML files, so many that they hold this share of all bytes, and `share` of the dump is what they do hold.

    Raises SourceError, also when the dump was removed since; StoreError when the disk has no room.
    """
    known = _known(from_.wiki)
    dump = known[max(known)] if known and from_.dump == "latest" else resolve(from_)
    if share < 1:
        dump = _first(dump, share)
    wiki, date = dump["wiki"], dump["date"]
    url = _dump_url(wiki, date) if "sha1" in dump["files"][0] else _export_url(wiki, date)
    try:
        fetched = fetch([_wanted(f"{url}/{each['name']}", each) for each in dump["files"]], from_listed_hosts)
    except transfer.NotFound as error:
        raise _gone(wiki, date, error.what) from error
    except WrongDigest as error:
        again = f"If the site made the dump anew since {_memo(wiki)} was written, remove that file and run again."
        raise SourceError(error.what, f"{error.todo} {again}") from error
    return {**dump, "url": url}, fetched


def _first(dump: Mapping[str, Any], share: float) -> dict[str, Any]:
    """The dump with its first XML files alone; where the site doesn't say their sizes, they count alike."""
    texts = [each for each in dump["files"] if ".xml" in each["name"]]
    sizes = [each.get("size_bytes", 1) for each in texts]
    chosen = first_bytes(texts, sizes, share)
    return {**dump, "files": list(chosen), "share": sum(sizes[: len(chosen)]) / sum(sizes)}


def _wanted(url: str, entry: Mapping[str, Any]) -> Wanted:
    algorithm = "sha1" if "sha1" in entry else "sha256"
    return Wanted(url, entry["name"], entry[algorithm], algorithm, entry.get("size_bytes"))


def from_listed_hosts(asked: str, at: str) -> None:
    """Allow addresses, and redirects to addresses, on the hosts of the settings only, over https unless the site has http."""
    chosen = settings().downloads
    address = urlsplit(at)
    if address.hostname not in chosen.hosts:
        what = f"{at} is not on a host that dumps may come from"
        if at != asked:
            what = f"{asked} leads to another host: {at}"
        raise SourceError(
            f"{what} (downloads.hosts of settings.yaml: {', '.join(chosen.hosts)})",
            f"If you trust it, add {address.hostname} to downloads.hosts in settings.yaml.",
        )
    if address.scheme not in ("https", urlsplit(chosen.site).scheme):
        raise SourceError(f"{asked} leads to {at}, which is not https", "It is not followed.")


# ── what was resolved ────────────────────────────────────────────────────────────────────────────────────────────────


def _known(wiki: str) -> dict[str, dict[str, Any]]:
    """date → files, of all dumps of the wiki that were ever asked for."""
    path = _memo(wiki)
    try:
        found: dict[str, dict[str, Any]] = parsed(path.read_text(encoding="utf-8"))
        return found
    except FileNotFoundError:
        return {}
    except (ValueError, OSError) as error:
        raise SourceError(f"{path} can't be read: {error}", "Remove it; it is written again.") from error


def _keep(wiki: str, dump: dict[str, Any]) -> dict[str, Any]:
    """Remember what a dump holds, as the site says now."""
    path = _memo(wiki)
    try:
        with held_lock(path.with_suffix(".lock")):
            known = _known(wiki)
            if known.get(dump["date"]) != dump:
                atomic.write_json(path, known | {dump["date"]: dump})
            return dump
    except OSError as error:
        raise atomic.explain(error, path) from error


def _memo(wiki: str) -> Path:
    return settings().home_path / "downloads" / "wikimedia" / f"{wiki}.json"


# ── the site ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _site() -> str:
    return settings().downloads.site.rstrip("/")


def _dump_url(wiki: str, date: str) -> str:
    return f"{_site()}/{wiki}/{date}"


def _export_url(wiki: str, date: str) -> str:
    return f"{_site()}/{EXPORTS}/{wiki}/{date[:4]}-{date[4:6]}-{date[6:]}/xml/bzip2"


def _get(url: str) -> str:
    return transfer.page(url, from_listed_hosts, MAX_PAGE_BYTES).decode("utf-8", "replace")


def _newest(wiki: str) -> dict[str, Any]:
    if found := offered(wiki):
        return found
    dumps, exports = _dates(wiki), _export_dates(wiki)
    dates = _listed([*dumps, *exports])
    raise SourceError(
        f"{_site()} has no finished dump of {wiki}; its dates: {dates}",
        "Try again in a few days." if dumps or exports else "Check the name of the wiki.",
    )


def _dump(wiki: str, date: str) -> dict[str, Any]:
    found = _dump_files(wiki, date) or _export_files(wiki, date)
    if found:
        return found
    if date in (*_dates(wiki), *_export_dates(wiki)):
        raise SourceError(f"the dump {date} of {wiki} is not finished yet", "Wait, or name an earlier date.")
    raise _gone(wiki, date)


def _gone(wiki: str, date: str, why: str = "") -> SourceError:
    dates = _listed([*_dates(wiki), *_export_dates(wiki)])
    return SourceError(
        f"the dump {date} of {wiki} is not on {_site()}; dumps are removed after some months. There are: {dates}"
        + (f" ({why})" if why else ""),
        "Name one of these dates, or `from: {path: …}` of your own copy.",
    )


def _listed(dates: list[str]) -> str:
    return ", ".join(sorted(set(dates), reverse=True)) or "none"


def _dates(wiki: str) -> list[str]:
    """The dates that the site lists for a wiki as YYYYMMDD, newest first; none for a wiki that it does not have."""
    return _folders(f"{_site()}/{wiki}/", r"\d{8}")


def _export_dates(wiki: str) -> list[str]:
    return [date.replace("-", "") for date in _folders(f"{_site()}/{EXPORTS}/{wiki}/", r"\d{4}-\d\d-\d\d")]


def _folders(url: str, pattern: str) -> list[str]:
    try:
        return sorted(set(re.findall(rf'href="(?:[^"]*/)?({pattern})/?"', _get(url))), reverse=True)
    except transfer.NotFound:
        return []


# ── dumpstatus.json ──────────────────────────────────────────────────────────────────────────────────────────────────


def _dump_files(wiki: str, date: str) -> dict[str, Any] | None:
    """The files of the first finished job; None when none is finished. SourceError for an entry that can't be right."""
    url = f"{_dump_url(wiki, date)}/dumpstatus.json"
    try:
        status = parsed(_get(url))
    except transfer.NotFound:
        return None
    except ValueError as error:
        raise SourceError(f"{url} is not JSON: {error}", "Try again later.") from error
    try:
        for name in JOBS:
            job = status["jobs"].get(name, {})
            if job.get("status") == "done" and job.get("files"):
                found = [_entry(wiki, date, file, entry) for file, entry in job["files"].items()]
                if any(".xml" in each["name"] for each in found):
                    return {
                        "wiki": wiki,
                        "date": date,
                        "files": sorted(found, key=lambda each: numeric_order(each["name"])),
                    }
    except (KeyError, TypeError, AttributeError) as error:
        raise SourceError(f"{url} has not the form agreed: {error!r}", "Name another date.") from error
    return None


def _entry(wiki: str, date: str, file: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    size, sha1 = entry.get("size"), entry.get("sha1")
    plain = _FILE.fullmatch(file) and file.startswith(f"{wiki}-{date}-")
    if not plain or type(size) is not int or size <= 0 or not _SHA1.fullmatch(str(sha1)):
        raise SourceError(
            f"dumpstatus.json of {wiki} {date}: the file {file!r} has size {size!r} and sha1 {sha1!r}",
            "Such an entry is not used; name another date.",
        )
    return {"name": file, "size_bytes": size, "sha1": sha1}


# ── SHA256SUMS ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _export_files(wiki: str, date: str) -> dict[str, Any] | None:
    """The files that SHA256SUMS names; None when there is none, or no _SUCCESS. SourceError for a line that can't be right."""
    url = _export_url(wiki, date)
    try:
        _get(f"{url}/_SUCCESS")
        sums = _get(f"{url}/SHA256SUMS")
    except transfer.NotFound:
        return None
    found: dict[str, str] = {}
    for line in filter(str.strip, sums.splitlines()):
        sum_ = _SUM.fullmatch(line.rstrip())
        name = sum_[2] if sum_ else ""
        plain = _FILE.fullmatch(name) and name.startswith(f"{wiki}-{url.split('/')[-3]}-") and ".xml" in name
        if not sum_ or not plain or found.setdefault(name, sum_[1]) != sum_[1]:
            raise SourceError(
                f"SHA256SUMS of {wiki} {date} has the line {line[:200]!r}",
                "Such a line is not used; name another date.",
            )
    if not found:
        return None
    files = [{"name": name, "sha256": found[name]} for name in sorted(found, key=numeric_order)]
    return {"wiki": wiki, "date": date, "files": files}
