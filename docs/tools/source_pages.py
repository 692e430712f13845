"""A hook of mkdocs: files of the repository that pages link to become pages of the site.

Pages under docs/ link to recipes and source files as they lie in the repository (`../recipes/demo.yaml`), so that the
links work there. The site holds docs/ alone, so each of these files is given a page `source/PATH` with its text, and the
links lead there. A link that leads to no file is left as it is: `mkdocs build --strict` then names it.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

LINK = re.compile(r"\]\((?P<target>[^)\s#:]+)\)")
LANGUAGES = {".py": "python", ".pyx": "python", ".yaml": "yaml", ".toml": "toml", ".md": "markdown", ".lock": "text"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for every file outside of docs/ that some page links to."""
    docs = Path(config.docs_dir)
    for file in list(files.documentation_pages()):
        for link in LINK.finditer(file.content_string):
            path = _outside(file.src_uri, link["target"])
            uri = f"source/{path}.md"
            if path and (docs.parent / path).is_file() and files.get_file_from_path(uri) is None:
                files.append(File.generated(config, uri, content=_shown(docs.parent / path, path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links out of docs/ to the pages that were made."""
    here = posixpath.dirname(page.file.src_uri)

    def led(link: re.Match[str]) -> str:
        path = _outside(page.file.src_uri, link["target"])
        known = path and files.get_file_from_path(f"source/{path}.md")
        return f"]({posixpath.relpath(f'source/{path}.md', here or '.')})" if known else link[0]

    return markdown if here.startswith("source") else LINK.sub(led, markdown)


def _outside(page: str, target: str) -> str:
    """The path from the repository's root of a link that leaves docs/; empty for every other link.

    page: path of the page that links, below docs/.
    """
    path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), target))
    return "" if path.startswith(("docs/", "..", "/")) else path


def _shown(file: Path, path: str) -> str:
    """A page with the text of a file, fenced by more backticks than it holds."""
    text = file.read_text(encoding="utf-8")
    return f"# {path}\n\n`````{LANGUAGES.get(file.suffix, 'text')}\n{text.rstrip()}\n`````\n"
