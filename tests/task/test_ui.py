"""`task=ui` from the outside: a missing extra, wrong settings, its end. The page itself: tests/task/page."""

import subprocess
import sys
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

ROOT = Path(__file__).resolve().parents[2]
WITHOUT = """
import sys
sys.modules["gradio"] = None
sys.argv = ["harness", "task=ui"]
from harness.__main__ import main
code = main()
print("HEAVY", [m for m in ("torch", "transformers", "mlflow") if m in sys.modules])
sys.exit(code)
"""


def test_without_gradio_one_message_names_the_command(place):
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT], capture_output=True, text=True, cwd=place, env={"PYTHONPATH": str(ROOT)}
    )  # fmt: skip
    assert done.returncode == 2 and "HEAVY []" in done.stdout
    assert done.stderr.count("\n") == 1 and "pip install 'harness[ui]'" in done.stderr
    assert not list(place.rglob("result.json"))


@pytest.mark.parametrize(
    "given, wanted",
    [
        (["out=s3://bucket/x"], "local folder"),
        (["snapshot=nowhere"], "nowhere"),
        (["task.port=-1"], "task.port"),
        (["task.port=70000"], "task.port"),
        (["task.check=0"], "task.check"),
        (["out=/etc/hostname"], "out=/etc/hostname is a file, or in one: give a folder"),
        (["out=/etc/hostname/shelf"], "is a file, or in one"),
        (["out=/proc/shelf"], "out=/proc/shelf cannot be written to"),
    ],
    ids=lambda g: g[0] if isinstance(g, list) else None,
)
def test_wrong_settings_end_with_one_message(harness, given, wanted):
    done = harness("task=ui", "task.seconds=0.1", *given)
    assert done.code == 2 and wanted in done.out and "Traceback" not in done.out


def test_it_opens_a_snapshot_and_ends_by_itself(harness, place):
    assert harness("task=save", "text=let k be 5 .", "out=mine").code == 0
    done = harness("task=ui", "task.seconds=0.1", "snapshot=mine", "out=shelf")
    assert done.code == 0 and "page: http://127.0.0.1:" in done.out
    assert "0 snapshots in shelf" in done.out
    assert done.out.count("harness task=ui snapshot=mine track=none out=shelf\n") == 1, done.out
    refused = harness("task=ui", "task.seconds=0.1", "snapshot=mine", "model=tiny_gpt2")
    assert refused.code == 3 and "page: " not in refused.out


def test_a_port_that_is_taken_is_named(harness):
    import socket

    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        port = held.getsockname()[1]
        done = harness("task=ui", "task.seconds=0.1", f"task.port={port}", "out=shelf")
    assert done.code == 2 and f"task.port={port}" in done.out
    assert "model tiny" not in done.out and not Path("shelf").exists()


def test_help_fits_a_screen_and_has_an_example(process):
    done = process("task=ui", "--help")
    assert done.code == 0 and "example: python -m harness task=ui" in done.out
    assert len(done.out.splitlines()) <= 24 and max(map(len, done.out.splitlines())) <= 110


@pytest.mark.parametrize(
    "origin, status",
    [
        (None, 200),
        ("http://{host}", 200),
        ("http://127.0.0.1:1", 403),
        ("http://localhost:{port}", 403),
        ("https://{host}", 403),
        ("null", 403),
    ],
)
def test_only_its_own_origin_is_answered(small_page, origin, status):
    """Gradio lets a page of any port of this machine read the answers."""
    host = small_page.removeprefix("http://").rstrip("/")
    port = host.rpartition(":")[2]
    headers = {"Origin": origin.format(host=host, port=port)} if origin else {}
    for path in ("/", "/config"):
        request = Request(f"{small_page.rstrip('/')}{path}", headers=headers)
        try:
            with urlopen(request) as answer:
                found, allowed = (
                    answer.status,
                    answer.headers.get("Access-Control-Allow-Origin"),
                )
        except HTTPError as problem:
            found, allowed = problem.code, problem.headers.get("Access-Control-Allow-Origin")
        assert found == status and allowed in (None, headers.get("Origin"))
        assert status == 200 or allowed is None


@pytest.mark.parametrize(
    "name, status",
    [("run/evaluation-1-0123abcd", 200), ("run/evaluation-2-0123abcd", 404), ("run/private", 404),
     ("..%2frun/evaluation-1-0123abcd", 404), ("../evaluation-1-0123abcd", 404), ("run/..%2fprivate", 404)],
)  # fmt: skip
def test_reports_of_evaluations_are_answered_and_nothing_beside_them(small_page, name, status):
    try:
        with urlopen(f"{small_page.rstrip('/')}/reports/{name}") as answer:
            assert answer.read() == b"<p>a report</p>" and "html" in answer.headers["content-type"]
            found = answer.status
    except HTTPError as problem:
        found = problem.code
    assert found == status


@pytest.fixture(scope="module")
def small_page(tmp_path_factory):
    """The server around a page of nothing."""
    from harness.task.ui import server

    server.prepare()
    gradio = pytest.importorskip("gradio")

    def nothing():
        with gradio.Blocks(analytics_enabled=False) as page:
            gradio.Markdown("nothing")
        return page

    folder = tmp_path_factory.mktemp("reports")
    for name in ("evaluation-1-0123abcd", "private"):
        (folder / "run" / name).mkdir(parents=True)
        (folder / "run" / name / "report.html").write_text("<p>a report</p>")
    with server.serving(nothing, 0, folder) as address:
        yield address
