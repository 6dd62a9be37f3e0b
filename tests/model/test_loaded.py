"""Models: shipped, random, from a directory, from the hub's own loader; identity; the oracle."""

import copy
import json

import pytest
import torch

from harness.compare.identity import differences
from harness.errors import InputProblem
from harness.model import identity


def load(compose, *overrides):
    from harness.model.loaded import load as build

    cfg = compose(*overrides)
    return build(cfg.model, cfg.dtype, cfg.device)


def test_random_models_are_seeded(compose) -> None:
    first = identity.documents(load(compose, "model=tiny_gpt2").model)
    other = identity.documents(load(compose, "model=tiny_gpt2", "model.seed=1").model)
    again = identity.documents(load(compose, "model=tiny_gpt2").model)
    assert first == again
    assert first["attention_weights"] != other["attention_weights"]


def test_a_hub_id_loads_through_the_same_code(compose, place) -> None:
    """`model.id` is what `from_pretrained` takes; a directory stands in for the hub here."""
    loaded = load(compose, "model=tiny")
    loaded.model.save_pretrained(place / "org" / "name")
    loaded.tokenizer.save_pretrained(place / "org" / "name")
    found = load(compose, "model=gpt2", "model.id=org/name", "model.revision=null")
    assert identity.documents(found.model) == identity.documents(loaded.model)


def test_a_folder_of_one_s_own_is_called_by_its_name(harness, compose, place) -> None:
    loaded = load(compose, "model=tiny")
    loaded.model.save_pretrained(place / "mine-7b")
    loaded.tokenizer.save_pretrained(place / "mine-7b")
    done = harness("model=path", f"model.path={place / 'mine-7b'}", "steps=2", "text=let k be 5 .")
    assert done.code == 0, done.out
    result = json.loads((done.folders[0] / "result.json").read_text())
    assert (result["model"]["name"], result["options"]["model"]) == ("mine-7b", "path")
    assert "<h1>experiment: mine-7b, " in (done.folders[0] / "report.html").read_text()


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ("safetensors", r"model-00001-of-.*safetensors \(3,000 bytes\) is cut short or damaged: "),
        ("missing", r"model-00001-of-.*safetensors"),
        ("bin", r"pytorch_model.bin \(3,000 bytes\) is cut short or damaged: "),
        ("pointer", "is a pointer of Git LFS"),
        ("whole", None),
    ],
)
def test_weights_that_were_cut_short_are_told_by_their_file(compose, place, form, said) -> None:
    tiny = load(compose, "model=tiny")
    mine = place / "mine"
    tiny.model.save_pretrained(mine, max_shard_size="1MB")
    tiny.tokenizer.save_pretrained(mine)
    file = min(mine.glob("model-00001*"))
    if form == "bin":
        for part in mine.glob("model*"):
            part.unlink()
        file = mine / "pytorch_model.bin"
        torch.save(tiny.model.state_dict(), file)
        assert load(compose, "model=path", f"model.path={mine}").layers == 2
    if form in ("safetensors", "bin"):
        file.write_bytes(file.read_bytes()[:3000])
    elif form == "missing":
        file.unlink()
    elif form == "pointer":
        file.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:1\n")
    if said is None:
        assert load(compose, "model=path", f"model.path={mine}").layers == 2
        return
    with pytest.raises(InputProblem, match=said):
        load(compose, "model=path", f"model.path={mine}")


def test_the_hub_out_of_reach_is_one_message(compose) -> None:
    with pytest.raises(InputProblem, match="save_pretrained"):
        load(compose, "model=tinyllama")


CHANGES = {
    "token_embeddings": "model.embed_tokens.weight",
    "layer_norm": "model.layers.1.post_attention_layernorm.weight",
    "attention_weights": "model.layers.0.self_attn.v_proj.weight",
    "model_config": "model.layers.1.mlp.down_proj.weight",
}


@pytest.mark.parametrize("element, name", CHANGES.items())
def test_one_changed_weight_changes_its_element_only(compose, element: str, name: str) -> None:
    loaded = load(compose, "model=tiny")
    other = copy.deepcopy(loaded.model)
    with torch.no_grad():
        dict(other.named_parameters())[name].view(-1)[0] += 1e-3
    before, after = identity.documents(loaded.model), identity.documents(other)
    assert {k for k in before if before[k] != after[k]} == {element}


def test_a_buffer_that_is_saved_with_the_weights_is_identity_too(compose) -> None:
    """As DeepSeek's routers keep what they add to their scores; other buffers follow from the config."""
    loaded = load(compose, "model=tiny")
    mine = copy.copy(loaded)
    mine.model = copy.deepcopy(loaded.model)
    assert "buffers" not in mine.documents["model_config"]
    router = mine.model.model.layers[0].mlp
    router.register_buffer("computed", torch.zeros(4), persistent=False)
    assert "buffers" not in mine.documents["model_config"]
    router.register_buffer("correction", torch.zeros(4))
    before = mine.documents
    assert before["model_config"]["buffers"]["tensors"] == 1
    router.correction[2] += 1
    after = mine.documents
    assert {k for k in before if before[k] != after[k]} == {"model_config"}
    assert [d.field for d in differences(before, after, "x", "x")] == ["buffers.digest"]
    assert differences(loaded.documents, after, "x", "x") == []  # an older snapshot does not say it


def test_rope_and_epsilon_are_read_from_the_modules(compose) -> None:
    loaded = load(compose, "model=tiny")
    before = identity.documents(loaded.model)
    other = copy.deepcopy(loaded.model)
    other.model.rotary_emb.inv_freq *= 1.01
    assert identity.documents(other)["positions"] != before["positions"]
    other = copy.deepcopy(loaded.model)
    other.model.norm.variance_epsilon = 1e-3
    assert identity.documents(other)["layer_norm"] != before["layer_norm"]


def test_a_scaled_rotation_is_another_identity(compose) -> None:
    """YaRN and LongRoPE multiply sine and cosine too: the frequencies alone do not tell it."""
    loaded = load(compose, "model=tiny")
    before, other = identity.documents(loaded.model), copy.deepcopy(loaded.model)
    other.model.rotary_emb.attention_scaling *= 1.1
    (found,) = differences(before, identity.documents(other), "float32", "float32")
    assert found.field.startswith("attention_scaling")


def test_learned_positions_belong_to_positions(compose) -> None:
    loaded = load(compose, "model=tiny_gpt2")
    other = copy.deepcopy(loaded.model)
    with torch.no_grad():
        other.transformer.wpe.weight[3, 3] += 1
    before, after = identity.documents(loaded.model), identity.documents(other)
    assert {k for k in before if before[k] != after[k]} == {"positions"}


@pytest.mark.parametrize("model", ["tiny", "tiny_gpt2", "tiny_gemma3"])
def test_the_oracle_is_float64_all_the_way(compose, model: str) -> None:
    """Two float64 evaluation orders agree as much better than float32 as its roundings are finer: no
    hidden float32 step is left."""
    loaded = load(compose, f"model={model}")
    ids = torch.arange(40)[None] % loaded.text_config.vocab_size
    positions = torch.arange(40)[None]
    exact = loaded.oracle.forward(ids, positions, keep=1)
    assert exact.dtype == torch.float64
    padded = torch.cat([ids[:, :7], ids], dim=1)
    mask = torch.cat(
        [torch.zeros(1, 7, dtype=torch.int64), torch.ones(1, 40, dtype=torch.int64)], 1
    )
    shifted = torch.cat([torch.arange(-7, 0)[None], positions], dim=1)
    other = loaded.oracle.forward(padded, shifted, mask, keep=1)
    plain = loaded.forward(ids, positions, keep=1).double()
    finer = torch.finfo(torch.float64).eps / torch.finfo(torch.float32).eps
    assert (exact - other).abs().max() < 16 * finer * (exact - plain).abs().max()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_experts_compute_in_every_dtype(compose, dtype: str) -> None:
    """The library's fused kernels for them have no float64."""
    loaded = load(
        compose, "model=shape", "model.architecture=mixtral", f"dtype={dtype}",
        "+model.config.num_local_experts=4", "model.config.intermediate_size=48",
    )  # fmt: skip
    ids = torch.arange(3, 15)[None]
    logits = loaded.forward(ids, ids - 3, keep=1)
    assert str(logits.dtype) == f"torch.{dtype}" and logits.isfinite().all()


@pytest.mark.slow
def test_what_a_tokenizer_saves_does_not_tell_the_network(process, place):
    """A snapshot's id must not depend on HF_HUB_OFFLINE (the other tests set it)."""
    done = process("task=save", "text=let k be 5 .", "out=made", "track=none", env={"HF_HUB_OFFLINE": "0"})  # fmt: skip
    assert done.code == 0, done.out
    (saved,) = place.glob("made/**/tokenizer_config.json")
    assert '"local_files_only": true' in saved.read_text()
