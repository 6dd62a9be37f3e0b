"""Imports run one way: `__main__ > cli > task > pipeline > rooms > snapshot > errors`; heavy libraries stay put."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "harness"
LEVEL = {
    "__main__": 9,
    "cli": 8,
    "api": 7,
    "task": 6,
    "pipeline": 5,
    "attention": 3,
    "config": 2,
    "snapshot": 2,
    "extras": 1,
    "errors": 0,
    "interrupt": 0,
    "machine": 0,
}
ROOM = 4
ALLOWED = {
    "hydra": {"__main__", "cli", "config"},
    "omegaconf": {"__main__", "cli", "config"},
    "mlflow": {"track"},
    "pandera": {"snapshot", "report"},
    "pandas": {"snapshot", "report"},
    "transformers": {"model", "tokenizer", "capture", "cache", "engine", "quantize"},
    "matplotlib": {"report"},
    "gradio": {"task"},
}
FILES = [f for f in sorted(PACKAGE.rglob("*.py")) if "assets" not in f.parts]


def imports(tree: ast.AST) -> list[str]:
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [a.name for a in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.append(node.module)
            found += [f"{node.module}.{a.name}" for a in node.names if node.module == "harness"]
    return found


def room(path: Path) -> str:
    parts = path.relative_to(PACKAGE).parts
    return parts[0].removesuffix(".py")


def violations(path: Path, source: str) -> list[str]:
    here, bad = room(path), []
    for name in imports(ast.parse(source)):
        top, _, rest = name.partition(".")
        if top in ALLOWED and here not in ALLOWED[top]:
            bad.append(f"{here} imports {top}")
        if top == "harness" and rest:
            other = rest.split(".")[0]
            mine, theirs = LEVEL.get(here, ROOM), LEVEL.get(other, ROOM)
            if other != here and theirs >= mine and here != "__init__":
                bad.append(f"{here} imports {other}")
    return bad


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_run_one_way(path: Path) -> None:
    assert violations(path, path.read_text()) == []


@pytest.mark.parametrize(
    "place, source",
    [
        ("save/store.py", "from harness.cache import registry"),
        ("snapshot/state.py", "import harness.model.loaded"),
        ("compare/metrics.py", "import mlflow"),
        ("model/loaded.py", "def f():\n    from omegaconf import OmegaConf"),
    ],
)
def test_a_wrong_import_is_seen(place: str, source: str) -> None:
    assert violations(PACKAGE / place, source)


def test_no_file_is_too_long() -> None:
    long = {
        str(f): n for f in PACKAGE.rglob("*.py") if (n := len(f.read_text().splitlines())) > 350
    }
    assert not long


def test_nothing_heavy_at_import() -> None:
    code = (
        "import sys; import harness, harness.__main__, harness.config, harness.cli.help;"
        "print([m for m in ('torch','transformers','mlflow','pandas','hydra','matplotlib','gradio') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=PACKAGE.parent
    )
    assert done.stdout.strip() == "[]", done.stderr
