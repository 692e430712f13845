"""croissant.json: the training text as a data set, in the Croissant format 1.1 (docs.mlcommons.org/croissant): every original
file and every file of the documents with size and SHA-256, licences, languages, and the columns of the documents.
"""

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from pipeline.attestations.chain import (
    DOCUMENTS,
    UNKNOWN,
    Chain,
    Source,
    Work,
    licences,
    made_elsewhere,
    originals,
    sources,
)
from pipeline.schemas import DOCUMENTS_SCHEMA

FILE = "croissant.json"
CONFORMS_TO = "http://mlcommons.org/croissant/1.1"
CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "arrayShape": "cr:arrayShape",
    "citeAs": "cr:citeAs",
    "column": "cr:column",
    "conformsTo": "dct:conformsTo",
    "containedIn": "cr:containedIn",
    "cr": "http://mlcommons.org/croissant/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "description": {"@container": "@language"},
    "equivalentProperty": "cr:equivalentProperty",
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "extract": "cr:extract",
    "field": "cr:field",
    "fileObject": "cr:fileObject",
    "fileProperty": "cr:fileProperty",
    "fileSet": "cr:fileSet",
    "format": "cr:format",
    "includes": "cr:includes",
    "isArray": "cr:isArray",
    "isLiveDataset": "cr:isLiveDataset",
    "jsonPath": "cr:jsonPath",
    "key": "cr:key",
    "md5": "cr:md5",
    "name": {"@container": "@language"},
    "parentField": "cr:parentField",
    "path": "cr:path",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "recordSet": "cr:recordSet",
    "references": "cr:references",
    "regex": "cr:regex",
    "repeated": "cr:repeated",
    "replace": "cr:replace",
    "samplingRate": "cr:samplingRate",
    "sc": "https://schema.org/",
    "separator": "cr:separator",
    "source": "cr:source",
    "subField": "cr:subField",
    "transform": "cr:transform",
}
"""the JSON-LD context that the format's specification asks for"""
_TYPES = {".parquet": "application/x-parquet", ".bz2": "application/x-bzip2", ".gz": "application/gzip"}
_TYPES |= {".zip": "application/zip", ".epub": "application/epub+zip", ".csv": "text/csv", ".txt": "text/plain"}
_TYPES |= {".jsonl": "application/jsonlines", ".json": "application/json", ".xml": "application/xml"}
PARTS = "documents-parts"


def croissant(chain: Chain, provider: str) -> dict[str, Any]:
    """The data set that the model was trained on. provider: who publishes it; "" unknown."""
    documents = chain.last(DOCUMENTS)
    told = sources(chain)
    version = documents.record.version if documents else chain.model.record.version
    languages = sorted({source.language for source in told})
    parts = list(_parts(documents)) if documents else []
    return {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": CONFORMS_TO,
        "@id": (documents or chain.model).urn,
        "name": f"{chain.model.record.recipe}_training_text",
        "description": _description(chain, told, documents),
        "url": (documents or chain.model).urn,
        # No version is another's patch: what differs is the build, which a digest names.
        "version": f"1.0.0+{version}",
        "citeAs": f"{chain.model.record.recipe}, training text, version {version}",
        "license": licences(chain) or [UNKNOWN],
        "inLanguage": languages or [UNKNOWN],
        "creator": {"@type": "sc:Organization", "name": provider or UNKNOWN},
        "datePublished": _date(documents or chain.model),
        "isLiveDataset": False,
        "distribution": [*_originals(chain, told), *parts, *([_set()] if parts else [])],
        "recordSet": [_records()] if parts else [],
    }


def _description(chain: Chain, told: list[Source], documents: Work | None) -> str:
    """What it is, and what of it is not known."""
    named = ", ".join(f"{source.name} ({source.kind}, {source.language}, {source.train} documents)" for source in told)
    said = [f"The text that {chain.model.record.recipe} was pretrained on: {named or UNKNOWN}."]
    if made_elsewhere(chain):
        said.append("Its training began from a model made elsewhere, the text of which is unknown.")
    if documents and documents.files is None:
        said.append("The documents were removed from the store: their files are unknown, their version is not.")
    elif documents:
        said.append("The column split tells training documents from those that were held out.")
    return " ".join(said)


def _date(work: Work) -> str:
    return work.times[1][:10] if work.times else UNKNOWN


def _originals(chain: Chain, told: list[Source]) -> Iterator[dict[str, Any]]:
    seen = set()
    for source in told:
        for file in originals(source.files) if source.files else ():
            name = quote(f"{source.name}/{file.name}")
            if name in seen or "sha256" not in file.digests:
                continue
            seen.add(name)
            package = f", in it {file.member}" if file.member else ""
            yield {
                "@type": "cr:FileObject",
                "@id": name,
                "name": file.name,
                "description": f"Source {source.name}, {source.origin}{package}, licence {_licence(source)}, language {source.language}.",
                "contentUrl": file.uri or name,
                **({} if file.size_bytes is None else {"contentSize": f"{file.size_bytes} B"}),
                "encodingFormat": _format(file.name),
                "sha256": file.digests["sha256"],
            }


def _licence(source: Source) -> str:
    return ", ".join(source.licences) or UNKNOWN


def _parts(documents: Work) -> Iterator[dict[str, Any]]:
    """The tables themselves, as `bert export RECIPE/documents documents` lays them beside this file."""
    for entry in documents.files or ():
        if entry["path"].startswith("part-"):
            name = f"documents/{entry['path']}"
            yield {
                "@type": "cr:FileObject",
                "@id": name,
                "name": entry["path"],
                "contentUrl": name,
                "contentSize": f"{entry['size_bytes']} B",
                "encodingFormat": _format(name),
                "sha256": entry["sha256"],
            }


def _format(name: str) -> str:
    return _TYPES.get(f".{name.rpartition('.')[2]}".lower(), "application/octet-stream")


def _set() -> dict[str, Any]:
    return {
        "@type": "cr:FileSet",
        "@id": PARTS,
        "name": PARTS,
        "description": "All parts of the documents.",
        "encodingFormat": _TYPES[".parquet"],
        "includes": "documents/part-*.parquet",
    }


def _records() -> dict[str, Any]:
    return {
        "@type": "cr:RecordSet",
        "@id": "documents",
        "name": "documents",
        "description": "One document a row.",
        "key": {"@id": "documents/doc_id"},
        "field": [_field(field) for field in DOCUMENTS_SCHEMA],
    }


def _field(field: pa.Field) -> dict[str, Any]:
    many = pa.types.is_list(field.type)
    kind = field.type.value_type if many else field.type
    name = "sc:Text" if pa.types.is_string(kind) else "sc:Float" if pa.types.is_floating(kind) else "sc:Integer"
    return {
        "@type": "cr:Field",
        "@id": f"documents/{field.name}",
        "name": field.name,
        "dataType": name,
        **({"isArray": True, "arrayShape": "-1"} if many else {}),
        "source": {"fileSet": {"@id": PARTS}, "extract": {"column": field.name}},
    }
