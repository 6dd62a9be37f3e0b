"""Hands for the tests of the page: start it, press, write, and read what it says."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from browsing import shown
from selenium.common.exceptions import (
    ElementClickInterceptedException,
    ElementNotInteractableException,
)

ROOT = Path(__file__).resolve().parents[1]
PROMPT = "let k be 5 . the bird sang . the old man walked to the river . what is"
SENT = 20  # tokens of the prompt, BOS included
# the task as a user starts it, with everything noted that tries to leave the machine; where it should
# have ended and has not, it is asked what each of its threads is at
START = """
import faulthandler, signal, sys
faulthandler.register(signal.SIGUSR1, all_threads=True)
def noted(event, given):
    if event in ("socket.connect", "socket.sendto") and isinstance(given[1], tuple):
        print("CONNECT", given[1][0], file=sys.stderr, flush=True)
    if event == "socket.getaddrinfo":
        print("CONNECT", given[0], file=sys.stderr, flush=True)
sys.addaudithook(noted)
from harness.__main__ import command
command()
"""


def started(folder: Path, *overrides: str) -> tuple[subprocess.Popen, str]:
    """The task on a free port: `(process, address)`. Its words go to `console.txt`."""
    log, own = (folder / "console.txt").open("w"), folder / "tmp"
    own.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-c", START, "task=ui", "track=none", f"runs_dir={folder}", *overrides],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "300", "TMPDIR": str(own)},
        stdout=log, stderr=subprocess.STDOUT,
    )  # fmt: skip
    give_up = time.time() + 120
    while "page: " not in (said := (folder / "console.txt").read_text()):
        assert process.poll() is None and time.time() < give_up, said
        time.sleep(0.2)
    return process, said.split("page: ")[1].split()[0]


def ended(process: subprocess.Popen, console: Path) -> int:
    """Its exit code, once Ctrl-C has ended it. console: what it has written so far."""
    process.send_signal(signal.SIGINT)
    try:
        return process.wait(30)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGUSR1)
        time.sleep(2)
        process.kill()
        pytest.fail(f"it goes on after Ctrl-C:\n{console.read_text()[-20_000:]}")


def at(browser, name: str):
    return browser.find_element("id", name)


def press(browser, name: str) -> None:
    """Click on what bears that name."""
    click(browser, at(browser, name))


def click(browser, element) -> None:
    """Once nothing moves or lies over it."""
    give_up = time.time() + 30
    while True:
        browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
        try:
            return element.click()
        except (ElementClickInterceptedException, ElementNotInteractableException):
            assert time.time() < give_up, "it stays covered or hidden"
            time.sleep(0.1)


def drawn(browser, selector: str):
    """The element, once the page has drawn it: what was folded is drawn when it is opened."""
    give_up = time.time() + 30
    while not (found := browser.find_elements("css selector", selector)):
        assert time.time() < give_up, f"{selector} is not drawn"
        time.sleep(0.1)
    return found[0]


def write(browser, name: str, text: str) -> None:
    box = browser.find_element("css selector", f"#{name} textarea, #{name} input")
    box.clear()
    box.send_keys(text)


def begun(browser, address: str) -> None:
    browser.get(address + "?new")  # an empty session
    shown(browser, "Ready.")
    press(browser, "begin")
    said(browser, f"Read {SENT} tokens.")


def said(browser, *wanted: str) -> str:
    """The status line, once it says all of `wanted`."""
    give_up = time.time() + 30
    while not all(w in (line := at(browser, "status").text) for w in wanted):
        assert time.time() < give_up, f"{wanted} not in {line!r}"
        time.sleep(0.1)
    return line


def wrote(browser, before: int) -> list[str]:
    """The thought's tokens, once there are more than `before`."""
    script = "return [...document.querySelectorAll('#thought .thought .t')].map(t => t.textContent + '|' + t.title.split(' at ')[0])"
    give_up = time.time() + 30
    while len(found := browser.execute_script(script)) <= before:
        assert time.time() < give_up, found
        time.sleep(0.1)
    return found
