"""The format document claims another precision than the tensors have."""

from harness.fault.base import Aid, Fault, State


class DtypeRelabelled(Fault, element=11):
    why = "a reader that believes it would convert the cache"

    def state(self, state: State, aid: Aid) -> State:
        claimed = "float16" if state.documents["kv_format"]["dtype"] != "float16" else "bfloat16"
        return state.document("kv_format", dtype=claimed)
