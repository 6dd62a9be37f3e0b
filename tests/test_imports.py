"""Imports run one way, by statement or by string, and in no circle; heavy libraries stay put:
`__main__ > cli > api > task > pipeline > rooms > attention > config, snapshot > errors`."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "harness"
LEVEL = {
    "__init__": 10,
    "__main__": 9,
    "cli": 8,
    "api": 7,
    "task": 6,
    "pipeline": 5,
    "attention": 3,
    "results": 2.5,
    "present": 3,
    "config": 2,
    "snapshot": 2,
    "extras": 1,
    "variants": 1,
    "blame": 0.75,
    "contract": 0.5,
    "confined": 0,
    "folder": 3,
    "foreign": 0.5,
    "keys": 0.5,
    "shipped": 0,
    "errors": 0,
    "given": 0,
    "interrupt": 0,
    "machine": 0,
    "process": 0,
    "progress": 0,
    "api_errors": 2,
}
ROOM = 4
LOOKUP = ("variants.py", "prune/registry.py")  # import, within a room, what that room asks for
ALLOWED = {
    "hydra": {"__main__", "cli", "config"},
    "omegaconf": {"__main__", "cli", "config"},
    "mlflow": {"track"},
    "pandera": {"snapshot", "report", "results", "present"},
    "pandas": {"snapshot", "report", "results", "present"},
    "transformers": {"model", "tokenizer", "capture", "cache", "quantize", "engine"},
    "matplotlib": {"report", "present"},
    "gradio": {"task"},
    "numba": {"attention/kernels/cpu"},
    "llvmlite": {"attention/kernels/cpu"},
}
FILES = [f for f in sorted(PACKAGE.rglob("*.py")) if "assets" not in f.parts]


def dotted(path: Path) -> str:
    """`harness/save/store.py` is `harness.save.store`, `harness/save/__init__.py` `harness.save`."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {dotted(f): f for f in FILES}


def imports(path: Path, source: str) -> Iterator[str]:
    """Every module that `source` at `path` imports, wherever in it: by statement and by string. A
    string that is put together names every module below the part that is known."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if name in MODULES else node.module for name in inner)
        elif isinstance(node, ast.Call) and called(node.func) in ("import_module", "__import__"):
            if is_lookup(path):
                continue
            known = constant(node.args[0], path)
            if known in MODULES or not known.endswith("."):
                yield known or "?"
            else:
                package = known.removesuffix(".")
                yield from (m for m in MODULES if m.rpartition(".")[0] == package)


def called(function: ast.expr) -> str:
    return getattr(function, "id", getattr(function, "attr", ""))


def constant(argument: ast.expr, path: Path) -> str:
    """The leading part of a string that stands in the source; `__name__` is known too."""
    if isinstance(argument, ast.Constant):
        return str(argument.value)
    known = ""
    for part in getattr(argument, "values", []):
        if isinstance(part, ast.Constant):
            known += str(part.value)
        elif isinstance(part, ast.FormattedValue) and called(part.value) == "__name__":
            known += dotted(path)
        else:
            break
    return known


def is_lookup(path: Path) -> bool:
    return str(path.relative_to(PACKAGE)) in LOOKUP


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def violations(path: Path, source: str) -> list[str]:
    """What `source` at `path` imports and may not."""
    here, bad = room(path), []
    mine = LEVEL.get(here, ROOM)
    for name in imports(path, source):
        top, _, rest = name.partition(".")
        if name == "?":
            bad.append(f"{here} imports a module whose name is not in the source")
        if top in ALLOWED and not any(is_in(path, place) for place in ALLOWED[top]):
            bad.append(f"{here} imports {top}")
        if top == "harness" and (rest or here != "__init__"):
            other = rest.partition(".")[0] or "__init__"
            if other != here and LEVEL.get(other, ROOM) >= mine:
                bad.append(f"{here} imports {other}")
        if here == other_task(name, path):
            bad.append(f"a task imports another: {name}")
    return bad


def is_in(path: Path, place: str) -> bool:
    """Whether `path` is the file or below the folder `place` of the package."""
    return path.relative_to(PACKAGE).with_suffix("").is_relative_to(place)


def other_task(name: str, path: Path) -> str:
    """`task` when `name` is a task and `path` belongs to another one."""
    parts, mine = name.split("."), path.relative_to(PACKAGE).parts
    own = mine[1].removesuffix(".py") if len(mine) > 1 else ""
    return (
        "task" if parts[:2] == ["harness", "task"] and own not in ("__init__", *parts[2:3]) else ""
    )


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Modules that import each other, by whatever detour: the strong components of `graph`."""
    found, index, low, stack = [], {}, {}, []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in graph.get(node, ()):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            component = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if component[1:]:
                found.append(sorted(component))

    for node in graph:
        if node not in index:
            visit(node)
    return found


def graph(sources: dict[Path, str]) -> dict[str, set[str]]:
    """Module -> modules of the package that it imports."""
    return {
        dotted(path): set(imports(path, source)) & set(MODULES) - {dotted(path)}
        for path, source in sources.items()
    }


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_run_one_way(path: Path) -> None:
    assert violations(path, path.read_text()) == []


def test_no_circle() -> None:
    assert circles(graph({f: f.read_text() for f in FILES})) == []


@pytest.mark.parametrize(
    "place, source",
    [
        ("save/store.py", "from harness.cache import registry"),
        ("snapshot/state.py", "import harness.model.loaded"),
        ("compare/metrics.py", "import mlflow"),
        ("model/loaded.py", "def f():\n    from omegaconf import OmegaConf"),
        ("capture/__init__.py", "def f():\n    import_module('harness.api')"),
        ("capture/__init__.py", "import importlib\nimportlib.import_module(f'harness.task.{x}')"),
        ("capture/__init__.py", "__import__('harness')"),
        ("cache/registry.py", "import_module(name)"),
        ("task/save.py", "from harness.task.resume import run"),
        ("task/chat/__init__.py", "from harness.task import bench"),
        ("pipeline/line.py", "from harness.task.save import run"),
        ("attention/parts.py", "from harness.cache import base"),
        ("attention/parts.py", "import transformers"),
        ("cache/base.py", "import numba"),
        ("attention/split.py", "import numba"),
        ("attention/kernels/products.py", "from llvmlite import ir"),
    ],
)
def test_a_wrong_import_is_seen(place: str, source: str) -> None:
    assert violations(PACKAGE / place, source)


@pytest.mark.parametrize(
    "place, source",
    [
        ("snapshot/state.py", "from harness.snapshot import schema"),
        ("snapshot/digest.py", "def f():\n    import_module(f'{__package__}x')\n    "
                               "import_module(f'harness.snapshot.{name}')"),
        ("pipeline/session.py", "if TYPE_CHECKING:\n    from harness.pipeline.line import Line"),
    ],
)  # fmt: skip
def test_a_circle_is_seen(place: str, source: str) -> None:
    sources = {f: f.read_text() for f in FILES}
    sources[PACKAGE / place] += "\n" + source
    assert circles(graph(sources))


def namesakes(files: list[Path]) -> set[str]:
    """Files whose module has one name: pytest collects nothing once it meets the second."""
    names = [p.name for p in files if not (p.parent / "__init__.py").exists()]
    return {name for name in names if names.count(name) > 1} - {"conftest.py"}


def test_every_test_file_can_be_collected() -> None:
    files = list((PACKAGE.parent / "tests").rglob("*.py"))
    assert namesakes(files) == set()
    assert namesakes([*files, Path("elsewhere/test_imports.py")]) == {"test_imports.py"}


def test_nothing_heavy_at_import() -> None:
    heavy = ("torch", "transformers", "mlflow", "pandas", "hydra", "matplotlib", "gradio", "numba")
    code = (
        "import sys; import harness, harness.__main__, harness.config, harness.cli.help;"
        f"print([m for m in {heavy} if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=PACKAGE.parent
    )
    assert done.stdout.strip() == "[]", done.stderr


TOP = {"pyproject.toml", "README.md", "Makefile", "CHANGELOG.md", "LICENSE", "constraints.txt", "conf", "harness", "tests", "runs"}  # fmt: skip
KEPT = ("reference", "gpu", ".gitkeep")  # of runs


def strays(files: list[str]) -> list[str]:
    """What is kept under version control and has no place there: what a run left behind, say."""
    parts = [file.split("/") for file in files]
    misplaced = (p[0] not in TOP and p[0][0] != "." for p in parts)
    left = (p[0] == "runs" and p[1] not in KEPT for p in parts)
    return [file for file, *odd in zip(files, misplaced, left, strict=True) if any(odd)]


def test_nothing_that_a_run_left_behind_is_kept() -> None:
    listed = ["git", "ls-files"]
    done = subprocess.run(listed, capture_output=True, text=True, cwd=PACKAGE.parent)
    if done.returncode:
        pytest.skip("not a checkout")
    assert strays(done.stdout.splitlines()) == []
    left = ["mlruns/1/artifacts/report.html", "runs/x/result.json", "notes.txt"]
    assert strays([*left, "README.md", ".ci/run", "runs/gpu/gpu.md"]) == left
