"""Models of the library as GGUF files: the real llama.cpp server says of each what float64 says of the model."""

from dataclasses import replace

import pytest
import torch

IDS = [5 + 7 * i % 240 for i in range(40)]
SIZES = {
    "vocab_size": 256,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "max_position_embeddings": 512,
}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 96}
RANDOM = {"initializer_range": 0.2}
# family: values of its config, and what float32 may differ by in nats; GELU goes through a float16 table
MODELS = {
    "llama": ({**HEADS, "head_dim": 32, "tie_word_embeddings": True}, 1e-4),
    "mistral": ({**HEADS, "sliding_window": None}, 1e-4),
    "qwen2": (HEADS, 1e-4),
    "qwen3": ({**HEADS, "head_dim": 32}, 1e-4),
    "gemma": ({**HEADS, "head_dim": 32}, 1e-2),
    "gemma3_text": ({**HEADS, "head_dim": 32, "query_pre_attn_scalar": 32, "sliding_window": 16,
                     "num_hidden_layers": 7}, 1e-2),
    "gpt2": ({"n_head": 4, "bos_token_id": 1, "eos_token_id": 2}, 1e-2),
}  # fmt: skip


def model_of(family: str, **more):
    """Seeded, random in its norms and biases too."""
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(family, **{**SIZES, **RANDOM, **MODELS[family][0], **more})
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter += 0.3 * torch.randn_like(parameter)
    return model


def gap(model, path) -> float:
    """Largest difference of a log-probability between llama.cpp over `path` and float64 of `model`."""
    from harness.config.option import option
    from harness.engine.llamacpp import LlamaCpp

    exact = {"type_k": "f32", "type_v": "f32", "flash": "off", "threads": 1, "top": 256}
    with LlamaCpp(option("engine", "llamacpp", model=str(path), **exact)) as engine:
        (top,) = engine.evaluate(IDS, 1).tops
    with torch.no_grad():
        row = model.double()(torch.tensor([IDS])).logits[0, -1].log_softmax(-1)
    model.float()
    assert len(top) == 256
    return max(abs(float(row[token]) - value) for token, value in top.items())


@pytest.mark.parametrize("family", MODELS)
def test_llama_cpp_says_what_float64_says(family, tmp_path, monkeypatch) -> None:
    """And its twin, without what the family's row changes, is far from it."""
    from harness.engine.llamacpp import families, weights

    model = model_of(family)
    weights.write(model, tmp_path / "m.gguf")
    most = MODELS[family][1]
    assert gap(model, tmp_path / "m.gguf") < most
    row = families.FAMILIES[family]
    plain = replace(row, neighbours=not row.neighbours, change=lambda name, tensor: tensor)
    if family == "gpt2":
        plain = replace(
            row, change=lambda name, t: row.change(name, t) * (1 + name.endswith("c_attn.bias"))
        )
    monkeypatch.setitem(families.FAMILIES, family, plain)
    weights.write(model, tmp_path / "twin.gguf")
    assert gap(model, tmp_path / "twin.gguf") > 10 * most


def test_a_directory_is_judged_by_its_own_float64(harness, place) -> None:
    model_of("qwen3").save_pretrained(place / "m")
    done = harness("task=referee", "engine=llamacpp", "engine.threads=1", "model=path", f"model.path={place / 'm'}",
                   "model.tokenizer=tiny", f"prompt.ids=[{','.join(map(str, IDS))}]", "steps=4", "task.repeats=1",
                   "engine.type_k=f32", "engine.type_v=f32", "engine.flash=off", "task.cases=[hit,restored]")  # fmt: skip
    assert done.code == 0 and "against float64" in done.reason, done.out
    assert done.result["referee"]["versions"]["model"] == str(place / "m")


def test_a_snapshot_of_a_gguf_model_finds_its_file_again(harness, place) -> None:
    from harness.engine.llamacpp import weights

    weights.write(model_of("qwen2"), place / "m.gguf")
    named = ("model=path", f"model.path={place / 'm.gguf'}", "model.tokenizer=tiny")
    saved = harness("task=save", *named, "prompt.ids=[5,12,19]", "out=runs/g")
    assert saved.code == 0, saved.out
    done = harness("task=resume", "snapshot=runs/g", "steps=2")
    assert done.code == 0, done.out
    (place / "m.gguf").unlink()
    gone = harness("task=resume", "snapshot=runs/g", "steps=2")
    assert gone.code == 2 and "not there any more" in gone.out, gone.out
    weights.write(model_of("qwen3"), place / "m.gguf")  # whose heads the library takes for 128 wide
    misread = harness("task=save", *named, "prompt.ids=[5,12,19]")
    assert (
        misread.code == 2 and "q_proj.weight has shape [128, 64], and [512, 64] by" in misread.out
    ), misread.out


@pytest.mark.parametrize(
    "family, values, says",
    [("mistral", {"sliding_window": 16}, "a window of 16 tokens"),
     ("qwen3", {"attention_bias": True}, "q_proj.bias"),
     ("llama", {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}}, "scaled (linear)"),
     ("gemma3_text", {"query_pre_attn_scalar": 64}, "head_dim"),
     ("gpt2", {"activation_function": "relu"}, "activation_function=relu")],
)  # fmt: skip
def test_what_is_not_written_says_why(family, values, says, tmp_path) -> None:
    from harness.engine.llamacpp import weights
    from harness.errors import UnsupportedModel

    with pytest.raises(UnsupportedModel) as problem:
        weights.write(model_of(family, **values), tmp_path / "m.gguf")
    assert says in str(problem.value) and not (tmp_path / "m.gguf").exists()
