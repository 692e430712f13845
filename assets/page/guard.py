"""Which requests Dagster's page answers. Dagster has no login and asks nobody where a request is from, so any page that a person has
open could start and delete runs through their browser, by a form or by a host name of its own that leads to 127.0.0.1.
"""

import re
from collections.abc import Set

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

NAMES = "BERT_UI_NAMES"
"""environment variable: host names by which browsers reach the page, with spaces between them"""
LOCAL = frozenset({"127.0.0.1", "localhost", "[::1]"})
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^:\[\]@/\s]+)(?::\d+)?")
_READS = ("GET", "HEAD", "OPTIONS")


def named(host: str) -> str:
    """A host as it stands in a Host header: lower case, an IPv6 address in brackets."""
    return f"[{host.lower()}]" if ":" in host and not host.startswith("[") else host.lower()


def is_host(name: str) -> bool:
    """Whether a name is a host's alone, without scheme, port and path."""
    found = _HOST.fullmatch(named(name))
    return found is not None and found[1] == named(name)


def refusal(kind: str, method: str, path: str, headers: Headers, names: Set[str]) -> str | None:
    """Why a request is not answered, or None.

    `kind` is the ASGI scope's, "http" or "websocket"; `names` are the hosts under which the page is known, beside those of this
    machine.
    """
    hosts, origins = headers.getlist("host"), headers.getlist("origin")
    host = _HOST.fullmatch(hosts[0].lower()) if len(hosts) == 1 else None
    if host is None or host[1] not in LOCAL | names:
        return (
            f"This page is not known as {_told(hosts)}: open it as 127.0.0.1, or name the host when you start it: "
            "bert ui --name HOST"
        )
    # A browser says where a request is from unless it only reads; a command need not.
    if origins and [origin.lower().partition("://")[2] for origin in origins] != [hosts[0].lower()]:
        return f"Another page, {_told(origins)}, may not ask this one anything."
    if kind == "websocket":
        return None
    content = headers.get("content-type", "").partition(";")[0].strip().lower()
    if method not in _READS and content != "application/json":  # which a page elsewhere can't send without asking first
        return "What changes something is asked for by POST with Content-Type: application/json."
    if path.endswith("/graphql") and method in _READS and "text/html" not in headers.get("accept", ""):
        return "GraphQL is asked by POST with Content-Type: application/json."  # Dagster would run mutations by GET
    return None


def _told(values: list[str]) -> str:
    """Header values in an answer: what is no name is not repeated."""
    value = ", ".join(values)
    return value if re.fullmatch(r"[\w.:/\[\]-]{1,200}", value) else "what it was asked for as"


class Guard:
    """An ASGI application before another: what `refusal` says no to is answered with 403 and its reason."""

    def __init__(self, app: ASGIApp, names: Set[str]) -> None:
        self.app = app
        self.names = names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer or refuse one request."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        why = refusal(scope["type"], scope.get("method", ""), scope["path"], Headers(scope=scope), self.names)
        if why is not None:
            await PlainTextResponse(why + "\n", status_code=403)(scope, receive, send)
            return

        async def unframed(message: Message) -> None:
            """In a frame of another page, a person could be led to press our buttons."""
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).append("X-Frame-Options", "SAMEORIGIN")
            await send(message)

        await self.app(scope, receive, unframed)
