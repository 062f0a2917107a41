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
    """Start a headless Chromium; skip the test without one."""
    # No Python package brings a browser, and the product needs none: a developer who changes the accountant on a server
    # must not have to install one. The contents of the pages are tested without it (test_data.py). `.ci/run` installs
    # Chromium, and prints a warning if it cannot.
    if CHROMIUM is None:
        pytest.skip("looks at pages in Chromium, which is not installed (Debian: apt install chromium)")
    driver = pytest.importorskip(
        "playwright.sync_api", reason="drives Chromium by the extra `browser`, which is not installed"
    )
    with driver.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=[*QUIET])
        yield browser
        browser.close()
