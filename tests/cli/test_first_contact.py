"""What a newcomer types first: names as papers and hubs have them, a wrong file, no text."""

import os
from pathlib import Path

from harness.config.synonyms import SYNONYMS
from harness.variants import options


def test_every_name_from_elsewhere_leads_to_an_option_that_there_is() -> None:
    for group, names in SYNONYMS.items():
        assert {meant.split()[0] for meant in names.values()} <= set(options(group))
        assert not set(names) & set(options(group))


def test_a_folder_that_is_not_ours_is_told_before_anything_is_loaded(
    harness, place, monkeypatch
) -> None:
    real = os.access
    monkeypatch.setattr(os, "access", lambda p, mode: (mode == os.F_OK or Path(p) != place / "closed") and real(p, mode))  # fmt: skip
    monkeypatch.setattr("harness.pipeline.session.Session.open", None)
    (place / "closed").mkdir()
    done = harness("task=save", "text=let k be 5 .", "out=closed/deeper/still")
    assert done.code == 2 and "cannot be written to: " in done.out, done.out
