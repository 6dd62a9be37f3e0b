"""The store of the shared sweep, for what audits of it are told."""

import shutil

import pytest


@pytest.fixture
def above(swept, runs, tmp_path):
    """A copy of the store as the shared sweep left it, as `audited.store_of` has it."""
    from audited import store_of

    shutil.copy(runs / "as_swept" / "mlflow.db", tmp_path)
    return store_of(tmp_path)
