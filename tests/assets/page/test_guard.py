"""Which requests the page answers: the rule by cases, and the real server asked as a hostile page would ask it.

Whether a browser can send a request without asking first (a "simple" one) is said by https://fetch.spec.whatwg.org/#cors-safelisted-request-header.
"""

import asyncio
import http.client
import json
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from starlette.datastructures import Headers
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from assets.page.guard import is_host, named, refusal
from tests.assets.bertcli import World, kill_tree
from tests.assets.test_ui_address import free_port
from tests.conftest import ROOT

JSON = "application/json"
MUTATION = 'mutation { deletePipelineRun(runId: "none") { __typename } }'
READS = "{ version }"


def asked(method: str = "GET", path: str = "/", kind: str = "http", **headers: str) -> str | None:
    given = {"host": "127.0.0.1:3000", **{k.replace("_", "-"): v for k, v in headers.items()}}
    return refusal(kind, method, path, Headers(given), frozenset({"bert.example.com"}))


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.0.0.1:8080",
        "localhost:3000",
        "LOCALHOST",
        "[::1]:3000",
        "bert.example.com",
        "BERT.example.com:8443",
    ],
)
def test_this_machine_and_named_hosts_are_answered(host: str) -> None:
    assert asked(host=host) is None
    assert asked("POST", "/graphql", host=host, origin=f"https://{host}", content_type=JSON) is None


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "evil.example:3000", "127.0.0.1.evil.example", "127.0.0.1:3000@evil.example", "127.0.0.2"),
        *(
            "",
            "localhost.",
            "0.0.0.0:3000",
            "[::2]",
            "127.0.0.1:",
            "127.0.0.1, evil.example",
            "bert.example.com.evil.example",
        ),
    ],
)
def test_any_other_host_is_refused(host: str) -> None:
    """A name of somebody's own that leads to 127.0.0.1 is how a page elsewhere becomes of the same origin."""
    assert "not known as" in str(asked(host=host))


def test_one_host_has_to_be_said() -> None:
    twice = Headers(raw=[(b"host", b"127.0.0.1"), (b"host", b"evil.example")])
    assert refusal("http", "GET", "/", twice, frozenset())
    assert refusal("http", "GET", "/", Headers(), frozenset())


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "null",
        "http://127.0.0.1",
        "http://127.0.0.1:9999",
        "http://localhost:3000",
        "",
        "127.0.0.1:3000",
    ],
)
def test_any_other_origin_is_refused(origin: str) -> None:
    for kind in ("http", "websocket"):
        assert "Another page" in str(asked("POST", "/graphql", kind, origin=origin, content_type=JSON))


@pytest.mark.parametrize(
    "content_type",
    [
        *("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/graphql", ""),
        "text/plain; x=application/json",  # simple for a browser, JSON for Dagster
    ],
)
def test_what_a_form_can_send_is_refused(content_type: str) -> None:
    for path in ("/graphql", "/report_asset_materialization/x"):
        assert "application/json" in str(asked("POST", path, content_type=content_type))


def test_graphql_by_get_is_the_page_alone() -> None:
    assert asked(path="/graphql", accept="text/html,*/*") is None
    for accept in ("*/*", JSON, ""):
        assert "POST" in str(asked(path="/graphql", accept=accept))


def test_hosts_are_named_as_headers_have_them() -> None:
    assert [named(host) for host in ("::1", "[::1]", "Bert.Example.com", "10.0.0.7")] == [
        *("[::1]", "[::1]", "bert.example.com", "10.0.0.7")
    ]


def test_a_name_is_a_host_alone(tmp_path: Path) -> None:
    assert all(map(is_host, ("bert.example.com", "Bert", "10.0.0.7", "::1", "[::1]")))
    for wrong in ("https://bert.example.com", "bert.example.com:8443", "bert.example.com/x", "a b", ""):
        assert not is_host(wrong), wrong
    told = World.make(tmp_path / "world").bert("ui", "--name", "https://bert.example.com", code=1)
    assert "--name https://bert.example.com is no host" in told and "--name bert.example.com" in told


@contextmanager
def answering(server: "subprocess.Popen[str]", port: int) -> Iterator[int]:
    """Wait until a server answers; at the end of the block end it, and all that it started."""
    try:
        deadline = time.monotonic() + 180
        while True:
            try:
                answer(port, "GET", "/server_info")
                break
            except OSError:
                assert server.poll() is None and time.monotonic() < deadline, "the page did not come up"
                time.sleep(0.5)
        yield port
    finally:
        kill_tree(server.pid)
        server.communicate()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World.make(tmp_path_factory.mktemp("page") / "world")


@pytest.fixture(scope="module")
def port(world: World) -> Iterator[int]:
    """Of a `bert ui` that is also known as bert.example.com."""
    port = free_port()
    with answering(world.start("ui", "--port", str(port), "--name", "bert.example.com"), port):
        yield port


def answer(port: int, method: str, path: str, body: str | None = None, **headers: str) -> tuple[int, str]:
    """Status and text of the real server's answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.putrequest(method, path, skip_host="host" in headers)
    for name, value in headers.items():
        connection.putheader(name.replace("_", "-"), value)
    if body is not None:
        connection.putheader("Content-Length", str(len(body)))
    connection.endheaders(None if body is None else body.encode())
    with closing(connection), connection.getresponse() as response:
        return response.status, response.read().decode()


def test_the_server_refuses_what_a_hostile_page_sends(port: int) -> None:
    body = json.dumps({"query": MUTATION})
    query = urllib.parse.quote(MUTATION)
    refused = [
        answer(port, "POST", "/graphql", body, host="evil.example", Content_Type=JSON),
        answer(port, "GET", "/", host=f"evil.example:{port}"),
        answer(port, "GET", "/server_info", host="evil.example"),
        answer(port, "POST", "/graphql", body, Origin="http://evil.example", Content_Type=JSON),
        answer(port, "POST", "/graphql", body, Content_Type="text/plain; x=application/json"),
        answer(port, "POST", f"/graphql?query={query}", "", Content_Type="text/plain"),
        answer(port, "GET", f"/graphql?query={query}"),
        answer(port, "GET", f"/%67raphql?query={query}"),
        answer(
            port, "POST", "/report_asset_materialization/tiny/release?data_version=x", "", Content_Type="text/plain"
        ),
    ]
    assert [status for status, _ in refused] == [403] * len(refused), refused
    assert all(said.endswith(".\n") or "bert ui --name" in said for _, said in refused), refused


def test_the_server_answers_its_own_page(port: int) -> None:
    body = json.dumps({"query": READS})
    for host in (f"127.0.0.1:{port}", f"localhost:{port}", "bert.example.com"):
        status, said = answer(port, "POST", "/graphql", body, host=host, Origin=f"http://{host}", Content_Type=JSON)
        assert status == 200 and json.loads(said)["data"]["version"], said
    status, said = answer(port, "POST", "/graphql", json.dumps({"query": MUTATION}), Content_Type=JSON)
    assert status == 200 and json.loads(said)["data"]["deletePipelineRun"]["__typename"] == "RunNotFoundError"
    assert answer(port, "GET", "/locations", Accept="text/html")[0] == 200


def test_no_other_page_may_show_it_in_a_frame(port: int) -> None:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=60) as response:
        assert response.headers["X-Frame-Options"] == "SAMEORIGIN"


@pytest.mark.parametrize("origin", ["own", None, "http://evil.example", "null"])
def test_websockets_are_of_its_own_page(port: int, origin: str | None) -> None:
    async def ask() -> str:
        own = f"http://127.0.0.1:{port}" if origin == "own" else origin
        async with connect(f"ws://127.0.0.1:{port}/graphql", origin=own, subprotocols=["graphql-ws"]) as socket:  # type: ignore[arg-type,list-item]
            await socket.send(json.dumps({"type": "connection_init"}))
            return str(json.loads(await socket.recv())["type"])

    if origin in ("own", None):
        assert asyncio.run(ask()) == "connection_ack"
        return
    with pytest.raises(InvalidStatus) as refused:
        asyncio.run(ask())
    assert refused.value.response.status_code == 403


def test_the_read_only_page_of_the_docs_is_guarded_too(world: World, port: int) -> None:
    other = free_port()
    command = [sys.executable, "-m", "assets.page.web", "-w", "workspace.yaml", "--read-only", "-p", str(other)]
    environment = {**world.environment, "DAGSTER_HOME": str(world.home / "dagster")}
    with answering(subprocess.Popen(command, env=environment, cwd=ROOT, text=True, start_new_session=True), other):
        assert answer(other, "GET", "/server_info")[0] == 200
        assert answer(other, "GET", "/server_info", host="evil.example")[0] == 403
