"""An object store on this machine: moto's server in a process of its own, which speaks S3 over HTTP."""

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.error import URLError
from uuid import uuid4

ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}


@contextmanager
def server() -> Iterator[str]:
    """The server's URL; it ends with the block."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + 60
        while not _answers(url):
            assert process.poll() is None and time.monotonic() < deadline, "moto's server did not start"
            time.sleep(0.1)
        yield url
    finally:
        process.kill()
        process.wait()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/moto-api/", timeout=5):
            return True
    except (URLError, OSError):
        return False


@contextmanager
def environment(url: str) -> Iterator[None]:
    """Within the block, this process and its children find the server and credentials in their environment."""
    wanted = {**ENVIRONMENT, "AWS_ENDPOINT_URL": url}
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


def new_bucket() -> str:
    """URL of a folder in a bucket of its own."""
    import boto3

    name = f"test-{uuid4().hex}"
    boto3.client("s3").create_bucket(Bucket=name)
    return f"s3://{name}/some/folder"
