"""What the site's build does to pages: files at the repository's root become pages, and links to them lead there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
AT_ROOT = {"SECURITY.md": "security.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Called by MkDocs for each page, before it is rendered."""
    for name, page in AT_ROOT.items():
        markdown = markdown.replace(f'--8<-- "{name}"', _from_root(name))
        markdown = markdown.replace(f"](../{name})", f"]({page})")
    return markdown


def _from_root(name: str) -> str:
    """A file of the root with its links as seen from docs."""
    text = (ROOT / name).read_text(encoding="utf-8").replace("](docs/", "](")
    return re.sub(r"\]\(([A-Z]+\.md)\)", lambda found: f"]({AT_ROOT.get(found[1], found[1])})", text)
