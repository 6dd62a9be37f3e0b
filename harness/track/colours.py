"""The colours of runs that are drawn side by side. MLflow takes one from a run's id, and often the same for two."""

COLOUR = "mlflow.runColor"
EACH = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#6a3d9a", "#8c6d00", "#b2182b", "#4d4d4d",
        "#66a61e", "#00868b")  # fmt: skip


def tag(place: int | str) -> dict[str, str]:
    """That of the run at `place` among its own, from 0; none where that is no number."""
    return {COLOUR: EACH[int(place) % len(EACH)]} if str(place).isdigit() else {}
