"""Alerts: what a person should hear of, told once by a webhook and by e-mail (`alerts` in settings.yaml, docs/alerts.md).

    alert(settings(), Alert("run failed", "demo", run_id, cause="…", next="bert status demo"))

    alerts/<name>.json   under the home folder: the alert, and what became of it on each way

A way is noted as begun before anything is sent, and as sent afterwards. A process that dies in between leaves an alert of
which nobody knows whether it arrived; it is not sent again: one happening, one alert. What was surely refused is sent again
by `resend`, for a day. Nothing here raises: an alert that can't be sent is logged, and fails no run.
"""

import http.client
import json
import logging
import os
import platform
import re
import smtplib
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from email.message import EmailMessage
from email.utils import formatdate
from pathlib import Path
from typing import Any, Literal

from pipeline.errors import BertError
from pipeline.settings import EmailSettings, Settings, WebhookSettings
from pipeline.storage.record import utc_now
from pipeline.system.atomic import explained, read_kept, write_json
from pipeline.system.owners import held_lock
from pipeline.system.terminal import steady

TIMEOUT_SECONDS = 5.0
"""without an answer, after which an attempt has failed"""
PAUSES_SECONDS = (0.5, 2.0)
"""before the second and the third attempt: a sensor has a minute in all"""
RESEND_FOR = timedelta(days=1)
LONGEST_CAUSE = 2_000
TLS_PORT = 465
"""SMTP over TLS from the first byte: RFC 8314, section 7.3"""

_URL = re.compile(r"https?://[^/?#\s]+([/?][^#\s]*)?$", re.IGNORECASE)
_log = logging.getLogger(__name__)
Kind = Literal["run failed", "retrain held", "promoted", "promotion refused", "rolled back"]
Note = dict[str, Any]


@dataclass(frozen=True)
class Alert:
    """What a person should hear of."""

    kind: Kind
    recipe: str
    happening: str
    """which one of its kind, of this recipe: the id of a run, the date of a held dump, the digest of a decision's record. One
    that was told is not told again"""
    cause: str
    """what is wrong, or why: the last reason of an asset, the gate or check that failed"""
    next: str
    """the next command"""
    run: str = ""
    """id of the run"""
    asset: str = ""

    @property
    def name(self) -> str:
        """Of its note, and what receivers know it by."""
        return re.sub(r"[^A-Za-z0-9_.-]", "-", f"{self.kind}-{self.recipe}-{self.happening}")

    @property
    def title(self) -> str:
        """`demo: run failed`."""
        return f"{self.recipe}: {self.kind}"

    @property
    def text(self) -> str:
        """For a person: a line for each thing that is known."""
        told = {"run": self.run, "asset": self.asset, "cause": self.cause, "next": self.next}
        return steady("\n".join([self.title, *(f"{name:6} {value}" for name, value in told.items() if value)]))


class _Refused(Exception):
    """It was not taken, for this reason; `again`: it may be later."""

    def __init__(self, why: str, again: bool) -> None:
        super().__init__(why)
        self.again = again


def alert(chosen: Settings, said: Alert) -> None:
    """Tell, by every way that the settings name, what was not told before. Raises nothing: what can't be sent is logged."""
    if chosen.alerts is None:
        return
    path = chosen.home_path / "alerts" / f"{said.name}.json"
    if len(said.cause) > LONGEST_CAUSE:
        said = replace(said, cause=f"{said.cause[:LONGEST_CAUSE]}…")
    with _logged(said.name), explained(path), held_lock(chosen.home_path / "locks" / "alerts"):
        note: Note = read_kept(path) or {"alert": asdict(said), "time": utc_now(), "ways": {}}
        _tell(chosen, path, note)


def resend(chosen: Settings) -> None:
    """Send again what was refused, for a day, until one is refused again. Raises nothing."""
    if chosen.alerts is None:
        return
    for path in sorted((chosen.home_path / "alerts").glob("[!.]*.json")):
        with _logged(path.stem), explained(path), held_lock(chosen.home_path / "locks" / "alerts"):
            note = read_kept(path)
            young = datetime.now(UTC) - datetime.fromisoformat(note["time"]) < RESEND_FOR
            if young and any(way["state"] == "refused" for way in note["ways"].values()):
                _tell(chosen, path, note)
                if any(way["state"] == "refused" for way in note["ways"].values()):
                    return


@contextmanager
def _logged(name: str) -> Iterator[None]:
    """Within the block, what goes wrong with files and notes is logged and ends the block."""
    try:
        yield
    except (BertError, OSError, KeyError, TypeError, ValueError) as error:
        _log.warning("alert %s: %s", name, error)


def _tell(chosen: Settings, path: Path, note: Note) -> None:
    """By every way by which it was not told yet; the note says so before and afterwards."""
    assert chosen.alerts is not None
    said, webhook, email = Alert(**note["alert"]), chosen.alerts.webhook, chosen.alerts.email
    ways: dict[str, Callable[[], None]] = {}
    if webhook is not None:
        ways["webhook"] = lambda: _post(webhook, said, note["time"])
    if email is not None:
        ways["email"] = lambda: _mail(email, said)
    for way, send in ways.items():
        if note["ways"].get(way, {"state": "refused"})["state"] != "refused":
            continue  # sent, or begun by a process that died: it may have arrived
        note["ways"][way] = {"state": "begun", "time": utc_now()}
        write_json(path, note)
        why = _patiently(send)
        note["ways"][way] = {"state": "refused" if why else "sent", "time": utc_now(), **({"why": why} if why else {})}
        write_json(path, note)
        if why:
            _log.warning("alert %s was not sent by %s: %s; it says\n%s", said.name, way, why, said.text)


def _patiently(send: Callable[[], None]) -> str:
    """Try a few times; why it was not taken, or ""."""
    for pause in (*PAUSES_SECONDS, None):
        try:
            send()
            return ""
        except _Refused as refused:
            if pause is None or not refused.again:
                return str(refused)
        time.sleep(pause)
    raise AssertionError("the last attempt returns")


def _variable(name: str) -> str:
    value = os.environ.get(name, "")
    if not value:
        raise _Refused(f"the environment variable {name} is not set", again=False)
    return value


# ── webhook ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class _Stay(urllib.request.HTTPRedirectHandler):
    """A POST that is redirected would arrive as an empty GET."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _post(webhook: WebhookSettings, said: Alert, time_: str) -> None:
    """POST as JSON. The name stands in the body and as `Idempotency-Key`, so that receivers can tell a repeated one."""
    url = webhook.url or _variable(webhook.url_from or "")
    if not _URL.match(url):  # nor is it told, here and below: it may be a secret
        raise _Refused("what it names is no URL", again=False)
    body = {"name": said.name, "time": time_, "host": platform.node(), "text": said.text, **asdict(said)}
    headers = {"Content-Type": "application/json", "User-Agent": "bertworks", "Idempotency-Key": said.name}
    try:
        request = urllib.request.Request(url, json.dumps(body, ensure_ascii=False).encode(), headers, method="POST")
        with urllib.request.build_opener(_Stay).open(request, timeout=TIMEOUT_SECONDS):
            return
    except urllib.error.HTTPError as error:
        error.close()
        raise _Refused(f"HTTP {error.code}", again=error.code >= 500 or error.code == 429) from None
    except urllib.error.URLError as error:
        raise _Refused(str(error.reason), again=True) from None
    except (http.client.InvalidURL, ValueError):  # a port that is no number, a host that can't be one
        raise _Refused("what it names is no URL", again=False) from None
    except (OSError, http.client.HTTPException) as error:  # the connection broke, or no HTTP came back
        raise _Refused(str(error) or type(error).__name__, again=True) from None


# ── e-mail ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _mail(email: EmailSettings, said: Alert) -> None:
    """Send by SMTP. A repeated one has the same Message-ID."""
    message = EmailMessage()
    message["Subject"], message["From"], message["To"] = f"bertworks: {said.title}", email.from_, ", ".join(email.to)
    message["Date"], message["Message-ID"] = (
        formatdate(localtime=True),
        f"<{said.name}@{platform.node() or 'bertworks'}>",
    )
    message.set_content(said.text)
    login = (_variable(email.user_from), _variable(email.password_from or "")) if email.user_from else None
    try:
        with _connected(email) as server:
            server.ehlo()
            encrypted = email.port == TLS_PORT
            if not encrypted and server.has_extn("starttls"):
                server.starttls(context=ssl.create_default_context())
                encrypted = True
            if login is not None:
                if not encrypted:
                    raise _Refused(f"{email.host} offers no TLS, and a password goes over TLS only", again=False)
                server.login(*login)
            refused = server.send_message(message)
        if refused:
            _log.warning("alert %s was not taken for %s", said.name, ", ".join(refused))
    except smtplib.SMTPRecipientsRefused as error:
        raise _Refused(f"no recipient was taken: {', '.join(error.recipients)}", again=False) from None
    except smtplib.SMTPResponseException as error:
        said_ = error.smtp_error.decode(errors="replace") if isinstance(error.smtp_error, bytes) else error.smtp_error
        raise _Refused(f"SMTP {error.smtp_code} {said_}", again=400 <= error.smtp_code < 500) from None
    except (smtplib.SMTPException, OSError) as error:
        raise _Refused(str(error) or type(error).__name__, again=not isinstance(error, ssl.SSLError)) from None


def _connected(email: EmailSettings) -> smtplib.SMTP:
    if email.port == TLS_PORT:
        return smtplib.SMTP_SSL(email.host, email.port, timeout=TIMEOUT_SECONDS, context=ssl.create_default_context())
    return smtplib.SMTP(email.host, email.port, timeout=TIMEOUT_SECONDS)
