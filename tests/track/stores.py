"""What a test reads of a sweep: its rows, and its runs in the store."""

import csv
import sqlite3
from pathlib import Path

from mlflow.tracking import MlflowClient


def client(runs: Path) -> MlflowClient:
    return MlflowClient(tracking_uri=f"sqlite:///{runs / 'mlflow.db'}")


def table(folder: Path) -> list[dict[str, str]]:
    return list(csv.DictReader((folder / "sweep.csv").open()))


def store(runs: Path) -> sqlite3.Connection:
    return sqlite3.connect(runs / "mlflow.db")
