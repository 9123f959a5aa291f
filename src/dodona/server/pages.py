"""The page and the survey as files: a fixed list, read once, no path ever made from a request.

Names do not change from version to version, so a browser may keep a file but must ask whether it is still good: an
``ETag`` of its contents answers that in one short exchange. Nothing is loaded from anywhere else.
"""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from importlib import resources

from fastapi import APIRouter, Request, Response

from dodona.server.problems import not_found

_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_KEEP = "no-cache"
"""Keep it, but ask before using it."""


@dataclass(frozen=True)
class Asset:
    """One file: its bytes, plain and compressed, its type and what names this version of it."""

    body: bytes
    packed: bytes
    kind: str
    tag: str

    @staticmethod
    def of(name: str, body: bytes) -> Asset:
        """Of a file of this name."""
        tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
        return Asset(body, gzip.compress(body, 9, mtime=0), _TYPES[name.rsplit(".", 1)[1]], tag)

    def response(self, request: Request) -> Response:
        """The file, compressed where the browser takes that; nothing but its name where the browser has it."""
        headers = {"Cache-Control": _KEEP, "ETag": self.tag, "Vary": "Accept-Encoding"}
        if self.tag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        if "gzip" in request.headers.get("accept-encoding", ""):
            headers["Content-Encoding"] = "gzip"
            return Response(self.packed, media_type=self.kind, headers=headers)
        return Response(self.body, media_type=self.kind, headers=headers)


def assets() -> dict[str, Asset]:
    """All files of the page, by name."""
    folder = resources.files("dodona.server") / "static"
    known = [file for file in folder.iterdir() if file.is_file() and file.name.rsplit(".", 1)[-1] in _TYPES]
    return {file.name: Asset.of(file.name, file.read_bytes()) for file in known}


def router() -> APIRouter:
    """``/`` and ``/survey/ID`` are the two documents, ``/assets/NAME`` what they load."""
    files = assets()
    routes = APIRouter(include_in_schema=False)

    @routes.api_route("/", methods=["GET", "HEAD"])
    async def page(request: Request) -> Response:
        return files["index.html"].response(request)

    @routes.api_route("/survey/{survey}", methods=["GET", "HEAD"])
    async def survey_page(request: Request, survey: str) -> Response:
        return files["survey.html"].response(request)

    @routes.api_route("/assets/{name}", methods=["GET", "HEAD"])
    async def asset(request: Request, name: str) -> Response:
        found = files.get(name)
        if found is None or name.endswith(".html"):
            raise not_found()
        return found.response(request)

    return routes
