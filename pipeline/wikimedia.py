"""Wikimedia's dump site: which files a wiki's dump has, and the kept copies of them.

What `latest` means is asked once, by `resolve`, and kept in `BERT_HOME/downloads/wikimedia/<wiki>.json`; whoever reads
the files afterwards takes that answer, so that a dump that appears in between is not mixed in.
"""

import http.client
import json
import re
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from pipeline import atomic
from pipeline.config import WikimediaFrom
from pipeline.downloads import TIMEOUT_SECONDS, USER_AGENT, download, kept
from pipeline.errors import SourceError
from pipeline.settings import settings

SITE = "https://dumps.wikimedia.org"
JOBS = ("articlesmultistreamdump", "articlesdump")
"""In order of preference: multistream dumps can be read in parallel."""
MAX_PAGE_BYTES = 64 << 20

_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\.xml[A-Za-z0-9._-]*\.bz2")
_SHA1 = re.compile(r"[0-9a-f]{40}")


def resolve(from_: WikimediaFrom, network: bool = True) -> dict[str, Any]:
    """{wiki, date, files: [{name, size_bytes, sha1}]} of the dump that is asked for.

    `latest` asks the site; without `network`, or when the site can't be reached, it is the newest that was asked for
    before. A date that was asked for before needs no network. SourceError when the dump is gone, unfinished or unknown.
    """
    known = _known(from_.wiki)
    if from_.dump != "latest":
        if from_.dump in known:
            return known[from_.dump]
        if not network:
            raise SourceError(f"the files of {from_.wiki} {from_.dump} are not known yet", "Run with a network once.")
        return _keep(from_.wiki, known, _dump(from_.wiki, from_.dump))
    if network:
        try:
            return _keep(from_.wiki, known, _newest(from_.wiki))
        except _Unreachable:
            if not known:
                raise
    if not known:
        raise SourceError(f"the newest dump of {from_.wiki} is not known yet", "Run with a network once.")
    return known[max(known)]


def files(from_: WikimediaFrom) -> tuple[str, list[Path]]:
    """(date, kept files) of the dump, as the last `resolve` answered; downloads what is missing."""
    known = _known(from_.wiki)
    dump = known[max(known)] if known and from_.dump == "latest" else resolve(from_)
    paths = []
    for each in dump["files"]:
        url = f"{SITE}/{dump['wiki']}/{dump['date']}/{each['name']}"

        def fetch(path: Path, url: str = url, size: int = each["size_bytes"]) -> None:
            download(url, path, size, _open_here)

        paths.append(kept(each["sha1"], each["name"], fetch, "sha1"))
    return dump["date"], paths


def _known(wiki: str) -> dict[str, dict[str, Any]]:
    """date → files, of all dumps of the wiki that were ever asked for."""
    path = _memo(wiki)
    try:
        found: dict[str, dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
        return found
    except FileNotFoundError:
        return {}
    except (ValueError, OSError) as error:
        raise SourceError(f"{path} can't be read: {error}", "Remove it; it is written again.") from error


def _keep(wiki: str, known: dict[str, dict[str, Any]], dump: dict[str, Any]) -> dict[str, Any]:
    if known.get(dump["date"]) != dump:
        path = _memo(wiki)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise atomic.explain(error, path) from error
        atomic.write_json(path, known | {dump["date"]: dump})
    return dump


def _memo(wiki: str) -> Path:
    return settings().home_path / "downloads" / "wikimedia" / f"{wiki}.json"


# ── the site ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class _Unreachable(SourceError):
    """The site did not answer."""


class _NotFound(SourceError):
    """The site has no such page."""


class _SameHost(urllib.request.HTTPRedirectHandler):
    """A redirect that leaves the site is refused."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        if not newurl.startswith(f"{SITE}/"):
            raise SourceError(f"{req.full_url} leads to another host: {newurl}", "It is not followed.")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _open_here(request: urllib.request.Request) -> http.client.HTTPResponse:
    response: http.client.HTTPResponse = urllib.request.build_opener(_SameHost).open(request, timeout=TIMEOUT_SECONDS)
    return response


def _get(url: str) -> bytes:
    try:
        with _open_here(urllib.request.Request(url, headers={"User-Agent": USER_AGENT})) as response:
            page = response.read(MAX_PAGE_BYTES + 1)
    except urllib.error.HTTPError as error:
        kind = _NotFound if error.code == 404 else SourceError
        raise kind(f"{url}: HTTP {error.code} {error.reason}", "Check the name of the wiki and the date.") from error
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        raise _Unreachable(f"{url} can't be reached: {reason}", "Check the network, then run again.") from error
    if len(page) > MAX_PAGE_BYTES:
        raise SourceError(f"{url} is larger than {MAX_PAGE_BYTES >> 20} MiB", "It is not read.")
    return page


def _dates(wiki: str) -> list[str]:
    """The dates that the site lists for a wiki, newest first."""
    index = _get(f"{SITE}/{wiki}/").decode("utf-8", "replace")
    return sorted(set(re.findall(r'href="(\d{8})/?"', index)), reverse=True)


def _newest(wiki: str) -> dict[str, Any]:
    dates = _dates(wiki)
    for date in dates:
        try:
            status = _status(wiki, date)
        except _NotFound:
            continue
        if found := _finished(wiki, date, status):
            return found
    listed = f"its dates: {', '.join(dates)}" if dates else "it lists no dates"
    raise SourceError(f"{SITE}/{wiki}/ has no finished dump; {listed}", "Try again in a few days.")


def _dump(wiki: str, date: str) -> dict[str, Any]:
    try:
        status = _status(wiki, date)
    except _NotFound as error:
        dates = ", ".join(_dates(wiki)) or "none"
        raise SourceError(
            f"the dump {date} of {wiki} is not on {SITE}; dumps are removed after some months. There are: {dates}",
            "Name one of these dates, or `from: {path: …}` of your own copy.",
        ) from error
    found = _finished(wiki, date, status)
    if not found:
        raise SourceError(f"the dump {date} of {wiki} is not finished yet", "Wait, or name an earlier date.")
    return found


def _status(wiki: str, date: str) -> Any:
    url = f"{SITE}/{wiki}/{date}/dumpstatus.json"
    try:
        return json.loads(_get(url))
    except ValueError as error:
        raise SourceError(f"{url} is not JSON: {error}", "Try again later.") from error


def _finished(wiki: str, date: str, status: Any) -> dict[str, Any] | None:
    """The files of the first finished job; None when none is finished. SourceError for an entry that can't be right."""
    jobs = status.get("jobs", {}) if isinstance(status, dict) else {}
    for name in JOBS:
        job = jobs.get(name, {})
        if job.get("status") != "done":
            continue
        found = []
        for file, entry in job.get("files", {}).items():
            if "-index" in file:
                continue
            size, sha1 = entry.get("size"), entry.get("sha1", "")
            if not _FILE.fullmatch(file) or not isinstance(size, int) or not _SHA1.fullmatch(str(sha1)):
                raise SourceError(
                    f"dumpstatus.json of {wiki} {date}: the file {file!r} has size {size!r} and sha1 {sha1!r}",
                    "Such an entry is not used; name another date.",
                )
            found.append({"name": file, "size_bytes": size, "sha1": sha1})
        if found:
            return {"wiki": wiki, "date": date, "files": sorted(found, key=lambda each: _order(each["name"]))}
    return None


def _order(name: str) -> list[Any]:
    """Numbers in a name count as numbers: …-multistream2.xml-p… before …-multistream10.xml-p…"""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]
