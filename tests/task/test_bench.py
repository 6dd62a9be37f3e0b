"""The bench itself: every cache gets a row, and the figures that do not depend on the clock are right."""

import json

import pytest
import torch

SHAPE = ["num_hidden_layers=2", "hidden_size=64", "intermediate_size=96", "num_attention_heads=4",
         "num_key_value_heads=2", "head_dim=16", "vocab_size=512"]  # fmt: skip
CONTEXT = 600
VALUES = (
    2 * 2 * 2 * 16 * CONTEXT
)  # numbers in the past: K and V, layers, KV heads, head_dim, tokens
BYTES = {"float32": 4, "bfloat16": 2}


@pytest.fixture
def rows(harness):
    def run(*arguments):
        shape = [f"model.config.{value}" for value in SHAPE]
        done = harness(*arguments, *shape, "device=cpu", "task.runs=3", "task.seconds=1")
        assert done.code == 0, done.out
        return json.loads((done.folders[0] / "bench.json").read_text())

    return run


def test_every_cache_has_a_row_and_its_figures_hold(rows, monkeypatch):
    from harness.task.bench import decode as bench

    monkeypatch.setitem(bench.PROBE_BYTES, "cpu", 2**22)  # the bandwidth is not what is looked at
    names = ["dynamic", "cloned", "static", "view", "manual"]
    found = rows("task=bench", f"task.contexts=[{CONTEXT}]", "task.branches=[2]",
                 f"task.branch_contexts=[{CONTEXT}]", "task.branch_caches=[dynamic,static,manual]")  # fmt: skip
    by = {(r["dtype"], r["branches"], r["cache"]): r for r in found}
    assert len(by) == len(found)
    assert set(by) == {(dtype, 1, n) for dtype in BYTES for n in names} | {
        ("bfloat16", 2, n) for n in ("dynamic", "static", "manual")
    }
    for (dtype, branches, name), row in by.items():
        assert row["limit_s"] > 0 and row["bandwidth_gb_s"] > 0
        if branches == 2 and name == "static":
            assert row["reason"] and row["per_token_s"] is None
            continue
        assert row["reason"] is None and row["runs"] == 3 and row["per_token_s"] > 0
        past = VALUES * BYTES[dtype]
        if name == "dynamic":
            assert row["ratio_to_dynamic"] == 1
        if name == "cloned":
            assert row["bytes_copied_per_token"] >= past
        if name in ("view", "manual"):
            assert row["bytes_copied_per_token"] < past / 4
    past = VALUES * BYTES["bfloat16"]
    assert by["bfloat16", 2, "dynamic"]["kv_bytes"] >= 2 * past
    assert by["bfloat16", 2, "manual"]["kv_bytes"] < 1.25 * past


def test_a_cache_that_does_less_is_not_compared(rows, monkeypatch):
    """Its first steps are honest; the timed ones answer with what was said before."""
    from harness.task.bench import decode as bench

    monkeypatch.setitem(bench.PROBE_BYTES, "cpu", 2**20)
    build = bench.build_decoder

    def idle(loaded, state, settings):
        made = build(loaded, state, settings)
        if settings.name == "view":
            step, said = made.step, []
            made.step = lambda ids: said[1] if len(said) > 1 else said.append(step(ids)) or said[-1]
        return made

    monkeypatch.setattr(bench, "build_decoder", idle)
    dynamic, view, manual = rows(
        "task=bench", "task.contexts=[64]", "task.branches=[]", "task.dtypes=[float32]",
        "task.caches=[dynamic,view,manual]",
    )  # fmt: skip
    assert "not those of dynamic" in view["reason"] and view["per_token_s"]
    assert view["ratio_to_dynamic"] is view["times_limit"] is None
    assert dynamic["ratio_to_dynamic"] == 1 and manual["ratio_to_dynamic"] and not manual["reason"]


def no_room(ids):
    raise torch.OutOfMemoryError("no room")


def test_the_experiment_for_a_gpu_runs_small_on_a_cpu(rows, compose, monkeypatch):
    from harness.task.bench import decode as bench

    monkeypatch.setitem(bench.PROBE_BYTES, "cpu", 2**22)
    cfg = compose("experiment=bench_gpu")
    assert cfg.device == "cuda" and cfg.model.config["num_key_value_heads"] == 4
    assert len(bench.cells(cfg.task)) == 12
    build = bench.build_decoder

    def full(loaded, state, settings):
        """No device here is small enough for the real error; the others' figures must not suffer."""
        made = build(loaded, state, settings)
        if settings.branches == 2 and settings.name == "dynamic":
            raise torch.OutOfMemoryError("no room")
        if settings.branches == 2 and settings.name == "view":
            left = iter([made.step] * 3)
            made.step = lambda ids: next(left, no_room)(ids)
        return made

    monkeypatch.setattr(bench, "build_decoder", full)
    found = rows("experiment=bench_gpu", "task.compiled=false", "task.contexts=[64]", "task.branches=[2]", "task.branch_contexts=[64]")  # fmt: skip
    assert [r["cache"] for r in found] == ["dynamic", "cloned", "view", "manual", "dynamic", "view", "manual"]  # fmt: skip
    *fitting, dynamic, view, manual = found
    assert all(r["per_token_s"] for r in [*fitting, manual])
    for row in (dynamic, view):
        assert "out of memory" in row["reason"] and row["per_token_s"] is row["open_s"] is None
    assert manual["runs"] == 3 and manual["ratio_to_dynamic"] is None


@pytest.mark.parametrize("kind", ["qwen3_moe", "deepseek_v3", "olmoe", "llama"])
def test_the_memory_limit_leaves_out_experts_that_no_token_is_sent_to(kind):
    from transformers import AutoConfig, AutoModelForCausalLM

    from harness.task.bench.decode import weight_bytes

    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "vocab_size": 64, "pad_token_id": 0}
    config = AutoConfig.for_model(
        kind, **sizes, num_attention_heads=4, num_key_value_heads=4, eos_token_id=1,
        intermediate_size=48, moe_intermediate_size=16, num_experts=8, num_experts_per_tok=2,
        n_routed_experts=8, n_group=1, topk_group=1, first_k_dense_replace=1,
    )  # fmt: skip
    model = AutoModelForCausalLM.from_config(config)
    every = sum(p.nbytes for p in model.parameters()) - model.get_input_embeddings().weight.nbytes
    routed = sum(p.nbytes for n, p in model.named_parameters() if ".experts." in n)
    assert bool(routed) == (kind != "llama")
    assert weight_bytes(model) == every - routed * 6 // 8


def test_a_gpu_bench_without_a_gpu_is_one_plain_message(harness):
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    done = harness("experiment=bench_gpu")
    assert done.code == 2 and "no usable CUDA device" in done.out and "Traceback" not in done.out


def test_llamacpp_takes_its_turn(rows, monkeypatch):
    from harness.task.bench import decode as bench

    monkeypatch.setitem(bench.PROBE_BYTES, "cpu", 2**20)
    found = rows("task=bench", "task.engines=[llamacpp]", "task.contexts=[96]", "task.branches=[]",
                 "task.dtypes=[float32]", "task.caches=[dynamic,manual]")  # fmt: skip
    by = {(r["engine"], r["cache"]): r for r in found}
    assert set(by) == {
        ("transformers", "dynamic"),
        ("transformers", "manual"),
        ("llamacpp", "llamacpp"),
    }
    for row in found:
        for figure in ("per_token_s", "prefill_s", "save_s", "load_s", "ratio_to_llamacpp"):
            assert row[figure] > 0, (row["cache"], figure)
        assert row["stored_bytes"] >= VALUES * 4 * 96 / CONTEXT


def test_llamacpp_runs_the_same_weights(tmp_path, monkeypatch):
    """Written and read back bit by bit; the twin leaves out the order of RoPE and is not the same."""
    from transformers import AutoConfig, AutoModelForCausalLM

    from harness.engine.llamacpp import weights
    from harness.model import gguf

    shape = {k: int(v) for k, v in (s.split("=") for s in SHAPE)}
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model("llama", **shape))
    model.to(torch.bfloat16)

    def same(name: str) -> bool:
        weights.write(model, tmp_path / name)
        back = gguf.model_of(tmp_path / name, torch.bfloat16, {}).state_dict()
        return all(torch.equal(t, back[k]) for k, t in model.state_dict().items())

    assert same("m.gguf")
    monkeypatch.setattr(weights, "_neighbours", lambda weight, heads: weight)
    assert not same("twin.gguf")
