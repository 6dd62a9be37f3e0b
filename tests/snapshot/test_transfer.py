"""K/V on its way to a device: every byte arrives, whatever the blocks; on CUDA through pinned buffers."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.snapshot.transfer import Transfer

CPU = torch.device("cpu")


@settings(deadline=None, max_examples=40)
@given(
    shape=st.lists(st.integers(0, 7), min_size=0, max_size=4),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.uint8]),
    block=st.integers(1, 50),
)
def test_every_byte_arrives_through_blocks_of_any_size(shape, dtype, block):
    way = Transfer(CPU, block * 8, staged=True)
    for _ in range(3):
        source = torch.randint(0, 2, shape).to(dtype)
        arrived = way.to(source)
        way.finish()
        assert arrived.dtype == dtype and torch.equal(arrived, source)
        assert arrived.data_ptr() != source.data_ptr() or not source.numel()


def test_a_tensor_that_is_not_row_major_arrives_as_it_reads():
    source = torch.arange(24.0).view(2, 3, 4).transpose(1, 2)
    assert torch.equal(Transfer(CPU, 16, staged=True).to(source), source)


def test_what_lies_there_already_is_not_copied():
    tensor = torch.ones(3)
    assert Transfer(CPU).to(tensor) is tensor


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_tensor_larger_than_both_buffers_arrives_on_the_gpu_allocated_once():
    source = torch.randint(0, 255, (5 * 2**20 + 3,), dtype=torch.uint8)
    device = torch.device("cuda", torch.cuda.current_device())
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    way = Transfer(device, 2**20)
    arrived = way.to(source)
    way.finish()
    assert torch.equal(arrived.cpu(), source)
    assert torch.cuda.max_memory_allocated() - before < source.nbytes + 2**20
