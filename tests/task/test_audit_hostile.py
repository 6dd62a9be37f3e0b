"""Records that were made to bite: a record's configuration is data. Nothing that it refers to is resolved, nothing that
lies outside of it is read untyped, nobody is asked over a network, and nothing that it names is imported."""

import json
import shutil
import socket
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest
import yaml

from harness import config
from harness.cli import replay
from harness.config import moved
from harness.errors import ConfigProblem, InputProblem, UntrustedPlugin
from harness.snapshot import record
from harness.task.audit import evidence, places

SECRET = "a-token-of-the-auditor"
# a variable, as a person writes it and as no pattern over the text finds it
VARIABLES = {
    "plain": "${oc.env:BITTEN}",
    "escaped dollar": '"\\x24{oc.env:BITTEN}"',
    "escaped brace": '"$\\x7boc.env:BITTEN}"',
    "folded": '"$\\\n  {oc.env:BITTEN}"',
    "nested name": "${oc.${missing}env:BITTEN}",
    "a reference": "${name}",
    "half a literal": '${literal:"${oc.env:BITTEN}"}',
}


@pytest.fixture
def copy(recorded, tmp_path) -> Path:
    return Path(shutil.copytree(recorded, tmp_path / "records" / recorded.name))


@pytest.fixture
def heard(monkeypatch):
    """A server of the record's maker: its address, and the paths that it was asked for."""
    monkeypatch.setenv("BITTEN", SECRET)
    paths = []

    class Listener(BaseHTTPRequestHandler):
        def do_GET(self):
            paths.append(self.path)
            self.send_error(404)

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Listener)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", paths
    server.shutdown()
    server.server_close()


def rewritten(folder: Path, seal: bool = True, **edits) -> None:
    """The record in `folder` with other values in its YAML, and in its seal, and its place as its maker would have it."""
    result, sealed = record.read(folder / "result.json"), record.read(folder / record.NAME)
    values = {}
    for key, value in edits.items():
        old = sealed["config"].get(key)
        values[key] = {**old, **value} if isinstance(value, dict) else value
    place = folder / ".hydra" / "config.yaml"
    place.write_text(yaml.safe_dump({**yaml.safe_load(place.read_text()), **values}))
    now = {**sealed["config"], **(values if seal else {})}
    record.seal(folder, {**result, "folder": str(folder)}, now, sealed["packages"])


def left(folder: Path) -> str:
    return "".join(p.read_text("utf-8", "replace") for p in folder.rglob("*") if p.is_file())


@pytest.mark.parametrize("said", VARIABLES.values(), ids=VARIABLES)
def test_no_variable_of_a_record_is_resolved(copy, monkeypatch, compose, said) -> None:
    """However it is written; in the seal it is a text like any other."""
    monkeypatch.setenv("BITTEN", SECRET)
    place = copy / ".hydra" / "config.yaml"
    lines = [line for line in place.read_text().splitlines() if not line.startswith("text:")]
    place.write_text("\n".join([*lines, f"text: {said}"]) + "\n")
    with pytest.raises(ConfigProblem, match=r"variable|no configuration"):
        config.values(place)
    assert config.composed(place) is None
    (found,) = evidence._configuration(copy, record.read(copy / record.NAME)["config"], None, False)
    assert found.what == ".hydra/config.yaml" and SECRET not in found.explanation
    values = record.read(copy / record.NAME)["config"] | {"text": yaml.safe_load(said)}
    assert config.recorded(values, copy).text == yaml.safe_load(said)


def test_what_a_run_kept_is_data_that_says_what_was_typed(copy, tmp_path) -> None:
    """Texts with dollars, braces and question marks too, and an option that another one names."""
    values = record.read(copy / record.NAME)["config"]
    for text in ("${oc.env:HOME} costs $5", "\\${name}", "???", "a: 1\n# b", "1e5", "null", ""):
        said = config.recorded({**values, "text": text}, copy)
        (tmp_path / ".hydra").mkdir(exist_ok=True)
        (tmp_path / ".hydra" / "config.yaml").touch()
        config.written(tmp_path, {**values, "text": text})
        held = config.values(tmp_path / ".hydra" / "config.yaml")
        assert config.recorded(held, copy) == said and said.text == text


@pytest.mark.parametrize("side", ["the seal", "the YAML"])
@pytest.mark.parametrize("key, value", [("snapshot", "http://x/y"), ("text", "another"), ("out", "b")])  # fmt: skip
def test_a_key_that_one_side_lacks_is_compared(copy, side, key, value) -> None:
    result, sealed = record.read(copy / "result.json"), record.read(copy / record.NAME)
    place = copy / ".hydra" / "config.yaml"
    tree = yaml.safe_load(place.read_text())
    lacking, other = (sealed["config"], tree) if side == "the seal" else (tree, sealed["config"])
    lacking.pop(key)
    other[key] = value
    place.write_text(yaml.safe_dump(tree))
    record.seal(copy, result, sealed["config"], sealed["packages"])
    found = evidence._configuration(copy, sealed["config"], None, False)
    assert [f.what for f in found] == [f"config: {key}"]


def test_a_record_sends_nothing_to_anybody(copy, heard, harness) -> None:
    address, paths = heard
    resume = {"name": "resume", "reads": ["snapshot"]}
    for variable in ("${oc.env:BITTEN}", "\\x24{oc.env:BITTEN}"):
        rewritten(copy, task=resume, snapshot=f"{address}/x")
        result, sealed = (record.read(copy / n) for n in ("result.json", record.NAME))
        place = copy / ".hydra" / "config.yaml"
        place.write_text(place.read_text().replace(f"{address}/x", f'"{address}/{variable}"'))
        for config_ in (
            sealed["config"],
            {k: v for k, v in sealed["config"].items() if k != "snapshot"},
        ):
            record.seal(copy, result, config_, sealed["packages"])
            done = harness("task=audit", f"run={copy}")
            assert paths == [] and SECRET not in done.out + left(copy.parents[1] / "runs"), done.out
            assert done.code == (2 if "snapshot" in config_ else 1), done.out


def test_no_socket_leaves_the_process_that_runs_a_record_again() -> None:
    for event in ("socket.connect", "socket.getaddrinfo"):
        with pytest.raises(InputProblem, match="over a network"):
            replay._offline(event, ())
    assert replay._offline("open", ()) is None
    assert socket.socket  # which raise these events


FILES = {
    "snapshot": {"snapshot": "{}"},
    "from": {"foreign": "{}"},
    "prompt.path": {"prompt": {"name": "file", "path": "{}"}},
    "model.path": {"model": {"name": "path", "id": None, "path": "{}"}},
    "model.tokenizer": {"model": {"tokenizer": "{}"}},
    "model.id": {"model": {"name": "gpt2", "id": "{}"}},
}


@pytest.mark.parametrize("key", FILES)
def test_a_file_that_a_record_names_is_read_only_where_it_is_typed(
    copy, harness, place, key
) -> None:
    """It would stand in the report, or go into a model."""
    theirs = place / "private.txt"
    theirs.write_text(SECRET)
    rewritten(copy, **json.loads(json.dumps(FILES[key]).replace("{}", str(theirs))))
    done = harness("task=audit", f"run={copy}", "name=audited")
    assert done.code == 2 and f"{key}={theirs}" in done.out.replace("\n", ""), done.out
    assert "Traceback" not in done.out and SECRET not in done.out + left(place / "runs")


def test_a_prompt_of_a_file_is_audited_where_the_file_is_typed(harness, place) -> None:
    (place / "a.txt").write_text("let k be 5 . what is k ?")
    asked = ("prompt=file", "prompt.path=a.txt")
    (run,) = harness(*asked, "steps=2", "name=asked").folders
    assert harness("task=audit", f"run={run}").code == 2
    done = harness("task=audit", f"run={run}", *asked)
    assert done.code == 0 and "SAME" in done.out, done.out
    (place / "b.txt").write_text("let k be 6 . what is k ?")
    done = harness("task=audit", f"run={run}", "prompt=file", "prompt.path=b.txt")
    assert done.code == 1, done.out


def test_what_lies_in_the_record_needs_no_word_and_a_folder_stands_for_what_is_below_it(
    tmp_path, monkeypatch
) -> None:
    point, typed = tmp_path / "sweep" / "0", tmp_path / "saved"
    (point / "snapshot").mkdir(parents=True)
    (typed / "a").mkdir(parents=True)

    def named(place: Path) -> None:
        (point / record.NAME).write_text(json.dumps({"config": {"snapshot": str(place)}}))

    named(point / "snapshot")
    places.check([point], tmp_path / "sweep")
    named(typed / "a")
    with pytest.raises(InputProblem, match="snapshot="):
        places.check([point], tmp_path / "sweep")
    monkeypatch.setattr("sys.argv", ["harness", "task=audit", f"snapshot={typed}", "seed=3"])
    places.check([point], tmp_path / "sweep")
    job = places.job(point, tmp_path / "sweep")
    assert job["places"] == {"snapshot": str(typed / "a")}
    assert job["typed"] == ["task=audit", "seed=3"]
    named(tmp_path / "elsewhere")
    assert places.job(point, point)["places"] == {"snapshot": str(typed)}


def test_no_link_leads_an_audit_out_of_a_record(copy, harness, place) -> None:
    theirs = place / "private.html"
    theirs.write_text(SECRET)
    (copy / "report.html").unlink()
    (copy / "report.html").symlink_to(theirs)
    done = harness("task=audit", f"run={copy}")
    assert done.code == 2 and "a link that leads out of the record" in done.out, done.out
    assert SECRET not in done.out + left(place / "runs")


def test_a_model_that_a_snapshot_in_the_record_names_is_not_read_either(
    tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(moved, "_RECORD", [])
    (tmp_path / "model").mkdir()
    outside = tmp_path / "model"
    assert moved.place(str(outside)) == outside
    moved.confine(tmp_path / "record", None)
    with pytest.raises(InputProblem, match=r"model=path model\.path=DIR"):
        moved.place(str(outside))
    moved.confine(tmp_path / "record", str(outside))
    assert moved.place("/anywhere") == outside


@pytest.mark.parametrize("key", ["prunes", "caches"])
def test_an_option_from_outside_needs_trust_wherever_a_record_names_it(
    copy, monkeypatch, key
) -> None:
    values = record.read(copy / record.NAME)["config"]
    values["task"] = {"name": "evaluate", "reads": [], key: ["theirs"]}
    monkeypatch.setattr("harness.variants.outside", lambda group: ["theirs"])
    node = {"name": "theirs", "_target_": "theirs.Theirs"}
    real = config.stored.variants.signature
    monkeypatch.setattr(
        "harness.variants.signature", lambda g, o, *a: node if o == "theirs" else real(g, o, *a)
    )
    with pytest.raises(UntrustedPlugin):
        config.recorded(values, copy)
