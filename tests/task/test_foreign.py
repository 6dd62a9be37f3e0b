"""What others saved, made into a snapshot and compared: only where it is what the model makes of the tokens."""

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "engine"))
import gguf_model

TINY = Path(__file__).resolve().parents[2] / "harness" / "model" / "assets" / "tiny"
IDS = [3 + 5 * i % 60 for i in range(40)]
GOOD = {"exact", "equivalent"}


def given(ids: list[int]) -> str:
    return f"prompt.ids=[{','.join(map(str, ids))}]"


def torch_cache(place: Path, damage=None) -> Path:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(TINY, dtype=torch.float32)
    with torch.no_grad():
        cache = model(torch.tensor([IDS])).past_key_values
    if damage:
        damage(cache)
    torch.save(cache, place / "cache.pt")
    return place / "cache.pt"


def mlx_cache(place: Path) -> Path:
    import mlx.core as mx
    from mlx_lm import utils
    from mlx_lm.models import cache as library

    model, _ = utils.load_model(TINY)
    cache = library.make_prompt_cache(model)
    mx.eval(model(mx.array([IDS]), cache=cache))
    library.save_prompt_cache(str(place / "cache.safetensors"), cache)
    return place / "cache.safetensors"


def mlx_other(place: Path, then: int = 0, **options) -> Path:
    """A quantized cache (`bits`) or a rotating one (`size`), after IDS and `then` single tokens more."""
    import mlx.core as mx
    from mlx_lm import utils
    from mlx_lm.models import cache as library

    model, _ = utils.load_model(TINY)
    if size := options.get("size"):
        cache = [library.RotatingKVCache(size, keep=4) for _ in model.layers]
    else:
        cache = [library.QuantizedKVCache(32, options["bits"]) for _ in model.layers]
    for ids in (IDS, *([t] for t in IDS[:then])):
        mx.eval(model(mx.array([ids]), cache=cache))
    library.save_prompt_cache(str(place / "cache.safetensors"), cache)
    return place / "cache.safetensors"


@pytest.fixture(scope="module")
def slots(tmp_path_factory) -> Path:
    """A model, and slot files of it: `f32.bin` (flash attention off: values lie transposed), `f16.bin`, and
    codes: `q8_0.bin` and `q4_0.bin`. `wide.gguf` has heads of 64, whose codes are turned first."""
    from harness.config.option import option
    from harness.engine.llamacpp import LlamaCpp

    place = tmp_path_factory.mktemp("slots")
    gguf_model.write(place / "m.gguf")
    gguf_model.write(place / "wide.gguf", heads=2, kv_heads=1)
    for kind, flash, model in (("f32", "off", "m"), ("f16", "on", "m"), ("q8_0", "on", "m"),
                               ("q4_0", "on", "m"), ("q8_0", "on", "wide")):  # fmt: skip
        keys = {"type_k": kind, "type_v": kind, "flash": flash, "threads": 1}
        path = str(place / f"{model}.gguf")
        with LlamaCpp(option("engine", "llamacpp", model=path, **keys)) as engine:
            engine.save(IDS)
            file = place / (f"{kind}.bin" if model == "m" else f"{kind}_{model}.bin")
            file.write_bytes((engine._folder / "state").read_bytes())
    return place


@pytest.mark.parametrize(
    "file, model, bits, codes",
    [("q8_0", "m", 8, "kept"), ("q4_0", "m", 4, "kept"), ("q8_0_wide", "wide", 8, "opened")],
)
def test_codes_of_llama_cpp_become_a_snapshot(
    harness, place, slots, file, model, bits, codes
) -> None:
    """The very codes where a snapshot has a form for them; turned ones are opened. Either way it says so."""
    from harness.save import store

    asked = ("model=path", f"model.path={slots / model}.gguf", "steps=6", f"out={place / 's'}")
    done = harness("task=save", f"from={slots / file}.bin", *asked)
    assert done.code == 1 and done.result["verdict"] in ("drifted", "diverged"), done.out
    assert done.result["foreign"]["lossy"] == {"bits": bits, "group": 32, "codes": codes}
    state, _ = store.load(place / "s")
    assert state.quantized is (codes == "kept")
    (history,) = state.documents["kv_format"]["quantized"]
    assert (history["bits"], history["codes"]) == (bits, codes)
    same = harness("task=diff", f"a={slots / file}.bin", f"b={place / 's'}")
    numbers = [d for d in same.result["differences"] if d["what"].startswith("layer")]
    assert not numbers, numbers  # nothing was rounded a second time
    other = harness("task=save", f"from={slots / file}.bin", *asked[:3], given(IDS[::-1]))
    assert other.code == 3 and "read by this model" in other.out


@pytest.mark.parametrize("bits", [8, 4])
def test_codes_of_mlx_become_a_snapshot(harness, place, bits) -> None:
    file = mlx_other(place, bits=bits)
    done = harness("task=save", f"from={file}", given(IDS), "steps=6", f"out={place / 's'}")
    assert done.result["foreign"]["lossy"] == {"bits": bits, "group": 32, "codes": "kept"}, done.out
    same = harness("task=diff", f"a={file}", f"b={place / 's'}")
    numbers = [d for d in same.result["differences"] if d["what"].startswith("layer")]
    assert not numbers, numbers
    wrong = harness("task=save", f"from={file}", given([*IDS[:9], 50, *IDS[10:]]), "steps=6")
    assert wrong.code == 3, wrong.out


def test_a_ring_that_holds_everything_becomes_a_snapshot(harness, place) -> None:
    done = harness("task=save", f"from={mlx_other(place, size=64)}", given(IDS), "steps=6")
    assert done.code == 0 and done.result["verdict"] in GOOD and not done.result["pruned"], done.out


@pytest.mark.parametrize("then", [0, 1, 7, 12, 30])
def test_a_ring_becomes_a_snapshot_of_its_window(harness, place, then) -> None:
    """The first four and the latest at their own positions, after a prompt and `then` decoded tokens; the
    twin: one value of a token that is held is another."""
    from safetensors import safe_open
    from safetensors.torch import load_file, save_file

    from harness.save import store

    file, ids = mlx_other(place, then=then, size=16), [*IDS, *IDS[:then]]
    done = harness("task=save", f"from={file}", given(ids), "steps=6", f"out={place / 's'}")
    assert done.code == 0 and done.result["pruned"], done.out
    state, _ = store.load(place / "s")
    assert state.layers[1].positions[0].tolist() == [0, 1, 2, 3, *range(28 + then, 40 + then)]
    with safe_open(file, "pt") as opened:
        said = opened.metadata()
    arrays = load_file(file)
    arrays["1.1"][0, 0, 2, 5] += 0.01
    save_file(arrays, file, said)
    twin = harness("task=save", f"from={file}", given(ids), "steps=6")
    assert twin.code == 3 and "layer 1, token 2" in twin.out, twin.out


def test_a_ring_that_lies_about_itself(harness, place) -> None:
    from safetensors import safe_open
    from safetensors.torch import load_file, save_file

    file = mlx_other(place, size=16)
    with safe_open(file, "pt") as opened:
        said = opened.metadata()
    arrays = load_file(file)
    arrays["1.2"] = torch.tensor(44)  # one layer saw more tokens than the others
    save_file(arrays, file, said)
    done = harness("task=save", f"from={file}", given(IDS), "steps=6")
    assert done.code == 2 and "different tokens" in done.out and "Traceback" not in done.out


@pytest.mark.parametrize("make", [torch_cache, mlx_cache])
def test_it_becomes_a_snapshot_that_is_judged(harness, place, make) -> None:
    done = harness("task=save", f"from={make(place)}", given(IDS), "steps=6", f"out={place / 's'}")
    assert done.code == 0 and done.result["verdict"] in GOOD, done.out
    assert all(r["off_by"] <= 8 * r["floor"] for r in done.result["foreign"]["layers"])
    assert harness("task=resume", f"snapshot={place / 's'}", "steps=4").code == 0


def test_a_slot_becomes_a_snapshot(harness, place, slots) -> None:
    """Its tokens are in it, and llama.cpp's order of RoPE is turned into the library's."""
    model = ("model=path", f"model.path={slots / 'm.gguf'}", "steps=6")
    done = harness("task=save", f"from={slots / 'f32.bin'}", *model)
    assert done.code == 0 and done.result["verdict"] in GOOD, done.out
    assert "neighbours" in done.result["foreign"]["keys"] and done.result["size"]["tokens"] == 40
    rounded = harness("task=save", f"from={slots / 'f16.bin'}", *model)
    assert rounded.code == 1 and rounded.result["verdict"] == "drifted", rounded.out
    other = harness("task=save", f"from={slots / 'f32.bin'}", *model, given(IDS[::-1]))
    assert other.code == 3 and "token 0" in other.out


def test_other_tokens_are_refused(harness, place) -> None:
    file = torch_cache(place)
    wrong = [*IDS[:17], IDS[17] + 1, *IDS[18:]]
    done = harness("task=save", f"from={file}", given(wrong), "steps=4")
    assert done.code == 3 and "layer 0, token 17" in done.out and "Traceback" not in done.out
    waived = harness("task=save", f"from={file}", given(wrong), "steps=4", "restore.strict=false")
    assert waived.code == 1 and waived.result["verdict"] in ("drifted", "diverged")


@pytest.mark.parametrize("part, layer, token", [("keys", 0, 5), ("values", 1, 31)])
def test_a_wrong_number_is_refused(harness, place, part, layer, token) -> None:
    def damage(cache) -> None:
        getattr(cache.layers[layer], part)[0, 0, token, 3] += 0.01

    done = harness("task=save", f"from={torch_cache(place, damage)}", given(IDS), "steps=4")
    assert done.code == 3 and f"layer {layer}, token {token}" in done.out


def test_another_model_and_missing_tokens(harness, place, slots) -> None:
    file = torch_cache(place)
    done = harness("task=save", f"from={file}", given(IDS), "model=path", f"model.path={slots / 'm.gguf'}")  # fmt: skip
    assert done.code == 3 and ("layers" in done.out or "shape" in done.out)
    short = harness("task=save", f"from={file}", given(IDS[:-1]))
    assert short.code == 3 and "shape" in short.out
    none = harness("task=save", f"from={file}")
    assert none.code == 2 and "prompt.ids" in none.out


def test_files_are_compared(harness, place, slots) -> None:
    ours = harness("task=save", given(IDS), f"out={place / 's'}")
    assert ours.code == 0
    file = torch_cache(place)
    same = harness("task=diff", f"a={file}", f"b={place / 's'}")
    assert same.code == 0 and same.result["verdict"] == "exact", same.out
    near = harness("task=diff", f"a={mlx_cache(place)}", f"b={file}")
    assert near.code == 1 and 0 < far(near) < 1e-4
    rounded = harness("task=diff", f"a={slots / 'f32.bin'}", f"b={slots / 'f16.bin'}")
    assert rounded.code == 1 and 1e-4 < far(rounded) < 0.1
    assert any(d["what"] == "kept as" for d in rounded.result["differences"])
    twin = harness("task=diff", f"a={slots / 'f16.bin'}", f"b={slots / 'f16.bin'}")
    assert twin.code == 0


def test_a_slot_against_a_snapshot(harness, place, slots) -> None:
    model = ("model=path", f"model.path={slots / 'm.gguf'}")
    assert harness("task=save", given(IDS), f"out={place / 's'}", *model).code == 0
    done = harness("task=diff", f"a={slots / 'f32.bin'}", f"b={place / 's'}")
    assert done.code == 1 and 0 < far(done) < 1e-4, done.out
    wrong = harness("task=save", given([*IDS[:20], 9, *IDS[21:]]), f"out={place / 'w'}", *model)
    assert wrong.code == 0
    done = harness("task=diff", f"a={slots / 'f32.bin'}", f"b={place / 'w'}")
    assert far(done) > 0.1 and done.result["differences"][0]["where"] == "token 21"


def far(done) -> float:
    return max(d["largest difference"] or 0 for d in done.result["differences"])


@pytest.mark.parametrize("cut", [200, 3000, -2])
def test_a_slot_that_was_cut_short(harness, place, slots, cut) -> None:
    (place / "cut.bin").write_bytes((slots / "f16.bin").read_bytes()[:cut])
    done = harness("task=diff", f"a={place / 'cut.bin'}", f"b={slots / 'f16.bin'}")
    assert done.code == 2 and "not read" in done.out and "Traceback" not in done.out
