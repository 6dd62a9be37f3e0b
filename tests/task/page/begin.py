"""What tests of the thought without a page begin with."""

import torch

from harness.task.ui.session import PageSession

EPS = torch.finfo(torch.float32).eps  # scores are kept in float32
TEXT = "let k be 5 . the bird sang in the tree . the old man walked to the river . what is"
SAMPLED = {"temperature": 1.3, "top_p": 0.95, "repetition_penalty": 1.1}


def begun(thought: PageSession, steps: int = 0) -> PageSession:
    thought.begin(TEXT)
    for _ in range(steps):
        thought.step()
    return thought
