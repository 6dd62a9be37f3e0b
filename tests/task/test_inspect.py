"""`task=inspect`: the text, the elements, the lineage; and it verifies what it shows."""

import json
import re
import shutil
from dataclasses import replace

from harness.model.build import SHIPPED
from harness.pipeline.snapshot import text_of
from harness.snapshot.words import prunings, quantizings
from harness.task import inspect
from harness.task.inspect import folded


def test_a_snapshot_is_shown_as_a_person_wants_it(harness, place) -> None:
    assert harness("task=save", "text=let k be 5 . the bird sang .", "out=a").code == 0
    done = harness("task=resume", "snapshot=a", "text= what is k ?", "steps=4", "out=b")
    assert done.code == 0, done.out
    shown = harness("task=inspect", "snapshot=b")
    assert shown.code == 0, shown.out
    assert "let k be 5 . the bird sang . what is k ? k is 5 ." in shown.out
    for word in ("kv_cache", "generation", "llama", "parent", "full_attention"):
        assert word in shown.out
    (record,) = place.glob("runs/inspect/*/inspect.json")
    layers, facts = (json.loads(record.read_text())[key] for key in ("layers", "facts"))
    assert facts["takes files from"] == f"a ({facts['parent'][:16]})"
    assert [row["segments"] for row in layers] == [2] * len(layers)
    page = (record.parent / "report.html").read_text()
    assert "<h1>Snapshot b</h1>" in page and "every byte matches its digest." in page
    assert re.search(r"The state after \d+ tokens, all of them kept in 2 layers of llama", page)
    own = sum(path.stat().st_size for path in (place / "b").rglob("*") if path.is_file())
    assert f">{own:,}</td>" in page and "bytes on disk" in page
    (link,) = re.findall(r'<a href="([^"]+)">manifest of the snapshot</a>', page)
    assert (record.parent / link).resolve() == place / "b" / "manifest.json"
    assert '<a href="inspect.json">inspect.json</a>' in page
    assert harness("task=verify", "snapshot=a").code == 0
    (checked,) = place.glob("runs/verify/*/report.html")
    sizes = [path.stat().st_size for path in (place / "a").glob("*.safetensors")]
    assert sizes and all(f">{size:,}</td>" in checked.read_text() for size in sizes)

    manifest = json.loads((place / "b" / "manifest.json").read_text())
    for e in manifest[
        "elements"
    ]:  # as the run's report, its tags in MLflow and the manifest have it
        row = rf">{e['name']}<.*?>{e['kept_as']}<.*?>{e['digest'][:16]}</td>"
        assert re.search(row, page), e["name"]
    refused = harness("task=resume", "snapshot=a", "dtype=bfloat16", "restore.strict=true")
    said = re.findall(
        r"(token_embeddings|layer_norm|attention_weights): digest of the weights was (\w+)",
        refused.out,
    )
    assert refused.code == 3 and len(said) == 3, refused.out
    assert '<th scope="col">digest of the weights</th>' in page
    for name, digest in said:  # what a refusal calls by this name is found here
        assert re.search(rf">{name}<.*{digest}\w*</td></tr>", page), name


def test_rules_that_cannot_be_read_are_told_and_the_ids_are_shown(captured) -> None:
    _, made = captured("steps=2")
    assert "old man" in text_of(made.state)
    for rules in (b"{", b'{"version": "1.0", "model": {"type": "no such"}}', b"\xff"):
        spoilt = replace(made.state, tokenizer_files={"tokenizer.json": rules})
        said = text_of(spoilt)
        assert said.startswith("(its tokenizer.json cannot be read: "), said
        assert str(spoilt.token_ids[0].tolist()) in said
    bare = text_of(replace(made.state, tokenizer_files={}))
    assert bare.startswith("(no tokenizer.json in the snapshot")


def test_damage_and_absence_are_told_apart(harness, place) -> None:
    harness("task=save", "text=let k be 5 .", "out=a")
    payload = max((place / "a").glob("*.safetensors"), key=lambda p: p.stat().st_size)
    data = bytearray(payload.read_bytes())
    data[-5] ^= 4
    payload.write_bytes(data)
    assert harness("task=inspect", "snapshot=a").code == 3
    assert harness("task=inspect", "snapshot=nowhere").code == 2
    assert harness("task=inspect").code == 2


def test_facts_are_read_as_words_not_as_json(harness) -> None:
    assert harness("task=save", "text=let k be 5 .", "out=a").code == 0
    said = harness("task=inspect", "snapshot=a").out
    assert "llama, num_hidden_layers 2, hidden_size 128" in " ".join(said.split())
    assert '{"' not in said


def test_layers_that_are_alike_share_a_row() -> None:
    """In a hybrid each kind has its own; a layer that holds fewer tokens stays apart."""
    rows = [{"layer": i, "kind": "full", "kept": 9} for i in range(28)]
    assert folded(rows) == [["0 to 27", "full", 9]]
    for i in (5, 11, 12):
        rows[i]["kind"] = "sliding"
    rows[27]["kept"] = 8
    assert folded(rows) == [
        ["0 to 4, 6 to 10, 13 to 26", "full", 9],
        ["5, 11 to 12", "sliding", 9],
        ["27", "full", 8],
    ]


def facts_of(harness, place, snapshot: str) -> dict:
    assert harness("task=inspect", f"snapshot={snapshot}", f"name={snapshot}").code == 0
    (record,) = place.glob(f"runs/{snapshot}/*/inspect.json")
    return json.loads(record.read_text())["facts"]


def test_what_was_pruned_or_quantized_is_told_with_its_budget(harness, place) -> None:
    text = "text=let k be 5 . the bird sang in the tree . the man put the stone by the bank ."
    assert harness("task=save", text, "out=a").code == 0
    smaller = ("prune=sink_window", "prune.tokens=12", "quantize=int8")
    assert harness("task=prune", "snapshot=a", "out=b", *smaller, "steps=2").code == 0
    plain, small = facts_of(harness, place, "a"), facts_of(harness, place, "b")
    assert not {"pruned", "quantized"} & set(plain)
    tokens = plain["tokens, kept"].split(",")[0]
    assert small["pruned"] == f"sink_window, tokens 12: 12 of {tokens} tokens kept"
    assert small["quantized"] == "int8"


def test_the_model_that_a_resume_will_load_is_told(harness, place) -> None:
    assert harness("task=save", "text=let k be 5 .", "out=a").code == 0
    assert facts_of(harness, place, "a")["resume loads"] == "model=tiny"
    assert harness("task=save", "model=tiny_gpt2", "text=let k be 5 .", "out=b").code == 0
    facts = facts_of(harness, place, "b")
    assert facts["resume loads"] == "none by itself: say model=tiny_gpt2"
    assert facts["needs model"] == "gpt2, n_layer 3, n_embd 96, vocab_size 1144"
    mine = place / "mine"
    shutil.copytree(SHIPPED["tiny"], mine)
    saved = ("task=save", "model=path", f"model.path={mine}", "text=let k be 5 .", "out=c")
    assert harness(*saved).code == 0
    assert facts_of(harness, place, "c")["resume loads"] == str(mine)
    mine.rename(place / "moved")
    shutil.copytree("c", "d")
    gone = "which is not there any more: give model=path model.path=DIR"
    assert facts_of(harness, place, "d")["resume loads"] == f"{mine}, {gone}"


def test_tokens_without_text_are_shown_by_their_number(captured) -> None:
    _, made = captured("steps=2")
    ids = made.state.token_ids.clone()
    ids[0, -2] = 146751
    said, usual = text_of(replace(made.state, token_ids=ids)), text_of(made.state)
    assert "<146751>" in said and "<146751>" not in usual
    assert said.startswith(usual[: len(usual) // 2])


def test_how_a_state_was_pruned_is_read_from_whatever_says_it() -> None:
    knorm = {"policy": "knorm", "budget": {"ratio": 0.5}, "per_head": True}
    chain = {"policy": "chain", "stages": [knorm, {"policy": "random", "budget": {"tokens": 4}}]}
    loop = {"policy": "tova", "budget": {"tokens": 8}, "at": "every step of a loop"}
    kept = {"from_tokens": 40, "kept_tokens": 4, "positions": "reindexed"}
    assert prunings({"pruned": [chain | kept, loop | kept]}) == [
        "chain of knorm, ratio 0.5, per head; random, tokens 4: 4 of 40 tokens kept, at new positions",
        "tova, tokens 8: 4 of 40 tokens kept every step of a loop, at new positions",
    ]
    assert prunings({"pruned": "no list"}) == prunings({}) == []
    kivi = {"quantizer": "kivi", "recent": 32}
    assert quantizings({"quantized": [kivi]}) == ["kivi, the last 32 tokens left as they are"]


def test_what_windows_hold_is_not_all_that_was_read(captured) -> None:
    """No pruning, and fewer tokens all the same."""
    state = captured("prompt=text", "text=let k be 5 . the bird sang .")[1].state
    about = {"documents": {}, "dtype": "float32"}
    narrow = [replace(la, window=6) for la in state.layers]
    cut = [replace(la, segments=(la.segments[0].cut(la.kept - 5, la.kept),)) for la in narrow]
    slid = state.with_layers(tuple(cut))
    assert not slid.pruned and ", 5 kept in 2 layers" in inspect._whole(slid, about)
    assert ", all of them kept in 2 layers" in inspect._whole(state, about)
