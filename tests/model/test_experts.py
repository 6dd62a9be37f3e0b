"""How many experts a config has: asked by whichever names the library's families give it."""

import pytest
from transformers import AutoConfig

from harness.model.experts import experts


@pytest.mark.parametrize(
    "family, routed, sent",
    [
        ("llama", 0, 0),
        ("mixtral", 8, 2),
        ("qwen3_moe", 128, 8),
        ("deepseek_v3", 256, 8),
        ("gpt_oss", 128, 4),
        ("hunyuan_v1_moe", 1, 1),
        ("ernie4_5_moe", 64, 6),
        ("aria_text", 8, 2),
    ],
)
def test_experts_are_counted_by_the_names_of_every_family(family, routed, sent):
    assert experts(AutoConfig.for_model(family)) == (routed, sent)
