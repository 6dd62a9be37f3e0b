"""What a process imports once is in no stage's seconds: the first point of a sweep is measured as the others."""

import json
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from harness.pipeline.rehearsal import rehearse
from harness.report.terminal.console import Say

ROOT = Path(__file__).parents[2]
WATCHED = """
import json, sys
from harness.__main__ import main
from harness.pipeline import line

seen = []

def watched(place, name):
    real = getattr(place, name)
    def stage(*given, **how):
        before = set(sys.modules)
        try:
            return real(*given, **how)
        finally:
            seen.append([name, sorted(set(sys.modules) - before)])
    setattr(place, name, stage)

class Timed:  # the store as the timed stages call it
    def __getattr__(self, name):
        return getattr(store, name)

store, line.store = line.store, Timed()
for place, name in ((line.store, "save"), (line.store, "load"), (line, "continuation")):
    watched(place, name)
code = main()
print("SEEN" + json.dumps(seen))
sys.exit(code)
"""


def test_nothing_is_imported_while_a_clock_runs(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, "-m", "save=torch,torch", "steps=2", "track=none", f"runs_dir={tmp_path}"],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (line,) = [text for text in done.stdout.splitlines() if text.startswith("SEEN")]
    seen = json.loads(line.removeprefix("SEEN"))
    assert [name for name, _ in seen] == ["save", "load", "continuation"] * 2
    assert [new for _, new in seen] == [[]] * 6

    (sweep,) = (tmp_path / "experiment").iterdir()
    said = [Path(sweep, point, "harness.log").read_text("utf-8") for point in "01"]
    assert ["rehearsal: one token saved" in text for text in said] == [True, False]  # and says so


def test_what_cannot_be_rehearsed_is_left_to_the_stage_that_does_it(session, monkeypatch, capsys):
    job = replace(session("save=pickle", "model=tiny_gpt2"), say=Say())
    with monkeypatch.context() as patch:
        patch.setattr(tempfile, "tempdir", "/nowhere")
        rehearse(job)
    assert "rehearsal ... not possible" in capsys.readouterr().err
    rehearse(job)  # and not once more
    assert capsys.readouterr().err == ""
