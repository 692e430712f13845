"""Small dumps made here."""

import bz2

SITEINFO = """<siteinfo><sitename>Wikipedia</sitename><dbname>tlwiki</dbname>
<base>https://tl.wikipedia.org/wiki/Unang_Pahina</base><namespaces><namespace key="-2">Midya</namespace>
<namespace key="0" /><namespace key="6">Talaksan</namespace><namespace key="14">Kategorya</namespace></namespaces></siteinfo>"""


def page(title, page_id, text, ns="<ns>0</ns>", head="", attributes='xml:space="preserve"', model="wikitext"):
    return (
        f"<page><title>{title}</title>{ns}<id>{page_id}</id>{head}<revision><id>{page_id}00</id>"
        f"<parentid>5</parentid><timestamp>2024-02-29T23:59:59Z</timestamp><contributor><username>U</username><id>7</id>"
        f"</contributor><model>{model}</model><format>text/x-wiki</format><text {attributes}>{text}</text></revision></page>"
    )


def dump(*pages, siteinfo=SITEINFO, version="0.11", end="</mediawiki>"):
    start = f'<mediawiki xmlns="http://www.mediawiki.org/xml/export-{version}/" version="{version}" xml:lang="tl">'
    return (start + siteinfo + "".join(pages) + end).encode()


def write(folder, data, name="tlwiki-pages-articles.xml"):
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_bytes(data)
    return path


def multistream(data, per=2, head=True):
    """As MediaWiki writes it: a stream for what comes before the pages, one for every `per` pages, one for the end."""
    begin = data.index(b"<page>")
    end = data.rindex(b"</page>") + 7
    pages = [b"<page>" + part for part in data[begin:end].split(b"<page>")[1:]]
    packed = [b"".join(pages[i : i + per]) for i in range(0, len(pages), per)]
    return [bz2.compress(part) for part in (data[:begin], *packed, data[end:])]


def index(streams, titles, per=2):
    """The index of such a file; `titles`: (page id, title) in its order."""
    offsets = [sum(map(len, streams[: number + 1])) for number in range(len(streams))]
    return "".join(f"{offsets[i // per]}:{page_id}:{title}\n" for i, (page_id, title) in enumerate(titles)).encode()
