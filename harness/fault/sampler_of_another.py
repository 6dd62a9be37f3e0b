"""The snapshot says it was saved with another sampler than chose its tokens."""

from harness.fault.base import Aid, Fault
from harness.snapshot.state import State


class SamplerOfAnother(Fault):
    element = 13
    bed = "sampled"
    why = "the logits are the same; who resumes draws from another distribution"

    def state(self, state: State, aid: Aid) -> State:
        saved = state.documents["generation"]["sampler"]
        return state.document("generation", sampler={**saved, "top_p": 0.5, "min_p": 0.1})
