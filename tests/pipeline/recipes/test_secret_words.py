"""What is taken for a secret, what is not, and that nothing of it is told.

Forms of presigned URLs: docs.aws.amazon.com/AmazonS3/latest/API/sigv4-query-string-auth.html (X-Amz-Signature) and
RESTAuthentication.html (AWSAccessKeyId), cloud.google.com/storage/docs/access-control/signed-urls (X-Goog-Signature),
learn.microsoft.com/rest/api/storageservices/create-service-sas (sig).
"""

from typing import Any

import pytest

from pipeline.recipes.secret_words import is_secret_name, secret_in_text, secret_of_url, secrets_in

C = "CANARYpw77"


@pytest.mark.parametrize(
    "name",
    [
        *(
            "api_key",
            "apiKey",
            "API-KEY",
            "auth",
            "passwd",
            "password",
            "db.password",
            "pwd",
            "token",
            "HF_TOKEN",
            "accessToken",
        ),
        *(
            "s3_secret_access_key",
            "AWSAccessKeyId",
            "X-Amz-Signature",
            "X-Amz-Security-Token",
            "X-Goog-Credential",
            "sig",
        ),
        *("azure_connection_string", "client_secret", "Authorization", "private_key", "credentials"),
    ],
)
def test_names_of_secrets(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    [
        *(
            "micro_batch_tokens",
            "max_tokens",
            "tokenizer",
            "author",
            "passes",
            "signal",
            "monkey",
            "design",
            "flink_master",
        ),
        *("password_from", "token_file", "dataflow_kms_key", "parallelism", "", "é"),
    ],
)
def test_names_of_other_things(name: str) -> None:
    assert not is_secret_name(name)


@pytest.mark.parametrize(
    "url",
    [
        *(f"https://u:{C}@h/x", f"https://{C}@h/x", f"http://u:{C}@[::1]:80/", f"https://h:{C}/x"),
        *(f"postgresql://u:{C}/x@h/db", f"postgresql://u:{C}#x@h/db", f"postgresql://u:{C}@x@h:1/db"),
        *(
            f"https://b.example/k?X-Amz-Signature={C}",
            f"https://h/k?a=1&X-Goog-Signature={C}",
            f"https://h/k?se=1&sig={C}",
        ),
        *(f"https://h/k?AWSAccessKeyId={C}&Expires=1", f"https://h/k?token={C}", f"https://h/k#access_token={C}"),
        *(f"https://h/k?a=1;token={C}", "https://h/k?key=AIzaSyA1234567890CANARYpw77"),
    ],
)
def test_urls_that_let_one_in(url: str) -> None:
    found = secret_of_url(url)
    assert found and C not in found and "AIza" not in found


@pytest.mark.parametrize(
    "url",
    [
        *(
            "https://dumps.wikimedia.org",
            "http://[::1]:8080/x",
            "https://h/@scope/x?lang=en#part",
            "s3://bucket/folder",
        ),
        *(
            "http://flink-rest:8081",
            "https://h/w/index.php?title=A&author=b",
            "https://h:{port}/",
            "https://h/f?key=a/b.txt",
        ),
        *("https://h/f?token=", "file:///a/b@c"),
    ],
)
def test_urls_that_do_not(url: str) -> None:
    assert secret_of_url(url) == ""


@pytest.mark.parametrize(
    "text",
    [
        *(f"TOKEN={C} torchrun {{module}} {{run}}", f"cd x&&TOKEN={C} y", f"ssh h 'export HF_TOKEN=\"{C}\"; y'"),
        *(f"y --password {C}", f"y --api-key={C}", f"curl -H 'Authorization: Bearer {C}'", f"curl http://u:{C}@h/x"),
        *(f'--environment_config={{"pass": "{C}"}}', f"AccountName=x;AccountKey={C}==;Endpoint=core"),
    ],
)
def test_texts_that_hold_one(text: str) -> None:
    found = secret_in_text(text)
    assert found and C not in found


@pytest.mark.parametrize(
    "text",
    [
        "ssh gpu1 'cd /shared/bertworks && .venv/bin/python -m {module} {run}'",
        "srun --gres=gpu:1 --signal=TERM@120 .venv/bin/python -m {module} {run}",
        *(
            "TOKEN=$TOKEN y",
            'TOKEN="$TOKEN" y',
            'TOKEN="${TOKEN}" y',
            "ssh me@h y",
            "a token of love: three",
            "--token=$T y",
        ),
    ],
)
def test_texts_that_hold_none(text: str) -> None:
    assert secret_in_text(text) == ""


@pytest.mark.parametrize(
    ("value", "at"),
    [
        ({"beam": {"options": {"flink_master": f"http://u:{C}@h"}}}, "beam.options.flink_master"),
        ({"environment_config": f'{{"env": [{{"name": "MY_TOKEN", "value": "{C}"}}]}}'}, "environment_config.env.0"),
        ({"environment_config": f'{{"a": "{{\\"password\\": \\"{C}\\"}}"}}'}, "environment_config.a.password"),
        ({"a": [1, {"passwd": 123}]}, "a.1.passwd"),
        ({"experiments": ["--password", C]}, "experiments"),
        ({f"https://u:{C}@h": 1}, ""),
        ({"a": (f"TOKEN={C}",)}, "a"),
    ],
)
def test_secrets_are_found_at_any_depth(value: Any, at: str) -> None:
    ((where, found),) = secrets_in(value)
    assert where == at and C not in found


def test_flags_nothing_and_names_of_variables_are_no_secrets() -> None:
    settings = {
        "no_auth": True,
        "token": None,
        "password": "",
        "auth": "${AUTH}",
        "password_from": "X",
        "n": {"x": 1.5},
    }
    assert list(secrets_in(settings)) == []


def test_what_is_nested_without_end_is_not_believed() -> None:
    deep: Any = 1
    for _ in range(2000):
        deep = [deep]
    assert list(secrets_in({"a": deep}))
    assert list(secrets_in({"a": "[" * 100_000})) == []
