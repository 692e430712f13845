"""The compiled scanner of wikitext; all else stands in pyproject.toml. Without a C compiler it is left out, and
`pipeline.wikitext` does the same work in Python.
"""

from setuptools import Extension, setup

setup(ext_modules=[Extension("pipeline.wikitext_scan", ["pipeline/wikitext_scan.pyx"], optional=True)])
