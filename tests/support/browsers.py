"""A real browser for tests: the system's Chromium, driven by Playwright; nothing is downloaded."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


class BrowserMissing(Exception):
    """There is no Chromium, or no Playwright to drive it."""


def executable() -> str:
    """Chromium's path: what ``DODONA_CHROMIUM`` names, or the first of the usual names on the path."""
    named = os.environ.get("DODONA_CHROMIUM")
    found = named or next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        raise BrowserMissing("a Chromium must be installed (apt install chromium), or DODONA_CHROMIUM must name one.")
    return found


@contextmanager
def chromium() -> Iterator[Any]:
    """A headless Chromium, as Playwright's ``Browser``."""
    path = executable()
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        raise BrowserMissing("Playwright must be installed: pip install playwright.") from None
    # Root has no sandbox to give away; anyone else keeps it.
    switches = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=switches)
        try:
            yield browser
        finally:
            browser.close()


class Tab:
    """One page in a context of its own, and what went wrong on it: ``faults`` must stay empty.

    A refused request is no fault of the page, a broken policy, an uncaught exception or a dialog is.
    """

    def __init__(self, browser: Any, **settings: Any) -> None:
        self.context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **settings})
        self.context.set_default_timeout(120_000)  # a busy machine is no fault of the page
        self.page = self.context.new_page()
        self.faults: list[str] = []
        self.requests: list[Any] = []
        self.page.on("pageerror", lambda error: self.faults.append(f"exception: {error}"))
        self.page.on("console", self._heard)
        self.page.on("dialog", self._asked)
        self.page.on("request", self._seen)

    def _seen(self, request: Any) -> None:
        self.requests.append(request)

    def _heard(self, message: Any) -> None:
        if message.type in ("error", "warning") and "Failed to load resource" not in message.text:
            self.faults.append(f"console: {message.text}")

    def _asked(self, dialog: Any) -> None:
        self.faults.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def sent(self, *endings: str) -> list[Any]:
        """The POST requests so far whose address ends in one of these."""
        return [r for r in self.requests if r.method == "POST" and r.url.endswith(endings)]

    def overflow(self) -> int:
        """How many pixels the page is wider than its window."""
        wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        return int(self.page.evaluate(wide))
