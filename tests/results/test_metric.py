"""A metric of somebody's own is one function: measured wherever those of the house are, with its noise floor."""

import sys
from dataclasses import asdict

import pytest
import torch

from harness.compare.metrics import compare, noise_floor
from harness.config import recorded
from harness.errors import ConfigProblem, UntrustedPlugin
from harness.results import metric
from harness.results.run import fact_of, values


@pytest.fixture
def mine(tmp_path, monkeypatch):
    (tmp_path / "metrics_of_mine.py").write_text(
        "from harness.results.metric import metric\n\n"
        '@metric(label="Gap", unit="logits", better="lower")\n'
        "def gap(restored, reference, next_ids):\n"
        '    """Largest difference."""\n'
        "    return float((restored - reference).abs().max())\n\n"
        "def plain(a, b, c):\n    return 0.0\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(metric, "_KNOWN", {})
    yield "metrics_of_mine"
    sys.modules.pop("metrics_of_mine", None)


def test_it_is_measured_only_while_it_is_asked_for(mine) -> None:
    one, two = torch.zeros(1, 2, 5), torch.full((1, 2, 5), 0.5)
    metric.measure([f"{mine}.gap"])
    assert compare(one, two, torch.zeros(1, 2, dtype=torch.int64))["gap"] == 0.5
    noise = noise_floor([two, two + 1], one, torch.zeros(1, 2, dtype=torch.int64))
    assert noise["gap"] == 1.5  # the worse of two plain paths
    metric.measure([])
    assert "gap" not in compare(one, two, torch.zeros(1, 2, dtype=torch.int64))
    assert fact_of("metrics.gap").heading == "Gap (logits)"
    assert values({"metrics": {"gap": 0.5, "kl_max": 1.0}}) == {
        "metrics.kl_max": 1.0,
        "metrics.gap": 0.5,
    }


@pytest.mark.parametrize("name", ["gap", "nowhere.gap", "{}.absent", "{}.plain"])
def test_a_name_that_leads_to_none_is_refused(mine, name) -> None:
    with pytest.raises(ConfigProblem, match=r"compare\.metrics"):
        metric.named([name.format(mine)])


def test_a_record_does_not_import_a_metric_that_nobody_trusts(compose) -> None:
    tree = asdict(compose("compare.metrics=[os.getcwd]"))
    with pytest.raises(UntrustedPlugin, match=r"plugins\.trust=\[os\]"):
        recorded(tree, "record.json")
    assert recorded({**tree, "compare": {**tree["compare"], "metrics": []}}, "record.json")
