"""Alerts, sent to real servers: once for each happening, by every way, whatever the ways do."""

import json
import logging
import socket
from pathlib import Path
from typing import Any

import pytest

from pipeline.errors import RecipeError
from pipeline.retrains import alerts
from pipeline.retrains.alerts import Alert, alert, resend
from pipeline.settings import Settings, settings
from tests.pipeline.receivers import certificate, smtp, webhook

FAILED = Alert(
    "run failed", "monthly", "0a1b", "documents: 3 rows (expected ≥ 10)", "bert status monthly", "0a1b", "documents"
)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alerts, "PAUSES_SECONDS", (0.01, 0.01))
    monkeypatch.delenv("BERT_HOME", raising=False)


def chosen(home: Path, **ways: Any) -> Settings:
    return Settings.model_validate({"home": str(home), "alerts": ways})


def note(home: Path, said: Alert = FAILED) -> Any:
    return json.loads((home / "alerts" / f"{said.name}.json").read_text(encoding="utf-8"))


def test_the_webhook_gets_what_a_person_needs_once(tmp_path: Path) -> None:
    with webhook() as server:
        to = chosen(tmp_path, webhook={"url": server.url})
        for _ in range(2):  # the run's own process, and the daemon's sensor
            alert(to, FAILED)
        resend(to)
        ((path, headers, body),) = server.got
        assert path == "/hook" and headers["Content-Type"] == "application/json"
        assert {name: body[name] for name in ("kind", "recipe", "run", "asset", "cause", "next")} == {
            "kind": "run failed",
            "recipe": "monthly",
            "run": "0a1b",
            "asset": "documents",
            "cause": "documents: 3 rows (expected ≥ 10)",
            "next": "bert status monthly",
        }
        assert body["text"].splitlines()[0] == "monthly: run failed" and "next   bert status monthly" in body["text"]
        assert headers["Idempotency-Key"] == body["name"] == "run-failed-monthly-0a1b"
        alert(to, Alert("run failed", "monthly", "0a1c", "again", "bert status monthly"))
        alert(to, Alert("retrain held", "monthly", "0a1b", "shrunk", "bert run monthly --dump 20260201"))
        assert [got[2]["name"] for got in server.got[1:]] == ["run-failed-monthly-0a1c", "retrain-held-monthly-0a1b"]


def test_nobody_is_told_where_no_way_is_named(tmp_path: Path) -> None:
    alert(Settings(home=str(tmp_path)), FAILED)
    resend(Settings(home=str(tmp_path)))
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_fails_for_a_moment_is_asked_again(tmp_path: Path) -> None:
    with webhook() as server:
        server.answers = [503, 429]
        alert(chosen(tmp_path, webhook={"url": server.url}), FAILED)
        assert len(server.got) == 3 and note(tmp_path)["ways"]["webhook"]["state"] == "sent"
        assert len({got[1]["Idempotency-Key"] for got in server.got}) == 1


@pytest.mark.parametrize(("status", "asked"), [(404, 1), (302, 1), (500, 3)])
def test_what_is_refused_is_logged_and_raises_nothing(
    tmp_path: Path, status: int, asked: int, caplog: pytest.LogCaptureFixture
) -> None:
    with webhook() as server, caplog.at_level(logging.WARNING):
        server.answers = [status] * 3
        alert(chosen(tmp_path, webhook={"url": server.url}), FAILED)
        assert len(server.got) == asked, "a redirected POST would arrive empty"
    assert f"HTTP {status}" in caplog.text and "next   bert status monthly" in caplog.text


def test_what_was_refused_goes_out_once_the_server_is_back(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        closed = f"http://127.0.0.1:{probe.getsockname()[1]}/hook"
    down = chosen(tmp_path, webhook={"url": closed})
    for number in range(2):
        alert(down, Alert("run failed", "monthly", str(number), "cause", "next"))
    assert "Connection refused" in caplog.text
    with webhook() as server:
        up = chosen(tmp_path, webhook={"url": server.url})
        resend(up)
        resend(up)
        assert [got[2]["happening"] for got in server.got] == ["0", "1"]


def test_one_that_was_begun_by_a_process_that_died_is_not_sent_twice(tmp_path: Path) -> None:
    with webhook() as server:
        to = chosen(tmp_path, webhook={"url": server.url})
        alert(to, FAILED)
        path = tmp_path / "alerts" / f"{FAILED.name}.json"
        told = note(tmp_path)
        told["ways"]["webhook"] = {"state": "begun", "time": told["time"]}
        path.write_text(json.dumps(told), encoding="utf-8")
        alert(to, FAILED)
        resend(to)
        assert len(server.got) == 1


def test_a_note_that_is_damaged_and_a_home_that_is_none_raise_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with webhook() as server:
        to = chosen(tmp_path / "home", webhook={"url": server.url})
        alert(to, FAILED)
        (tmp_path / "home" / "alerts" / f"{FAILED.name}.json").write_text("{", encoding="utf-8")
        alert(to, FAILED)
        resend(to)
        assert "is damaged" in caplog.text
        (tmp_path / "file").write_text("", encoding="utf-8")
        alert(chosen(tmp_path / "file", webhook={"url": server.url}), FAILED)
        assert len(server.got) == 1


def test_the_webhook_may_be_named_by_a_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    to = chosen(tmp_path, webhook={"url_from": "TEST_HOOK"})
    monkeypatch.setenv("TEST_HOOK", "my secret")
    alert(to, FAILED)
    assert "no URL" in caplog.text
    monkeypatch.delenv("TEST_HOOK")
    resend(to)
    assert "TEST_HOOK is not set" in caplog.text and "my secret" not in caplog.text
    with webhook() as server:
        monkeypatch.setenv("TEST_HOOK", server.url)
        resend(to)
        assert len(server.got) == 1
    assert server.url not in (tmp_path / "alerts" / f"{FAILED.name}.json").read_text(encoding="utf-8")


def email(port: int, **more: Any) -> dict[str, Any]:
    return {
        "host": "localhost",
        "port": port,
        "from": "bert@example.org",
        "to": ["a@example.org", "b@example.org"],
        **more,
    }


def test_mail_goes_to_everybody_beside_the_webhook(tmp_path: Path) -> None:
    with webhook() as hook, smtp() as server:
        server.refuse = ["451 busy"]
        to = chosen(tmp_path, webhook={"url": hook.url}, email=email(server.port))
        alert(to, FAILED)
        alert(to, FAILED)
        ((sender, recipients, message),) = server.got
        assert len(hook.got) == 1
    assert "bert@example.org" in sender and recipients == ["a@example.org", "b@example.org"]
    assert message["Subject"] == "bertworks: monthly: run failed" and message["To"] == "a@example.org, b@example.org"
    assert message["Message-ID"].startswith("<run-failed-monthly-0a1b@")
    assert "cause  documents: 3 rows (expected ≥ 10)" in message.get_content()


def test_a_password_goes_over_tls_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("TEST_USER", "me")
    monkeypatch.setenv("TEST_PASSWORD", "hidden")
    login = {"user_from": "TEST_USER", "password_from": "TEST_PASSWORD"}
    with smtp() as server:
        alert(chosen(tmp_path, email=email(server.port, **login)), FAILED)
        assert server.got == [] and server.logins == []
    assert "offers no TLS" in caplog.text
    context, trusted = certificate(tmp_path)
    with smtp(context) as server:
        to = chosen(tmp_path, email=email(server.port, **login))
        resend(to)
        assert server.got == [], "nobody vouches for this certificate"
        assert "certificate verify failed" in caplog.text
        monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
        resend(to)
        assert server.logins == [("me", "hidden")] and len(server.got) == 1
    assert "hidden" not in caplog.text


@pytest.mark.parametrize(
    ("section", "told"),
    [
        ("{}", "needs webhook or email"),
        ("{webhook: {}}", "needs url, or url_from"),
        ("{webhook: {url: 'http://h/x', url_from: V}}", "has url and url_from: keep one"),
        ("{webhook: {url: 'https://me:pass@h/x'}}", "must not hold a user or password"),
        ("{webhook: {url: 'ftp://h/x'}}", "alerts.webhook.url"),
        ("{webhook: {url_from: 'https://h'}}", "alerts.webhook.url_from"),
        ("{email: {host: h, from: a@b, to: [c@d], user_from: U}}", "user_from and password_from go together"),
        ("{email: {host: h, from: a@b, to: []}}", "alerts.email.to"),
        ("{email: {host: h, from: a@b, to: ['c@d, e@f']}}", "alerts.email.to"),
        ("{email: {host: h, from: a@b, to: [c@d], password: x}}", "alerts.email.password"),
        ("{email: {host: h, from: a@b, to: [c@d], port: true}}", "must be a number; it is true"),
    ],
)
def test_settings_that_can_t_be_meant(section: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(f"alerts: {section}\n", encoding="utf-8")
    monkeypatch.setenv("BERT_SETTINGS", str(file))
    with pytest.raises(RecipeError) as refused:
        settings()
    assert told in refused.value.what and "me:pass" not in refused.value.what


@pytest.mark.parametrize(
    "url",
    [
        "https://127.0.0.1:CANARY7/x",
        "not a url CANARY7",
        "CANARY7:x",
        "http://h/CANARY7 x",
        "http://h\x00CANARY7/",
        "http://CANARY7..é/",
    ],
)
def test_an_address_that_is_none_is_not_told(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    if "\0" not in url:
        monkeypatch.setenv("TEST_HOOK", url)
        to = chosen(tmp_path, webhook={"url_from": "TEST_HOOK"})
    else:
        to = chosen(tmp_path, webhook={"url": url})
    alert(to, FAILED)
    assert "what it names is no URL" in caplog.text
    written = [path.read_text(encoding="utf-8") for path in to.home_path.rglob("*") if path.is_file()]
    assert written and not [text for text in [caplog.text, *written] if "canary7" in text.lower()]


def test_no_record_holds_where_alerts_go(tmp_path: Path) -> None:
    """`build` records what `plain` gives."""
    told = Settings.model_validate(
        {"alerts": {"webhook": {"url": "https://hooks.example.org/T0/secret"}}, "metrics": "m"}
    )
    assert not {"alerts", "metrics"} & set(told.plain()) and "secret" not in json.dumps(told.plain())
