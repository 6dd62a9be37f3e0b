"""llama.cpp after a context shift, beside a cold run of the very tokens that its slot still holds.

Standard library only. Start a server first, and give its address:

    llama-server -m m.gguf -c 256 --context-shift -np 1 -ctk f32 -ctv f32 -fa off --port 8080
    python shifted.py http://127.0.0.1:8080

Prints the largest difference of a log-probability, in nats, and both most probable tokens.
"""

import json
import sys
import urllib.request
from typing import Any

PROMPT, KEPT = 200, 1  # tokens; it keeps its first, a BOS


def main() -> None:
    def ask(prompt: list[int], tokens: int, cached: bool) -> Any:
        body = {"prompt": prompt, "n_predict": tokens, "temperature": 0, "n_probs": 100, "id_slot": 0,
                "cache_prompt": cached, "ignore_eos": True, "return_tokens": True}  # fmt: skip
        request = urllib.request.Request(sys.argv[1] + "/completion", json.dumps(body).encode())
        with urllib.request.urlopen(request) as answer:
            return json.loads(answer.read())

    def logp(said: Any) -> dict[int, float]:
        top = said["completion_probabilities"][0]["top_logprobs"]
        return {t["id"]: t["logprob"] for t in top}

    with urllib.request.urlopen(sys.argv[1] + "/slots") as answer:
        window = json.loads(answer.read())[0]["n_ctx"]
    ids = [5 + i * i % 400 for i in range(PROMPT)]
    said = ask(ids, window - PROMPT + 8, False)
    ids += said["tokens"]
    reused = ids[:KEPT] + ids[KEPT + (window - 1 - KEPT) // 2 :]
    shifted = ask(reused, 1, True)
    cold = ask(reused, 1, False)
    a, b = logp(shifted), logp(cold)
    print(f"reused {shifted['timings'].get('cache_n')} of {len(reused)} tokens")
    print(f"largest difference {max(abs(a[t] - b[t]) for t in a.keys() & b.keys()):.2g} nats")
    print(
        f"next token {max(a, key=lambda t: a[t])} after the shift, {max(b, key=lambda t: b[t])} cold"
    )


if __name__ == "__main__":
    main()
