"""Save, restore, continue: what must be refused, what may be waived, what is the same text."""

import json
import shutil
from pathlib import Path

import pytest
import torch

PROMPT = "let k be 5 . the bird sang in the tree . let m be 42 . the old man sat down ."


@pytest.fixture
def snapshot(harness, place) -> Path:
    done = harness("task=save", f"text={PROMPT}", "out=snap")
    assert done.code == 0, done.out
    return place / "snap"


def edit(path: Path, change) -> None:
    path.chmod(0o600)
    data = bytearray(path.read_bytes())
    path.write_bytes(change(data) or data)


def largest(snapshot: Path) -> Path:
    return max(snapshot.glob("*.safetensors"), key=lambda p: p.stat().st_size)


def resume(harness, *more: str):
    return harness("task=resume", "snapshot=snap", "text= what is k ?", "steps=4", *more)


def test_the_resumed_text_is_the_uninterrupted_text(harness, snapshot) -> None:
    done = resume(harness)
    assert done.code == 0 and done.result["verdict"] in ("exact", "equivalent")
    whole = harness(f"text={PROMPT} what is k ?", "steps=4").result
    restored = done.result["text"]["token_ids"]
    assert restored[-5:] == whole["text"]["token_ids"]
    assert " k is 5 ." in done.out


def test_a_snapshot_is_for_its_owner_only(snapshot) -> None:
    assert snapshot.stat().st_mode & 0o077 == 0
    assert all(p.stat().st_mode & 0o077 == 0 for p in snapshot.rglob("*"))


@pytest.mark.parametrize("place_in_file", [-1, -1000, 400])
@pytest.mark.parametrize("strict", ["true", "false"])
def test_one_flipped_payload_bit_is_refused(harness, snapshot, place_in_file, strict) -> None:
    edit(largest(snapshot), lambda d: d.__setitem__(place_in_file, d[place_in_file] ^ 1))
    done = resume(harness, f"restore.strict={strict}")
    assert done.code == 3 and "Traceback" not in done.out
    assert done.result["verdict"] == "refused"


@pytest.mark.parametrize(
    "damage, says",
    [
        (lambda s: edit(largest(s), lambda d: d[:-100]), "safetensors"),
        (lambda s: edit(largest(s), lambda d: d + b"x"), "safetensors"),
        (lambda s: largest(s).unlink(), "missing"),
        (lambda s: edit(s / "manifest.json", lambda d: d.replace(b'"device": "cpu"', b'"device": "tpu"')), "own id"),
        (lambda s: edit(s / "manifest.json", lambda d: d[: len(d) // 2]), "not valid JSON"),
        (lambda s: edit(s / "tokenizer/tokenizer.json", lambda d: d.replace(b"k", b"j", 1)), "tokenizer.json"),
        (lambda s: (s / "tokenizer/tokenizer_config.json").unlink(), "missing"),
    ],
    ids=["truncated", "extended", "payload gone", "manifest edited", "manifest cut", "tokenizer edited", "tokenizer gone"],
)  # fmt: skip
def test_damage_is_refused_and_named(harness, snapshot, damage, says) -> None:
    damage(snapshot)
    done = resume(harness)
    assert done.code == 3 and says in done.out and "Traceback" not in done.out


def test_no_snapshot_is_bad_input(harness, place) -> None:
    (place / "empty").mkdir()
    for where in ("nowhere", "empty"):
        done = harness("task=resume", f"snapshot={where}", "text=x")
        assert done.code == 2 and where in done.out
        assert done.folders == []


@pytest.fixture
def twin(session, place):
    """Save a changed copy of the shipped model; gives `model=path` overrides."""

    def make(change) -> list[str]:
        import copy

        loaded = session().loaded
        model = copy.deepcopy(loaded.model)
        with torch.no_grad():
            change(model)
        model.save_pretrained(place / "twin")
        loaded.tokenizer.save_pretrained(place / "twin")
        return ["model=path", "model.path=twin"]

    return make


def scale(name: str, factor: float):
    def change(model) -> None:
        dict(model.named_parameters())[name].mul_(factor)

    return change


@pytest.mark.parametrize(
    "change, element",
    [
        (scale("model.layers.0.input_layernorm.weight", 1.01), "7 layer_norm"),
        pytest.param(
            scale("model.layers.1.self_attn.q_proj.weight", 1.001),
            "8 attention_weights",
            marks=pytest.mark.slow,
        ),
        (scale("model.embed_tokens.weight", 1.001), "2 token_embeddings"),
        pytest.param(
            scale("model.layers.0.mlp.up_proj.weight", 1.001),
            "6 model_config",
            marks=pytest.mark.slow,
        ),
    ],
    ids=["layer norm", "attention", "embeddings", "mlp"],
)
def test_other_weights_are_refused_or_waived_never_equivalent(
    harness, snapshot, twin, change, element
) -> None:
    model = twin(change)
    done = resume(harness, *model)
    assert done.code == 3 and element in done.out
    assert element in {d["element"] for d in done.result["differences"]}
    waived = resume(harness, *model, "restore.strict=false")
    assert waived.code == 1
    assert waived.result["verdict"] in ("drifted", "diverged")
    assert element in {d["element"] for d in waived.result["waived"]}


def test_an_unchanged_copy_of_the_model_is_accepted(harness, snapshot, twin) -> None:
    done = resume(harness, *twin(lambda model: None))
    assert done.code == 0, done.out


def test_another_tokenizer_of_equal_size_is_refused(harness, snapshot, place, session) -> None:
    from transformers import AutoTokenizer

    loaded = session().loaded
    loaded.tokenizer.save_pretrained(place / "other")
    path = place / "other" / "tokenizer.json"
    rules = json.loads(path.read_text())
    vocabulary = rules["model"]["vocab"]
    a, b = (t for t, i in vocabulary.items() if i in (300, 301))
    vocabulary[a], vocabulary[b] = vocabulary[b], vocabulary[a]
    path.write_text(json.dumps(rules))
    assert len(AutoTokenizer.from_pretrained(place / "other")) == len(loaded.tokenizer)
    done = resume(harness, "model.tokenizer=other")
    assert done.code == 3 and "element 10 tokenizer" in done.out
    waived = resume(harness, "model.tokenizer=other", "restore.strict=false")
    assert waived.code == 1 and waived.result["verdict"] in ("drifted", "diverged")


def test_another_dtype_is_refused(harness, snapshot) -> None:
    done = resume(harness, "dtype=bfloat16")
    assert done.code == 3 and "dtype" in done.out


def test_another_architecture_is_one_line(harness, snapshot) -> None:
    done = resume(harness, "model=tiny_gpt2", "cache=cloned")
    assert done.code == 3
    (told,) = done.result["differences"]
    assert "-layer llama" in told["saved"] and "tiny_gpt2" in told["found"]


def test_a_sampled_run_resumes_bit_identically(harness, place) -> None:
    """The generator state travels: resumed sampled text equals the uninterrupted sampled text."""
    whole = harness(f"text={PROMPT}", "sampling=sample", "seed=11", "steps=10").result
    harness("task=save", f"text={PROMPT}", "out=s", "sampling=sample", "seed=11")
    resumed = harness("task=resume", "snapshot=s", "sampling=sample", "steps=10").result
    assert resumed["text"]["token_ids"] == whole["text"]["token_ids"]
    other = harness(
        "task=resume", "snapshot=s", "sampling=sample", "sampling.seed=5", "steps=10"
    ).result
    assert other["text"]["token_ids"] != whole["text"]["token_ids"]


def test_the_old_snapshot_is_replaced_and_foreign_files_are_left_alone(
    harness, snapshot, place
) -> None:
    old = json.loads((snapshot / "manifest.json").read_text())["id"]
    done = harness("task=save", "text=another text", "out=snap")
    assert done.code == 2 and "overwrite=true" in done.out
    assert harness("task=save", "text=another text", "out=snap", "overwrite=true").code == 0
    assert json.loads((snapshot / "manifest.json").read_text())["id"] != old
    (place / "mine").mkdir()
    (place / "mine/notes.txt").write_text("keep")
    done = harness("task=save", "text=x", "out=mine")
    assert done.code == 2 and (place / "mine/notes.txt").read_text() == "keep"
    assert [p.name for p in place.iterdir() if p.name.endswith(".tmp")] == []


def test_one_more_step_on_both_sides(captured, tmp_path, compose) -> None:
    """Commit after some steps, save, load, step once more: the same logits as without the pause."""
    from harness.cache.registry import decoder
    from harness.save import store

    session, one = captured()
    first = decoder(session.loaded, one.state, session.cfg.cache)
    ids = torch.tensor([[5, 6, 7]])
    first.step(ids[:, :2])
    store.save(first.commit(), tmp_path / "s", session.cfg.save)
    back, _ = store.load(tmp_path / "s")
    second = decoder(session.loaded, back, session.cfg.cache)
    assert torch.equal(second.state.logits, first.commit().logits)
    assert back.tokens == one.state.tokens + 2
    straight, paused = first.step(ids[:, 2:]), second.step(ids[:, 2:])
    plain = decoder(session.loaded, one.state, compose("cache=cloned").cache)
    plain.step(ids[:, :2])
    noise = (plain.step(ids[:, 2:]) - straight).abs().max()
    assert (straight - paused).abs().max() <= 2 * noise


def test_copies_of_a_snapshot_are_the_same_snapshot(harness, snapshot, place) -> None:
    shutil.copytree(snapshot, place / "copy")
    shutil.rmtree(snapshot)
    (place / "copy").rename(snapshot)
    assert resume(harness).code == 0


def nudged(model) -> None:
    """So little that no logit leaves the noise: only the identity tells."""
    model.model.embed_tokens.weight[3, 3] += 1e-3


def test_a_waiver_stays_with_whatever_follows(harness, snapshot, twin) -> None:
    model, loose = twin(nudged), "restore.strict=false"
    assert resume(harness, *model, loose, "out=on").code == 1

    def on(*more: str, folder="on"):
        return harness("task=resume", f"snapshot={folder}", "text= what is m ?", "steps=2", *more)

    for either in (["model=tiny"], [], model):
        done = on(*either)
        assert done.code == 3 and "element 2 token_embeddings" in done.out, done.out
    for number, either in enumerate((["model=tiny"], model)):
        done = on(*either, loose, f"out=further{number}")
        assert (done.code, done.result["verdict"]) == (1, "drifted")
        assert done.result["reason"]["code"] == "waived" and len(done.result["waived"]) == 1
    documents = json.loads(Path("further0/manifest.json").read_text())["documents"]
    assert [row["field"] for row in documents["waived"]["differences"]] == ["digest"]
    prune = ("task=prune", "snapshot=further0", "prune=knorm", "prune.ratio=0.9")
    small = harness(*prune, loose, "steps=2", "out=small")
    assert small.result["reason"]["code"] == "waived" and on(folder="small").code == 3
    back = harness("task=resume", "snapshot=further0", "at=9", loose, "steps=2", "out=back")
    assert back.code == 1 and on(folder="back").code == 3
    said = "waived, so at best drifted: element 2 token_embeddings"
    for task in ("verify", "inspect"):
        told = harness(f"task={task}", "snapshot=further0").out
        assert said in " ".join(told.split()), told
        assert "waived" not in harness(f"task={task}", "snapshot=snap").out


def test_nothing_but_its_document_holds_a_waiver(harness, snapshot, twin) -> None:
    from harness.snapshot import manifest as manifests

    assert "waived" not in json.loads((snapshot / "manifest.json").read_text())["documents"]
    assert resume(harness, *twin(nudged), "restore.strict=false", "out=on").code == 1
    path = Path("on/manifest.json")
    manifest = json.loads(path.read_text())
    del manifest["documents"]["waived"]
    edit(path, lambda data: manifests.dump(manifest))
    on = ("task=resume", "snapshot=on", "model=tiny", "steps=2")
    done = harness(*on)
    assert done.code == 3 and "own id" in done.out
    edit(path, lambda data: manifests.dump(manifest | {"id": manifests.identity(manifest)}))
    assert harness(*on).result["verdict"] == "equivalent"  # as before there was a document


@pytest.mark.slow
def test_a_chat_under_a_waiver_says_so_to_its_end(harness, snapshot, twin) -> None:
    turns = "task.turns=[{ask: 'let k be 5 .'}, {ask: 'what is k ?'}, {ask: 'what is k ?'}]"
    short = ("task=chat", turns, "task.naive=false", "steps=4")
    assert harness(*short, "out=chat").code == 0
    on = (*short, "snapshot=chat/turn-001", "out=on")
    assert harness(*on, *twin(nudged)).code == 3
    done = harness(*on, *twin(nudged), "restore.strict=false")
    assert (done.code, done.result["verdict"]) == (1, "drifted"), done.out
    assert "at best drifted" in done.out and done.result["waived"]
    last = harness("task=resume", "snapshot=on/turn-003", "model=tiny", "steps=2")
    assert last.code == 3 and "waived earlier" in last.out
