"""An engine from outside: one file and one YAML, judged like any other."""

import json
import sys

import pytest

MINE = '''
from harness.engine import Answer, Engine


class Mine(Engine):
    """Counts: the next token is the sum of what was read, modulo 50. Reads its cache as `drift` says."""

    cache = []

    def evaluate(self, prompt, steps, composition=None):
        return self._from(sum(prompt), prompt, steps, 0)

    def resume(self, prompt, steps):
        reused = len(prompt) - 1 if self.cache[: len(prompt) - 1] == prompt[:-1] else 0
        type(self).cache = list(prompt)
        return self._from(sum(prompt) + (self.settings.drift if reused else 0), prompt, steps, reused)

    def _from(self, total, prompt, steps, reused):
        tokens = []
        for _ in range(steps):
            tokens.append(total % 50)
            total += tokens[-1]
        tops = tuple({t: -0.1, t + 50: -3.0 - (total % 7) / 10} for t in tokens)
        return Answer(tuple(tokens), tops, reused)
'''


@pytest.mark.parametrize("drift, code, verdict", [(0, 0, "exact"), (3, 1, "diverged")])
def test_one_file_and_one_yaml(harness, place, monkeypatch, drift, code, verdict) -> None:
    (place / "options" / "engine").mkdir(parents=True)
    (place / "options" / "engine" / "mine.yaml").write_text(
        f"# Counts.\nname: mine\n_target_: my_engine.Mine\ndrift: {drift}\n"
    )
    (place / "my_engine.py").write_text(MINE)
    monkeypatch.syspath_prepend(str(place))
    sys.modules.pop("my_engine", None)
    ids = ",".join(str(3 * i % 41) for i in range(40))
    done = harness("--config-dir", str(place / "options"), "task=referee", "engine=mine",
                   f"prompt.ids=[{ids}]", "steps=6", "task.repeats=1")  # fmt: skip
    assert done.code == code, done.out
    rows = {r["case"]: r for r in json.loads((done.folders[0] / "referee.json").read_text())}
    assert rows["hit"]["verdict"] == verdict and rows["hit"]["reused_tokens"] == 39
