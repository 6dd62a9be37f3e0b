"""A class written into this tree, as the README's four steps say, is its author's until it is shipped."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from harness import config, prune, shipped, variants

ROOT = Path(__file__).resolve().parents[2]
CLASS = "from harness.prune import Policy\n\n\nclass Mine(Policy):\n"
SCORE = "    def score(self, layer, rank, keep):\n        return rank.double() * "


@pytest.fixture
def tree(place, monkeypatch, harness):
    """Runs `harness/prune/mine.py` with `conf/prune/mine.yaml`, both beside those of the package."""
    shutil.copytree(variants.conf_dir(), place / "conf")
    (place / "prune").mkdir()
    for module in (variants, config):
        monkeypatch.setattr(module, "conf_dir", lambda: place / "conf")
    monkeypatch.setattr(prune, "__path__", [*prune.__path__, str(place / "prune")])

    def run(code: str):
        (place / "prune" / "mine.py").write_text(code)
        (place / "conf" / "prune" / "mine.yaml").write_text("# Mine.\nname: mine\nratio: 0.5\n")
        return harness("prune=mine", "compare=lossy", "steps=2")

    yield run
    sys.modules.pop("harness.prune.mine", None)


@pytest.mark.parametrize(
    "code, says",
    [
        (f"{CLASS}    pass\n", "prune=mine: harness.prune.mine has no `score`"),
        (f"{CLASS}{SCORE}1\n".replace(", keep", ""), "mine.py:5 does not take what harness.prune."),
        (f"{CLASS}{SCORE}self.settings.weight\n", "Add `weight:` to mine.yaml"),
        (f"{CLASS}{SCORE}rank.shpe\n", "It came from prune=mine, in"),
        (f"{CLASS}{SCORE}(\n", "importing harness.prune.mine failed: SyntaxError"),
    ],
    ids=["no score", "arguments", "key", "exception", "syntax"],
)
def test_a_mistake_in_it_is_told_by_name_file_and_line(tree, code, says) -> None:
    wrong = tree(code)
    assert wrong.code == 2 and says in wrong.out, wrong.out
    assert "fault of the harness" not in wrong.out and "Traceback" not in wrong.out
    assert "mine.py" in wrong.out and any(
        f"{m}{n}" in wrong.out for m in (":", "line ") for n in (4, 5, 6)
    )


def test_one_without_a_mistake_prunes(tree) -> None:
    done = tree(f"{CLASS}{SCORE}1\n")
    assert done.result["size"]["kept_tokens"] < done.result["size"]["tokens"], done.out


def test_what_goes_wrong_in_one_of_ours_is_ours(harness, monkeypatch) -> None:
    from harness.prune.tova import TOVA

    monkeypatch.setattr(TOVA, "score", lambda self, *_: self.no_such)
    wrong = harness("prune=tova", "prune.ratio=0.5", "compare=lossy", "steps=2")
    assert wrong.code == 1 and "This is a fault of the harness" in wrong.out


def test_the_options_that_are_ours_are_those_in_the_repository() -> None:
    listed = {f"conf/{g}/{o}.yaml" for g, names in shipped.OPTIONS.items() for o in names.split()}
    assert shipped.OPTIONS.keys() == variants.BASES.keys()
    assert all((ROOT / file).is_file() for file in listed)
    folders = [f"conf/{group}" for group in shipped.OPTIONS]
    told = subprocess.run(["git", "ls-files", *folders], cwd=ROOT, capture_output=True, text=True)
    if told.returncode == 0:
        assert set(told.stdout.split()) == listed
