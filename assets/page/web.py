"""Dagster's webserver behind `Guard`; arguments are those of `dagster-webserver`.

python -m assets.page.web -w workspace.yaml --read-only -p 3001
"""

import os

from dagster_webserver import app, cli, webserver
from starlette.middleware import Middleware

from assets.page.guard import NAMES, Guard, named


class Guarded(webserver.DagsterWebserver):
    """Dagster's own application, with the guard before all else."""

    def build_middleware(self) -> list[Middleware]:
        """Dagster's, after ours."""
        names = frozenset(map(named, os.environ.get(NAMES, "").split()))
        return [Middleware(Guard, names=names), *super().build_middleware()]


def main() -> None:
    """Serve until somebody ends it."""
    app.DagsterWebserver = Guarded  # type: ignore[misc]
    cli.main()


if __name__ == "__main__":
    main()
