"""The noise floor in a sweep's pictures is that of one model: over several there is none, and a word why."""

from harness.report.sweep import panels

ROW = {"verdict": "equivalent", "exit_code": 0, "reason": "", "cache": "view", "kl_max": 1e-9, "noise_kl_max": 2e-9,
       "stored_bytes": 90, "per_token_s": 0.1, "max_abs_diff": 1e-6, "error_ratio": 0.4, "dtype": "float32",
       "model": "tiny", "kept_tokens": 9}  # fmt: skip
OWN = "No noise floor is drawn: each model has its own."


def test_a_sweep_over_models_draws_no_one_noise_floor() -> None:
    rows = [
        ROW | {"point": "0"},
        ROW | {"point": "1", "cache": "cloned", "kl_max": 2e-9, "stored_bytes": 99},
    ]
    one = panels.sections(rows, ["cache"])[0]["text"]
    assert "Dashed, by the largest KL" in one and OWN not in one
    two = [rows[0], rows[1] | {"model": "gemma"}]
    several = panels.sections(two, ["cache", "model"])[0]["text"]
    assert OWN in several and "Dashed" not in several
