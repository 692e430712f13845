"""Real servers on 127.0.0.1 that alerts go to: a webhook, and SMTP with or without STARTTLS.

webhook.answers = [503, 200]     what the next requests get; afterwards 204
webhook.got                      (path, headers, body as a value) of every request
smtp.got                         (envelope sender, recipients, message) of every mail that was taken
smtp.logins                      (user, password)
"""

import base64
import http.server
import json
import socketserver
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path
from typing import Any


class Webhook(http.server.ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Hook)
        self.answers: list[int] = []
        self.got: list[tuple[str, dict[str, str], Any]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/hook"


class _Hook(http.server.BaseHTTPRequestHandler):
    server: Webhook

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.append((self.path, dict(self.headers), json.loads(body)))
        self.send_response(self.server.answers.pop(0) if self.server.answers else 204)
        self.send_header("Location", "/elsewhere")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_GET(self) -> None:
        self.server.got.append((self.path, dict(self.headers), "GET"))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Quiet."""


class Smtp(socketserver.ThreadingTCPServer):
    """As much of RFC 5321, RFC 3207 and AUTH PLAIN as a mail needs."""

    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Session)
        self.tls = tls
        self.refuse: list[str] = []
        """answers to the next MAIL commands"""
        self.got: list[tuple[str, list[str], EmailMessage]] = []
        self.logins: list[tuple[str, str]] = []

    @property
    def port(self) -> int:
        return int(self.server_address[1])


class _Session(socketserver.StreamRequestHandler):
    server: Smtp

    def handle(self) -> None:
        self.encrypted, sender, recipients = False, "", list[str]()
        self.say("220 ready")
        while line := self.rfile.readline().decode().rstrip("\r\n"):
            word = line.split(" ")[0].upper()
            if word == "EHLO":
                offers = ["STARTTLS"] if self.server.tls and not self.encrypted else []
                offers += ["AUTH PLAIN"] if self.encrypted or not self.server.tls else []
                lines = ["localhost", *offers]
                for offer in lines[:-1]:
                    self.say(f"250-{offer}")
                self.say(f"250 {lines[-1]}")
            elif word == "STARTTLS" and self.server.tls:
                self.say("220 go on")
                self.request = self.server.tls.wrap_socket(self.request, server_side=True)
                self.rfile, self.wfile = self.request.makefile("rb"), self.request.makefile("wb", buffering=0)
                self.encrypted = True
            elif word == "AUTH":
                _, user, password = base64.b64decode(line.split(" ")[2]).decode().split("\0")
                self.server.logins.append((user, password))
                self.say("235 welcome")
            elif word == "MAIL":
                sender = line
                self.say(self.server.refuse.pop(0) if self.server.refuse else "250 ok")
            elif word == "RCPT":
                recipients.append(line.partition("<")[2].partition(">")[0])
                self.say("250 ok")
            elif word == "DATA":
                self.say("354 go on")
                data = b""
                while (part := self.rfile.readline()) != b".\r\n":
                    data += part
                parsed = message_from_bytes(data, policy=policy.default)
                assert isinstance(parsed, EmailMessage)
                self.server.got.append((sender, recipients, parsed))
                self.say("250 taken")
            elif word == "QUIT":
                self.say("221 bye")
                self.request.close()
                return
            else:
                self.say("250 ok")

    def say(self, line: str) -> None:
        self.wfile.write(f"{line}\r\n".encode())


@contextmanager
def webhook() -> Iterator[Webhook]:
    with Webhook() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@contextmanager
def smtp(tls: ssl.SSLContext | None = None) -> Iterator[Smtp]:
    with Smtp(tls) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def certificate(folder: Path) -> tuple[ssl.SSLContext, Path]:
    """A server's context for `localhost`, and the file of what a client must trust for it."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    made = builder.sign(key, hashes.SHA256())
    trusted, private = folder / "trusted.pem", folder / "private.pem"
    trusted.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(trusted, private)
    return context, trusted
