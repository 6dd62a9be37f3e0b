"""A real headless Chromium: what a page shows, and what it asks for."""

import json
import shutil
import time
from pathlib import Path
from urllib.parse import urlparse

import pytest

BROWSER, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--window-size=1600,1400", "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
)  # fmt: skip

needs_browser = pytest.mark.skipif(
    not (BROWSER and DRIVER), reason="no browser: apt-get install chromium chromium-driver"
)


def started(profile: Path):
    """A browser of its own, with the log of everything it asks for."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL"})
    return webdriver.Chrome(options=options, service=Service(DRIVER))


def shown(browser, *wanted: str, seconds: float = 60) -> str:
    """The page's text once all of `wanted` is in it."""
    give_up = time.time() + seconds
    text = ""
    while time.time() < give_up:
        text = browser.execute_script("return document.body ? document.body.innerText : ''")
        text = " ".join(text.split())
        if all(w in text for w in wanted):
            return text
        time.sleep(0.3)
    raise AssertionError(f"{[w for w in wanted if w not in text]} not in the page:\n{text[:2000]}")


def hosts(browser) -> set[str]:
    """Every host that the page asked for anything since the last call."""
    found = set()
    for entry in browser.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        asked = {
            "Network.requestWillBeSent": lambda p: p["request"]["url"],
            "Network.webSocketCreated": lambda p: p["url"],
        }.get(message["method"])
        if asked:
            url = urlparse(asked(message["params"]))
            if url.scheme in ("http", "https", "ws", "wss"):
                found.add(url.hostname)
    return found
