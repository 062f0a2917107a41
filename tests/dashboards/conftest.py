"""The browser that looks at the pages."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
QUIET = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A headless Chromium; a skip where there is none."""
    # A browser comes with no Python package, and the product needs none: who changes the accountant on a server must
    # not have to install one. What the pages hold is tested without it (test_data.py); `.ci/run` installs one.
    if CHROMIUM is None:
        pytest.skip("looks at pages in Chromium, which is not installed (Debian: apt install chromium)")
    driver = pytest.importorskip(
        "playwright.sync_api", reason="drives Chromium by the extra `browser`, which is not installed"
    )
    with driver.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=[*QUIET])
        yield browser
        browser.close()
