"""``/docs``: the API as a page, made once from the OpenAPI description; no script, and nothing loaded from elsewhere.

Each route has what it is for, its fields and an example as a command that can be pasted. The examples are those of the
description, and are asked in the tests.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from starlette.responses import HTMLResponse

_METHODS = ("get", "post", "delete")


def page(description: Mapping[str, Any], url: str) -> HTMLResponse:
    """The whole page; ``url``: where this server is, for the examples."""
    return HTMLResponse(_HEAD + "".join(_body(description, url)) + "</main>\n</body>\n</html>\n")


def _body(description: Mapping[str, Any], url: str) -> Iterator[str]:
    by_tag: dict[str, list[tuple[str, str, Mapping[str, Any]]]] = {}
    for path, methods in description["paths"].items():
        for method in _METHODS:
            if method in methods:
                by_tag.setdefault(methods[method].get("tags", ["more"])[0], []).append((method, path, methods[method]))
    known = description["components"]["schemas"]
    yield '<div class="card" role="navigation" aria-label="Routes"><ul>'
    for tag, routes in by_tag.items():
        links = ", ".join(f'<a href="#{_name(m, p)}">{escape(m.upper())} {escape(p)}</a>' for m, p, _ in routes)
        yield f"<li><strong>{escape(tag)}</strong>: {links}</li>"
    yield "</ul></div>\n"
    for tag, routes in by_tag.items():
        yield f'<h2 id="{escape(tag)}">{escape(tag)}</h2>\n'
        for method, path, route in routes:
            yield from _route(method, path, route, known, url)


def _route(method: str, path: str, route: Mapping[str, Any], known: Mapping[str, Any], url: str) -> Iterator[str]:
    yield f'<section class="card" id="{_name(method, path)}"><h3><code>{method.upper()} {escape(path)}</code></h3>\n'
    yield f"<p>{escape(route.get('description', ''))}</p>\n"
    content = route.get("requestBody", {}).get("content", {}).get("application/json", {})
    if content:
        body = known[content["schema"]["$ref"].rsplit("/", 1)[1]]
        yield from _fields("Body", body, known)
    for status, reply in route["responses"].items():
        shown = reply.get("content", {}).get("application/json", {}).get("schema", {})
        if status.startswith("2") and "$ref" in shown:
            yield from _fields(f"Response, {status}", known[shown["$ref"].rsplit("/", 1)[1]], known)
    yield f"<pre><code>{escape(command(method, path, content.get('example'), url))}</code></pre></section>\n"


def command(method: str, path: str, example: Any, url: str) -> str:
    """The route asked with curl."""
    lines = [f"curl {'' if method == 'get' else f'-X {method.upper()} '}{url}{path.replace('{dataset}', 'survey')}"]
    if not path.startswith("/healthz"):
        lines.append('-H "Authorization: Bearer $DODONA_KEY"')
    if example is not None:
        written = json.dumps(example).replace("'", "'\\''")
        lines += ['-H "Content-Type: application/json"', f"-d '{written}'"]
    return " \\\n  ".join(lines)


def _fields(title: str, shape: Mapping[str, Any], known: Mapping[str, Any]) -> Iterator[str]:
    if "properties" not in shape:
        return
    required = set(shape.get("required", ()))
    yield f"<details><summary>{escape(title)}</summary><dl>"
    for name, field in shape["properties"].items():
        needed = "" if name in required else ", may be left out"
        told = field.get("description", "")
        yield f"<dt><code>{escape(name)}</code></dt><dd>{escape(_kind(field, known))}{needed}. {escape(told)}</dd>"
    yield "</dl></details>\n"


def _kind(field: Mapping[str, Any], known: Mapping[str, Any]) -> str:
    """What a field holds, in a word or two."""
    if "$ref" in field:
        return str(field["$ref"].rsplit("/", 1)[1])
    for several in ("anyOf", "oneOf", "allOf"):
        if several in field:
            return " or ".join(dict.fromkeys(_kind(one, known) for one in field[several]))
    if field.get("type") == "array":
        return f"list of {_kind(field.get('items', {}), known)}"
    return {"null": "nothing", "object": "an object"}.get(str(field.get("type", "any")), str(field.get("type", "any")))


def _name(method: str, path: str) -> str:
    return escape(f"{method}-{path.strip('/').replace('/', '-').replace('{', '').replace('}', '')}")


_HEAD = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>The API · Dodona</title>
<link rel="icon" href="/assets/leaf.svg" type="image/svg+xml">
<link rel="stylesheet" href="/assets/app.css">
</head>
<body>
<header class="top"><span class="brand"><img src="/assets/leaf.svg" alt="" width="26" height="26"> Dodona</span>
<a href="/">The page</a></header>
<main class="reference">
<section class="card"><h1>The API</h1>
<p>Every route of this server, with an example each. Keys travel in a header, questions as text, numbers that bear
privacy exactly as they are written. The same as data: <a href="/openapi.json">/openapi.json</a>.</p>
<p>A request may carry <code>X-Request-Id</code>: it is given back, and stands in the audit log. A request that can
spend may carry <code>Idempotency-Key</code>: repeated under one name it is charged once, and answered alike.</p>
</section>
"""
