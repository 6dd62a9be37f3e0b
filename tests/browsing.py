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

# texts with less contrast to their ground than 4.5 to 1
CONTRAST = """
const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
const rgba = c => { canvas.clearRect(0,0,1,1); canvas.fillStyle = c; canvas.fillRect(0,0,1,1);
  const d = canvas.getImageData(0,0,1,1).data; return [d[0],d[1],d[2],d[3]/255] };
const over = (t, b) => [0,1,2].map(i => t[i]*t[3] + b[i]*(1-t[3])).concat(1);
const light = c => { const f = c.slice(0,3).map(v => { v /= 255; return v <= .03928 ? v/12.92 : ((v+.055)/1.055)**2.4 });
  return .2126*f[0] + .7152*f[1] + .0722*f[2] };
const low = [];
const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walk.nextNode()) {
  const text = walk.currentNode.textContent.trim(), e = walk.currentNode.parentElement;
  if (!text || !e.checkVisibility({checkOpacity: true, checkVisibilityCSS: true}) || e.closest('button:disabled, script, style')) continue;
  const box = e.getBoundingClientRect();
  if (box.width < 2 || box.height < 2) continue;
  const stack = []; for (let n = e; n; n = n.parentElement) stack.unshift(rgba(getComputedStyle(n).backgroundColor));
  const ground = stack.reduce((b, t) => over(t, b), [255,255,255,1]);
  const ink = over(rgba(getComputedStyle(e).color), ground);
  const [a, b] = [light(ink), light(ground)].sort((x, y) => y - x);
  const ratio = (a + .05) / (b + .05);
  if (ratio < 4.5) low.push(text.slice(0, 30) + ' ' + ratio.toFixed(2));
}
return low;
"""
# elements that stick out of the window sideways
OUTSIDE = """
return [...document.querySelectorAll('main *')].filter(e => e.checkVisibility() && e.getBoundingClientRect().width > 0
  && (e.getBoundingClientRect().right > innerWidth + 1 || e.getBoundingClientRect().left < -1)
  && getComputedStyle(e).position !== 'absolute').map(e => e.tagName + '.' + e.className + '#' + e.id).slice(0, 5)
"""

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
        time.sleep(0.1)
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
