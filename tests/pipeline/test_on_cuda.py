"""The main job on a CUDA device, by every cache that one past can be continued with."""

import pytest
import torch

from harness.cache.library import _misaligned


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("cache", ["cloned", "manual", "view"])
def test_on_cuda_what_was_paused_goes_on(dtype, cache, harness):
    done = harness("device=cuda", f"dtype={dtype}", f"cache={cache}", "steps=4", "track=none")
    assert done.code == 0, done.out
    assert done.result["verdict"] == ("exact" if cache == "cloned" else "equivalent")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_cuda_a_damaged_restore_is_refused(harness):
    asked = ("device=cuda", "dtype=bfloat16", "steps=4", "track=none", "fault=layers_shifted")
    done = harness(*asked)
    assert done.code not in (0, 1) and done.result["verdict"] not in ("exact", "equivalent")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_lies_otherwise_is_off_by_one_element_on_a_cpu_and_by_16_bytes_on_a_device(dtype):
    tensor = torch.arange(24).to(dtype).view(2, 3, 4)
    found = _misaligned(tensor)
    assert torch.equal(found, tensor) and found.is_contiguous()
    assert found.storage_offset() == 1
    there = _misaligned(tensor.to("meta"))
    assert there.storage_offset() * there.element_size() == 16
