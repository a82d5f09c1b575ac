"""What an ending means. A table of our own, so that an answer does not depend on the machine it is served from.

Sources: the IANA registry of media types; RFC 9239 for JavaScript. Text is UTF-8 unless configured otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping

DEFAULT_TYPE = b"application/octet-stream"

_TEXT: dict[str, str] = {
    "css": "text/css",
    "csv": "text/csv",
    "htm": "text/html",
    "html": "text/html",
    "ics": "text/calendar",
    "js": "text/javascript",
    "log": "text/plain",
    "md": "text/markdown",
    "mjs": "text/javascript",
    "txt": "text/plain",
    "vtt": "text/vtt",
    "yaml": "application/yaml",
    "yml": "application/yaml",
}

_OTHER: dict[str, str] = {
    "7z": "application/x-7z-compressed",
    "aac": "audio/aac",
    "apng": "image/apng",
    "atom": "application/atom+xml",
    "avif": "image/avif",
    "bin": "application/octet-stream",
    "bmp": "image/bmp",
    "br": "application/octet-stream",
    "bz2": "application/x-bzip2",
    "deb": "application/vnd.debian.binary-package",
    "doc": "application/msword",
    "docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "eot": "application/vnd.ms-fontobject",
    "epub": "application/epub+zip",
    "flac": "audio/flac",
    "geojson": "application/geo+json",
    "gif": "image/gif",
    "gz": "application/gzip",
    "ico": "image/vnd.microsoft.icon",
    "iso": "application/octet-stream",
    "jar": "application/java-archive",
    "jpeg": "image/jpeg",
    "jpg": "image/jpeg",
    "json": "application/json",
    "jsonld": "application/ld+json",
    "jxl": "image/jxl",
    "m4a": "audio/mp4",
    "m4v": "video/mp4",
    "map": "application/json",
    "mkv": "video/matroska",
    "mov": "video/quicktime",
    "mp3": "audio/mpeg",
    "mp4": "video/mp4",
    "mpeg": "video/mpeg",
    "npy": "application/x-npy",
    "npz": "application/zip",
    "odp": "application/vnd.oasis.opendocument.presentation",
    "ods": "application/vnd.oasis.opendocument.spreadsheet",
    "odt": "application/vnd.oasis.opendocument.text",
    "oga": "audio/ogg",
    "ogg": "audio/ogg",
    "ogv": "video/ogg",
    "onnx": "application/octet-stream",
    "opus": "audio/ogg",
    "otf": "font/otf",
    "parquet": "application/vnd.apache.parquet",
    "pdf": "application/pdf",
    "png": "image/png",
    "ppt": "application/vnd.ms-powerpoint",
    "pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    "rss": "application/rss+xml",
    "rtf": "application/rtf",
    "safetensors": "application/octet-stream",
    "sh": "application/x-sh",
    "svg": "image/svg+xml",
    "tar": "application/x-tar",
    "tgz": "application/gzip",
    "tif": "image/tiff",
    "tiff": "image/tiff",
    "toml": "application/toml",
    "ttf": "font/ttf",
    "wasm": "application/wasm",
    "wav": "audio/vnd.wave",
    "weba": "audio/webm",
    "webm": "video/webm",
    "webmanifest": "application/manifest+json",
    "webp": "image/webp",
    "whl": "application/zip",
    "woff": "font/woff",
    "woff2": "font/woff2",
    "xhtml": "application/xhtml+xml",
    "xls": "application/vnd.ms-excel",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "xml": "application/xml",
    "xz": "application/x-xz",
    "zip": "application/zip",
    "zst": "application/zstd",
}

_BUILT_IN: dict[str, bytes] = {
    **{ending: f"{kind}; charset=utf-8".encode() for ending, kind in _TEXT.items()},
    **{ending: kind.encode() for ending, kind in _OTHER.items()},
}


class MediaTypes:
    """Media types by ending, the user's before the built-in ones.

    Args:
        own: Ending (with or without its dot, any case) -> media type, sent as written.
    """

    __slots__ = ("_types",)

    def __init__(self, own: Mapping[str, str]) -> None:
        mine = {key.lower().lstrip("."): kind.encode("latin-1") for key, kind in own.items()}
        self._types = {**_BUILT_IN, **mine} if mine else _BUILT_IN

    def of(self, name: str) -> bytes:
        """Return the media type of a file name; of a name with several endings the longest known one counts."""
        return self._find(name) or DEFAULT_TYPE

    def knows(self, name: str) -> bool:
        """Whether a name has an ending that is known: it is asked for as a file, and no page of an application."""
        return self._find(name) is not None

    def _find(self, name: str) -> bytes | None:
        endings = name.rpartition("/")[2].lower().split(".")[1:]
        for i in range(len(endings)):
            kind = self._types.get(".".join(endings[i:]))
            if kind is not None:
                return kind
        return None
