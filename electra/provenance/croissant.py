"""A Croissant file: the corpus described as a dataset for others (mlcommons.org/croissant, version 1.0, JSON-LD)."""

from typing import Any

from electra.common.artifacts import MANIFEST, read_manifest, sha256
from electra.common.paths import Paths
from electra.config import Settings

CONTEXT = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "citeAs": "cr:citeAs",
    "column": "cr:column",
    "conformsTo": "dct:conformsTo",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "extract": "cr:extract",
    "field": "cr:field",
    "fileProperty": "cr:fileProperty",
    "fileObject": "cr:fileObject",
    "fileSet": "cr:fileSet",
    "format": "cr:format",
    "includes": "cr:includes",
    "isLiveDataset": "cr:isLiveDataset",
    "jsonPath": "cr:jsonPath",
    "key": "cr:key",
    "md5": "cr:md5",
    "parentField": "cr:parentField",
    "path": "cr:path",
    "recordSet": "cr:recordSet",
    "references": "cr:references",
    "regex": "cr:regex",
    "repeated": "cr:repeated",
    "replace": "cr:replace",
    "sc": "https://schema.org/",
    "separator": "cr:separator",
    "source": "cr:source",
    "subField": "cr:subField",
    "transform": "cr:transform",
}
FIELDS = {
    "doc_id": "first 16 hex digits of the sha256 of the text",
    "source": "name of the source it came from",
    "text": "cleaned text, one sentence or paragraph a line",
}


def describe_corpus(settings: Settings, paths: Paths) -> dict[str, Any]:
    """The Croissant description of ``data/corpus``: its files with sha256, its columns, its sources with licences.

    Raises:
        DataError: there is no corpus.
    """
    manifest = read_manifest(paths.corpus)
    licences = sorted({licence for s in settings.corpus.sources if (licence := getattr(s, "license", None))})
    files = [file for file in manifest["files"] if file["path"].endswith(".parquet")]
    name = f"electra-corpus-{settings.profile}"
    described: dict[str, Any] = {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": name,
        "description": _description(manifest),
        # the same corpus, the same version: no date of a run
        "version": f"1.0.0+{sha256(paths.corpus / MANIFEST)[:12]}",
        "distribution": [_file(file) for file in files],
        "recordSet": [_split(split, files) for split in ("train", "heldout")],
    }
    if licences:
        described["license"] = licences if len(licences) > 1 else licences[0]
    described["isBasedOn"] = [_origin(source) for source in manifest["sources"].items()]
    return described


def _description(manifest: dict[str, Any]) -> str:
    sources = ", ".join(f"{name} ({facts['kind']})" for name, facts in manifest["sources"].items())
    dropped = ", ".join(f"{count:,} {reason.replace('_', ' ')}" for reason, count in manifest["dropped"].items())
    return (
        f"{manifest['documents']:,} cleaned documents of {manifest['characters']:,} characters for pre-training, from "
        f"{sources}; {manifest['held_out']['documents']:,} of them held out; dropped: {dropped}."
    )


def _file(file: dict[str, Any]) -> dict[str, Any]:
    return {
        "@type": "cr:FileObject",
        "@id": file["path"],
        "name": file["path"],
        "contentUrl": file["path"],
        "contentSize": f"{file['bytes']} B",
        "encodingFormat": "application/x-parquet",
        "sha256": file["sha256"],
    }


def _split(split: str, files: list[dict[str, Any]]) -> dict[str, Any]:
    """A record set of the first file of a split stands for all: they have the same columns."""
    first = next(file["path"] for file in files if file["path"].startswith(f"{split}-"))
    return {
        "@type": "cr:RecordSet",
        "@id": split,
        "name": split,
        "description": f"Documents of {split}; the columns of {first}, which all {split}-*.parquet have.",
        "field": [
            {
                "@type": "cr:Field",
                "@id": f"{split}/{column}",
                "name": column,
                "description": what,
                "dataType": "sc:Text",
                "source": {"fileObject": {"@id": first}, "extract": {"column": column}},
            }
            for column, what in FIELDS.items()
        ],
    }


def _origin(source: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    name, facts = source
    origin: dict[str, Any] = {"@type": "sc:CreativeWork", "name": name}
    if facts.get("license"):
        origin["license"] = facts["license"]
    if "dataset" in facts:
        origin["identifier"] = f"{facts['dataset']}@{facts.get('revision')}"
    elif "files" in facts:
        origin["identifier"] = [f"sha256:{file['sha256']}" for file in facts["files"] if "sha256" in file]
    return origin
