"""What was found wrong in other engines, as cases of the referee and as programs that stand alone."""

import json
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from harness.engine.base import SCRIPTS

GOOD = {"exact", "equivalent"}
FEW = ("steps=6", "task.repeats=1")
TEXT = "text='let k be 5 . the bird sang . the old man walked to the river . what is k ?'"


def rows_of(done) -> dict:
    return {r["case"]: r for r in json.loads((done.folders[0] / "referee.json").read_text())}


def test_the_library_s_caches_and_its_generate(harness) -> None:
    done = harness("experiment=referee_library", TEXT, *FEW)
    rows = rows_of(done)
    assert done.code == 1, done.out
    right = {"library_dynamic", "library_static", "generate", "generate_new_ids", "several_at_once"}
    for case in right:
        assert rows[case]["verdict"] in GOOD and rows[case]["reused_tokens"], rows[case]
    for case in ("generate_whole", "generate_twice", "library_quanto", "library_fp8"):
        assert rows[case]["verdict"] in ("drifted", "diverged"), rows[case]
    said = (done.folders[0] / "referee.md").read_text()
    assert "generate_whole, without this harness" in said and "past_key_values=cache" in said
    assert "not judged: library_hqq" in said and "one place late" in said


def test_several_tokens_at_once_onto_recurrent_state(harness) -> None:
    """The twin is the same case above, which passes where attention reads the past."""
    ids = [5 + 7 * i % 500 for i in range(40)]
    done = harness("experiment=referee_recurrent", *FEW, f"prompt.ids=[{','.join(map(str, ids))}]")
    rows = rows_of(done)
    assert rows["hit"]["verdict"] in GOOD and rows["restored"]["verdict"] in GOOD, done.out
    assert rows["several_at_once"]["verdict"] in ("drifted", "diverged") and done.code == 1
    assert rows["several_at_once"]["reused_tokens"] == 36


def test_context_shift(harness) -> None:
    """The declared model written as a GGUF file, in a real server; `hit` beside it is right."""
    done = harness("experiment=referee_context_shift", "engine.threads=1", *FEW)
    rows = rows_of(done)
    assert done.code == 1 and rows["shifted"]["verdict"] in ("drifted", "diverged"), done.out
    assert rows["shifted"]["reused_tokens"] == rows["shifted"]["prompt_tokens"] - 1 < 256
    assert rows["shifted"]["oracle_error"] > 100 * rows["shifted"]["plain_error"]
    assert rows["hit"]["verdict"] in GOOD and rows["restored"]["verdict"] in GOOD
    assert "--context-shift" in (done.folders[0] / "referee.md").read_text()


@pytest.mark.parametrize(
    "asked, says",
    [("task=referee task.cases=[generat]", "Did you mean 'generate'"),
     ("task=referee task.cases=[library_hqq]", "it needs the package hqq"),
     ("task=referee engine=llamacpp task.cases=[shifted]", "ctx_shift=true")],
)  # fmt: skip
def test_a_case_that_cannot_be_had(harness, asked, says) -> None:
    done = harness(*asked.split(), *FEW)
    assert done.code == 2 and says in done.out and "Traceback" not in done.out


@pytest.mark.parametrize(
    "script",
    ["generate_whole", "generate_twice", "several_at_once", "clamped_scan", "tied_selection"],
)
def test_it_shows_without_this_harness(script, capsys) -> None:
    """Right first, wrong second, by the figures that it prints."""
    runpy.run_path(str(SCRIPTS / f"{script}.py"), run_name="__main__")
    lines = [x for x in capsys.readouterr().out.splitlines() if ": " in x]
    right, wrong = (float(line.rpartition(":")[2]) for line in lines)
    assert right < 1e-5 and wrong > 0.1, lines


def test_the_shift_shows_without_this_harness(compose, tmp_path) -> None:
    import gguf_model

    from harness.engine.llamacpp import LlamaCpp

    assert Path(SCRIPTS / "shifted.py").is_file()
    model = gguf_model.write(tmp_path / "m.gguf")
    cfg = compose("engine=llamacpp", f"engine.model={model}", "engine.threads=1", "engine.context=256",
                  "engine.type_k=f32", "engine.type_v=f32", "engine.flash=off", "+engine.options.ctx_shift=true")  # fmt: skip
    with LlamaCpp(cfg.engine) as engine:
        wire = engine._server.wire
        script = (SCRIPTS / "shifted.py").read_text()
        key = wire._headers["Authorization"]
        opened = "import urllib.request as u; o = u.build_opener(); o.addheaders = [('Authorization', KEY)]; u.install_opener(o)"  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-c", opened.replace("KEY", repr(key)) + "\n" + script, wire.base],
            cwd=tmp_path, capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert "reused" in done.stdout, done.stderr
    assert float(done.stdout.split("difference ")[1].split()[0]) > 0.5
