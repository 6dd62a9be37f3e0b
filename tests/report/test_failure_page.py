"""A job that came to no end leaves a page too, and a disk that takes nothing makes no second failure of it."""

import errno
import json
import re
import time
from pathlib import Path

import pytest

from harness.errors import RestoreRefused
from harness.report import failure


def full(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.fixture
def refused(harness):
    assert harness("task=save", "out=one").code == 0
    return lambda: harness("task=resume", "snapshot=one", "model=tiny_gpt2")


def test_a_refused_run_says_what_where_and_how_to_mend_it(refused) -> None:
    done = refused()
    page = (done.folders[0] / "report.html").read_text()
    headline = page.split('class="conclusion"')[1].split("</p>")[0]
    first = done.result["differences"][0]
    assert done.code == 3 and f"were {first['saved']}, are {first['found']})." in headline
    words = "Not restored: the model that is loaded is not what it was saved with (element"
    assert words in headline, headline
    assert f"cause:  {words[14:-9]}" in done.out and done.result["conclusion"].startswith(words)
    assert " at one" not in headline and "What was saved is not what is loaded now" in page
    again = "python -m harness task=resume snapshot=one model=tiny_gpt2"
    for says in (
        "What failed",
        "Where",
        "How to mend it",
        "Load the model and tokenizer it was saved with: model=tiny.",
        "Differences",
        again,
        f"python -m harness task=audit run={done.result['folder']}",
    ):
        assert says in page, says
    whole = "<details><summary>What failed, the whole message"
    assert page.index("<h2>How to mend it") < page.index(whole), "the headline says it first"
    assert "strict=false" not in page and "strict=false" not in done.out, (
        "no restore of it can work"
    )
    links = re.findall(r'href="([^"]+)"', page)
    assert {"result.json", "record.json", "harness.log"} == set(links)
    assert all((done.folders[0] / link).is_file() for link in links)
    assert "report: runs/resume/" in done.out


def test_the_page_of_a_damaged_snapshot_says_the_remedy_itself(harness) -> None:
    assert harness("task=save", "out=one").code == 0
    (payload,) = Path("one").glob("kv-*.safetensors")
    data = bytearray(payload.read_bytes())
    data[-1] ^= 1
    payload.write_bytes(data)
    done = harness("task=resume", "snapshot=one")
    page = (done.folders[0] / "report.html").read_text()
    mend = page.split("How to mend it")[1].split("</p>")[0]
    assert done.code == 3 and "Restore it from a backup or save it again" in mend
    assert "Restore it from a backup or save it again" in " ".join(done.out.split())
    assert done.result["reason"]["code"] == "snapshot_invalid"
    assert done.result["conclusion"].startswith("Not restored: the snapshot is damaged (element 1")
    checked = harness("task=verify", "snapshot=one")
    assert checked.code == 3 and "1 fault: kv-" in checked.result["conclusion"]


@pytest.mark.parametrize(
    ("name", "element"),
    [
        ("token_ids", "token_buffer"),
        ("logits", "logits"),
        ("rng", "generation"),
        ("attention_mask", "attention_mask"),
    ],
)
def test_the_element_of_the_damaged_tensor_is_named(harness, name, element) -> None:
    """One bit of what is no key and no value: the K/V is whole."""
    assert harness("task=save", "out=one").code == 0
    (payload,) = Path("one").glob("state-*.safetensors")
    data = bytearray(payload.read_bytes())
    size = int.from_bytes(data[:8], "little")
    begin = json.loads(data[8 : 8 + size])[name]["data_offsets"][0]
    data[8 + size + begin] ^= 1
    payload.write_bytes(data)
    done = harness("task=resume", "snapshot=one")
    assert done.code == 3 and done.result["diagnosis"]["element"] == element
    said = done.result["conclusion"]
    assert f"{payload.name} {name} does not match" in said and "kv_cache" not in said


def test_what_is_newer_is_not_called_damaged() -> None:
    told = {"verdict": "refused", "reason": "r", "faults": ["format_version 9 is newer than 2"]}
    assert "damaged" not in failure.headline(told, Path("x"))
    told["faults"].append("kv-a.safetensors is missing")
    assert "the snapshot is damaged" in failure.headline(told, Path("x"))


@pytest.mark.parametrize("fault, able", [("layer_swap", True), ("bit_flip", False)])
def test_what_a_run_damaged_itself_is_said_to_be_damaged_on_purpose(harness, fault, able) -> None:
    done = harness(f"fault={fault}", "steps=2")
    said = f"Damaged on purpose by fault={fault}, and refused as it should be"
    page = (done.folders[0] / "report.html").read_text()
    mend = page.split("How to mend it")[1].split("</p>")[0]
    assert done.code == 3 and said in " ".join(done.out.split()) and said in mend
    assert "ave it again" not in page and ("restore.strict=false" in mend) == able


def test_the_stage_is_said_and_what_was_spent_before(harness) -> None:
    done = harness("fault=layer_swap", "steps=2")
    page = (done.folders[0] / "report.html").read_text()
    *_, last = done.result["stages"]
    assert done.code == 3 and done.result["stage"] == last["stage"] and f"{last['stage']}" in page
    headline = page.split('class="conclusion"')[1].split("<h2>")[0]
    words = "layers 0 and 1 are exchanged, each came back with the keys and values of the other"
    assert f"Not restored: {words} (element 1 kv_cache; first at layer 0" in headline
    assert "Damaged on purpose by fault=layer_swap. What was saved" in headline
    assert f"cause:  {words}\n" in done.out and words in done.result["conclusion"]
    assert 'href="snapshot/manifest.json"' in page and "1,000,000 noise floors, and more" in page
    assert "first head" not in page and "every one" in page
    assert done.result["differences"][0]["element"] == "+1 logits" and "+1 logits" not in page
    table = page.split("<h2>Differences</h2>")[1].split("</table>")[0]
    assert table.count(">element 9 logits</td>") == len(done.result["differences"])
    assert "float32" in page.split('class="conclusion"')[0].split("<h1>")[1]
    named = [row["stage"].rpartition("/")[2] for row in done.result["stages"]]
    assert all(name in page for name in named) and "<h2>Diagnosis" in page


def test_a_save_that_is_refused_is_not_told_as_a_restore_and_a_generator_not_as_two_digests() -> (
    None
):
    fault = "next_position is [97], the buffer holds [96] tokens that are not padding"
    reason = {"code": "state_invalid", "args": {"where": " at /a", "faults": [fault]}}
    told = {"verdict": "refused", "reason": reason, "faults": [fault]}
    first, second = failure.headline(told, Path("/a")).splitlines()
    assert first == f"Not saved: {fault}." and second.startswith(
        "The state cannot be saved, nothing"
    )
    row = {"element": "13 generation", "field": "generator", "saved": "e2ea", "found": "0295"}
    moved = {
        "verdict": "refused",
        "reason": {"code": "restore_refused", "args": {}},
        "differences": [row],
    }
    words = (
        "the sampler's generator is not where it was saved, and would draw other tokens (element 13"
    )
    assert failure.headline(moved, Path("/a")).startswith(f"Not restored: {words}")


def test_what_is_damaged_comes_first_and_no_path_of_this_machine_is_shown(harness) -> None:
    done = harness("fault=bit_flip", "steps=2")
    page = (done.folders[0] / "report.html").read_text()
    headline = page.split('class="conclusion"')[1].split("</p>")[0]
    (fault,) = done.result["faults"]
    assert f"Not restored: the snapshot is damaged (element 1 kv_cache: {fault})." in headline
    assert page.index("<h2>Diagnosis") < page.index("<h2>Run it again")
    assert str(done.folders[0].absolute()) not in page


def test_of_a_refusal_the_cause_is_first_and_then_what_was_saved_and_what_came_back(
    tmp_path,
) -> None:
    """The paths are those of the record, wherever that lies now."""
    row = {"element": "+1 logits", "field": "proof", "saved": "within 1", "found": "off by 2"}
    cause = {"element": "kv_cache", "evidence": "row 96 holds what belongs in row 2"}
    reason = {"code": "proof_failed", "args": {"where": " at /a b/snapshot"}}
    told = {"verdict": "refused", "reason": reason, "differences": [row], "diagnosis": cause}
    first, second = failure.headline(told, Path("/a b")).splitlines()
    assert first == "Not restored: element 1 kv_cache: row 96 holds what belongs in row 2."
    assert second.startswith("What was saved fails its proof: ")
    assert second.endswith("logits: proof was within 1, is off by 2.") and "/a b" not in second
    plain = {"verdict": "failed", "conclusion": "It failed: /a b/x is gone from /a.", "reason": "r"}
    (tmp_path / ".hydra").mkdir()
    hydra = "hydra:\n  runtime:\n    cwd: /a\n    output_dir: /a b\n"
    (tmp_path / ".hydra" / "hydra.yaml").write_text(hydra)
    assert failure.headline(plain, tmp_path) == "It failed: x is gone from /a."


def test_what_nobody_expected_says_whose_fault_it_is(harness, monkeypatch) -> None:
    monkeypatch.setattr("harness.pipeline.line.Line.capture", lambda *_, **__: 1 // 0)
    done = harness("steps=2")
    page = (done.folders[0] / "report.html").read_text()
    assert done.code == 1 and "unexpected ZeroDivisionError" in page
    assert "This is a fault of the harness" in page and "harness.log" in page


def test_a_full_disk_costs_the_page_and_not_the_record(refused, monkeypatch) -> None:
    monkeypatch.setattr("harness.report.failure.write_text", full)
    done = refused()
    assert done.code == 3 and done.result["verdict"] == "refused"
    assert not (done.folders[0] / "report.html").exists() and "report: " not in done.out


def test_a_folder_that_takes_nothing_makes_no_second_failure(refused, monkeypatch) -> None:
    monkeypatch.setattr("harness.snapshot.result.write_text", full)
    monkeypatch.setattr("harness.report.failure.write_text", full)
    done = refused()
    assert done.code == 3 and not done.folders
    assert done.out.count("harness: ") == 1 and "Traceback" not in done.out
    assert "No record of it could be written" in done.out


def test_a_job_that_took_too_long_says_at_what(harness, monkeypatch) -> None:
    monkeypatch.setattr("harness.pipeline.line.Line.capture", lambda line, **_: waits(line))
    done = harness("steps=2", "limit_s=1")
    page = (done.folders[0] / "report.html").read_text()
    assert done.code == 1 and done.result["stage"] == "wait"
    assert "At &#39;wait&#39;." in page and "stopped after limit_s=1 seconds" in page


def waits(line) -> None:
    line.session.say.stage("wait")
    time.sleep(5)


def test_a_mistyped_option_is_told_once_and_its_command_is_one_to_correct(tmp_path) -> None:
    said = {
        "reason": "prune.ratio=7.0 is not possible",
        "stage": None,
        "stages": [],
        "exit_code": 2,
    }
    told = {"verdict": "failed", "conclusion": f"It failed: {said['reason']}.", "options": {}}
    (tmp_path / ".hydra").mkdir()
    (tmp_path / ".hydra" / "overrides.yaml").write_text("- prune.ratio=7\n")
    failure.write(tmp_path / "report.html", told | said)
    page = (tmp_path / "report.html").read_text()
    assert page.count(said["reason"]) == 1 and "What failed" not in page
    assert "<h2>Its command, to correct</h2>" in page and "Run it again" not in page
    failure.write(
        tmp_path / "report.html", told | said | {"exit_code": 1, "reason": "of two\nlines"}
    )
    page = (tmp_path / "report.html").read_text()
    assert "<h2>What failed</h2>" in page and "<h2>Run it again</h2>" in page


def test_what_may_be_all_it_takes_is_part_of_how_to_mend_it() -> None:
    hint = "Weights in another dtype have other digests; dtype=float32 may be all it takes."
    problem = RestoreRefused("a", ["x was 1, is 2"], why=hint)
    assert problem.remedy.startswith(f"{hint} Load the model") and str(problem).count(hint) == 1
    assert hint in problem.found
