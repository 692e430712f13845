"""The compiled scanner of wikitext; all else stands in pyproject.toml. Without a C compiler it is left out, and
`pipeline.wikitext` does the same work in Python.
"""

import hashlib
from pathlib import Path

from setuptools import Extension, setup

PIPELINE = Path(__file__).parent / "pipeline"
SOURCES = hashlib.sha256(b"".join((PIPELINE / name).read_bytes() for name in ("wikitext.py", "wikitext_scan.pyx")))
"""`pipeline.wikitext` takes the compiled scanner only if it was built from the sources that stand there now."""

setup(
    ext_modules=[
        Extension(
            "pipeline.wikitext_scan",
            ["pipeline/wikitext_scan.pyx"],
            define_macros=[("SOURCES", f'"{SOURCES.hexdigest()}"')],
            extra_compile_args=["-O3"],
            optional=True,
        )
    ]
)
