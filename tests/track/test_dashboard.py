"""The dashboard and the sweep page in a real browser: what they show, and that nothing leaves."""

import logging
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from urllib.parse import urlparse

import pytest
from browsing import hosts, needs_browser, shown
from tracking import free_port

from harness import __main__ as front
from harness.errors import ConfigProblem
from harness.snapshot import record
from harness.track import dashboard
from harness.track.store import _KNOWN

ROOT = Path(__file__).resolve().parents[2]


def made(store) -> str:
    """The id of our experiment, in a store that has it now."""
    with store.opened():
        return store.experiment


@pytest.fixture(scope="module")
def server(swept, runs):
    """The dashboard as `make dashboard` starts it, on a free port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = (runs / "dashboard.log").open("w+")
    process = subprocess.Popen(
        [sys.executable, "-m", "harness.track.dashboard", "--runs-dir", str(runs), "--port", str(port)],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=log, stderr=subprocess.STDOUT,
    )  # fmt: skip
    give_up = time.time() + 120
    while "dashboard: " not in (said := (runs / "dashboard.log").read_text()):
        assert process.poll() is None and time.time() < give_up, said
        time.sleep(0.2)
    urllib.request.urlopen(
        f"http://127.0.0.1:{port}/health", timeout=2
    ).close()  # it answers by now
    yield process, next(w for w in said.split() if w.startswith("http://127.0.0.1"))
    process.send_signal(signal.SIGINT)
    began = time.time()
    while not dashboard.free(port):
        assert time.time() - began < 4, "Ctrl-C does not end it"
        time.sleep(0.05)
    assert process.wait(20) == 0 and "Traceback" not in (runs / "dashboard.log").read_text()


@pytest.mark.browser
@needs_browser
@pytest.mark.slow
def test_dashboard_lands_on_runs_that_say_what_came_out(browser, server):
    _, address = server
    browser.get(address)
    shown(browser, "outcome", "conclusion", "2 exact, 1 equivalent", "matching runs")
    assert "share key" not in browser.find_element("tag name", "body").text


@pytest.mark.slow
@pytest.mark.browser
@needs_browser
def test_its_charts_are_filled_and_nothing_leaves(browser, server, swept, tmp_path):
    _, address = server
    browser.get("about:blank")  # another fragment alone would load nothing
    browser.get(f"{address}&compareRunsMode=CHART")
    # the points are folded below their sweep, which has no series that would pose as its own figures
    assert "points (" not in shown(browser, "harness", "sweep (", "2 exact, 1", "matching runs")
    give_up = time.time() + 30
    while not (bars := len(browser.find_elements("css selector", ".js-plotly-plot"))):
        assert time.time() < give_up, "no chart was drawn"
        time.sleep(0.3)
    assert bars >= 3
    browser.save_screenshot(str(tmp_path / "dashboard.png"))
    assert (tmp_path / "dashboard.png").stat().st_size > 20_000
    assert hosts(browser) == {"127.0.0.1"}


@pytest.mark.browser
@needs_browser
def test_run_page_shows_tags_description_picture_and_artifacts(browser, server, swept):
    _, address = server
    result = record.read(swept / "4" / "result.json")
    run = address.split("?")[0] + "/" + result["mlflow"]["run_id"]
    browser.get(run)
    shown(browser, "verdict", "snapshot_id", "Description", result["conclusion"][:30])  # fmt: skip
    browser.get(run + "/artifacts")
    shown(browser, "elements.json", "report.html", "result.json", "snapshot", "divergence.svg")
    assert hosts(browser) == {"127.0.0.1"}


@pytest.mark.browser
@needs_browser
def test_sweep_page_in_a_browser(browser, swept, tmp_path):
    hosts(browser)
    browser.get((swept / "sweep.html").as_uri())
    text = shown(browser, "Verdicts", "What failed", "Error, bytes and speed", "Every point")
    assert "equivalent" in text and "failed" in text and "prompt.batch=99" in text
    browser.execute_script("document.querySelectorAll('details').forEach(d => d.open = true)")
    pictures = browser.execute_script(
        "return [...document.querySelectorAll('svg')].map(s => s.getBoundingClientRect().width)"
    )
    assert len(pictures) > 2 and all(w > 250 for w in pictures)
    browser.find_element("link text", "equivalent").click()
    shown(browser, "The 13 elements")
    browser.back()
    browser.save_screenshot(str(tmp_path / "sweep.png"))
    assert (tmp_path / "sweep.png").stat().st_size > 20_000
    assert hosts(browser) == set()


@pytest.mark.browser
@needs_browser
def test_a_page_that_reaches_out_would_be_noticed(browser, tmp_path):
    """The twin: the same check on a page that fetches something."""
    page = tmp_path / "leak.html"
    page.write_text("<img src='http://example.invalid/x.png'>")
    browser.get(page.as_uri())
    give_up = time.time() + 30
    while "example.invalid" not in (asked := hosts(browser)):
        assert time.time() < give_up, asked
        time.sleep(0.1)


def test_the_server_is_small_private_and_silent(server, runs):
    """At most the launcher and one worker; only the loopback address; telemetry is off."""
    process, address = server
    said = (runs / "dashboard.log").read_text()
    assert [line.split()[0] for line in said.splitlines()] == ["MLflow", "dashboard:", "Ctrl-C"]
    assert not re.search("Warning|GET /", said)
    assert urlparse(address).hostname == "127.0.0.1"
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    if not children.exists():
        pytest.skip("no /proc here to count processes in")
    (child,) = children.read_text().split()
    environ = Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
    assert b"MLFLOW_DISABLE_TELEMETRY=true" in environ
    port = urlparse(address).port
    table = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]  # fmt: skip
    listening = {row[1].split(":")[0] for row in table if row[3] == "0A" and int(row[1].split(":")[1], 16) == port}  # fmt: skip
    assert listening == {"0100007F"}


def test_no_store_is_made_by_a_command_that_only_looks(tmp_path, monkeypatch, capfd):
    """An empty one would be taken for no runs. The one that lies there is named."""
    (tmp_path / "own").mkdir()
    made(dashboard.store_of(tmp_path, f"sqlite:///{tmp_path}/own/x.db"))
    asked = [
        ([f"runs_dir={tmp_path}/own"], f"track.uri=sqlite:///{tmp_path}/own/x.db"),
        ([f"track.uri=sqlite:///{tmp_path}/own/y.db"], "y.db is not there"),
        (["track.uri=file:mlruns"], "is a folder"),
        (["track.uri=databricks"], "has pages of its own"),
        (["track.uri=http://127.0.0.1:9"], "the dashboard cannot be opened: http://127.0.0.1:9: "),
    ]
    for words, said in asked:
        port = [] if "http" in words[0] else [f"port={free_port()}"]
        monkeypatch.setattr("sys.argv", ["harness", "dashboard", *port, *words])
        assert front.main() == 2 and said in capfd.readouterr().err
    assert [p.name for p in (tmp_path / "own").glob("*.db")] == ["x.db"]


def test_the_store_that_was_named_is_the_one_that_is_served(tmp_path, monkeypatch, capfd):
    served = []
    monkeypatch.setattr(
        dashboard, "serve", lambda store, port, run: served.append((store.uri, port))
    )
    uri = f"sqlite:///{tmp_path}/x.db"
    made(dashboard.store_of(tmp_path, uri))
    port = free_port()
    monkeypatch.setattr("sys.argv", ["harness", "dashboard", f"track.uri={uri}", f"port={port}"])
    assert front.main() == 0 and served == [(uri, port)]
    before = Path(f"{tmp_path}/x.db").read_bytes()
    other = ["track.experiment=harnes", f"port={free_port()}"]
    monkeypatch.setattr("sys.argv", ["harness", "dashboard", f"track.uri={uri}", *other])
    assert (
        front.main() == 2
        and "no experiment 'harnes'. Did you mean 'harness'?" in capfd.readouterr().err
    )
    assert Path(f"{tmp_path}/x.db").read_bytes() == before and served[1:] == []
    line = dashboard.command(dashboard.store_of(tmp_path, uri), "127.0.0.1", port)
    assert uri in line and (tmp_path / "mlartifacts").as_uri() in line


def test_one_run_is_opened_at_its_own_page(tmp_path):
    store = dashboard.store_of(tmp_path, f"sqlite:///{tmp_path}/x.db")
    number = made(store)
    run = store.ask(lambda client: client.create_run(number)).info.run_id
    assert dashboard.page(store, "http://h:1", run).startswith(
        f"http://h:1/#/experiments/{number}/runs/{run}?"
    )
    assert run not in dashboard.page(store, "http://h:1")
    with pytest.raises(ConfigProblem, match=r"run=5f: .* has no such run\. An id has 32 digits\.$"):
        dashboard.page(store, "http://h:1", "5f")


def test_what_cannot_be_shown_is_said_in_a_line_before_mlflow_is_begun(
    tmp_path, monkeypatch, capfd
):
    """No folder that was not there is made, by a command that only looks."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        for words, said in (
            ([], "there are no runs here"),
            (["runs_dir=file"], "is no folder"),
            (["runs_dir=.", "port=x"], "port=x is not possible"),
            (["runs_dir=.", f"port={port}"], f"port={port} is in use"),
        ):
            monkeypatch.setattr("sys.argv", ["harness", "dashboard", *words])
            assert front.main() == 2
            shown = capfd.readouterr().err
            assert said in shown and "Traceback" not in shown and len(shown.splitlines()) == 1
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


@pytest.mark.slow
def test_a_store_of_another_mlflow_is_said_in_a_line(tmp_path, monkeypatch, capfd):
    made(dashboard.store_of(tmp_path))
    with sqlite3.connect(tmp_path / "mlflow.db") as base:
        base.execute("update alembic_version set version_num = '0584bdc529eb'")  # MLflow 2.12's
    monkeypatch.setattr("sys.argv", ["harness", "dashboard", f"runs_dir={tmp_path}", f"port={free_port()}"])  # fmt: skip
    _KNOWN.clear()
    assert front.main() == 2
    said = capfd.readouterr()
    assert "dashboard:" not in said.out and "mlflow db upgrade" in said.err, said.err
    assert "Traceback" not in said.err
    assert not logging.root.manager.disable  # others in this process are still heard


def test_a_store_that_can_only_be_read_is_shown_as_it_is(tmp_path):
    shown = made(dashboard.store_of(tmp_path))
    if subprocess.run(["chattr", "+i", tmp_path / "mlflow.db"], capture_output=True).returncode:
        pytest.skip("a file that even root may not write needs root and a disk that knows it")
    try:
        _KNOWN.clear()
        assert made(dashboard.store_of(tmp_path)) == shown
    finally:
        subprocess.run(["chattr", "-i", tmp_path / "mlflow.db"], check=True)
