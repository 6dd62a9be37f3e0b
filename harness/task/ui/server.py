"""Serve the page on this machine only: nothing is reported, nothing is fetched from outside."""

import logging
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from harness import machine
from harness.errors import InputProblem

HOST = "127.0.0.1"
TAKEN = "task.port={port} is taken. Give another, or 0 for any free one."
QUIET = {
    "GRADIO_ANALYTICS_ENABLED": "False",  # its version check too
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "DO_NOT_TRACK": "1",
}
# what the page may load, whatever a component would like to
POLICY = (
    "default-src 'self' data: blob:; script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:; "
    "style-src 'self' 'unsafe-inline'; frame-ancestors 'none'; form-action 'self'; base-uri 'self'"
)
RUN = re.compile(r"\w[\w-]*")  # a folder's name
EVALUATION = re.compile(r"evaluation-\d+-[0-9a-f]{8}")  # a folder's name
FONTS = ("system-ui", "-apple-system", "Segoe UI", "sans-serif")
MONO = ("ui-monospace", "SFMono-Regular", "Menlo", "monospace")


def prepare() -> None:
    """Before anything imports gradio, which reads its settings then."""
    os.environ.update(QUIET)
    os.environ.setdefault("GRADIO_TEMP_DIR", _scratch().name)


def check_port(port: int) -> None:
    """Raise InputProblem for a port that something else listens on; 0 is any free one. Before anything heavy."""
    if not machine.free(port):
        raise InputProblem(TAKEN.format(port=port))


@contextmanager
def serving(build: Any, port: int, reports: Path | None = None) -> Iterator[str]:
    """The page that `build()` makes, while the block runs; yields its address.

    reports: the folder whose runs' evaluations have their reports answered for.

    port: 0 takes the first free one from 7860 on. Call `prepare` first. Raises InputProblem when a given port is taken.
    """
    import gradio as gr
    from starlette.middleware import Middleware
    from starlette.middleware.trustedhost import TrustedHostMiddleware

    page = build()
    theme = gr.themes.Base(font=FONTS, font_mono=MONO, primary_hue="teal", neutral_hue="slate")
    guards = [Middleware(TrustedHostMiddleware, allowed_hosts=[HOST, "localhost"])]
    try:
        app, address, _ = page.launch(
            server_name=HOST, server_port=port or None, share=False, inbrowser=False, quiet=True,
            prevent_thread_lock=True, ssr_mode=False, mcp_server=False, pwa=False, footer_links=[],
            run_history=False, enable_monitoring=False, max_file_size=0, theme=theme,
            css_paths=Path(__file__).with_name("page.css"), app_kwargs={"middleware": guards},
        )  # fmt: skip
    except OSError:
        raise InputProblem(TAKEN.format(port=port)) from None
    if reports is not None:
        app.router.routes.insert(0, _reports(reports))
    # outermost: gradio puts its own, which lets every port of this machine read, around what it is given
    app.middleware_stack = Guarded(app.middleware_stack or app.build_middleware_stack())
    try:
        yield address
    finally:
        if page.server is not None:  # open pages would keep it waiting for their streams
            page.server.force_exit = True
            logging.getLogger("uvicorn.error").disabled = True  # which are cut, on purpose
        page.close(verbose=False)


def _reports(folder: Path) -> Any:
    """`reports/RUN/NAME`: the report of an evaluation right inside a run of `folder`, and nothing else there."""
    from starlette.requests import Request
    from starlette.responses import FileResponse, PlainTextResponse, Response
    from starlette.routing import Route

    def answer(request: Request) -> Response:
        run, name = request.path_params["run"], request.path_params["name"]
        page = folder / run / name / "report.html"
        known = RUN.fullmatch(run) and EVALUATION.fullmatch(name)
        if not known or not page.is_file():
            return PlainTextResponse("there is no such report\n", 404)
        return FileResponse(page, media_type="text/html")

    return Route("/reports/{run}/{name}", answer)


@cache
def _scratch() -> tempfile.TemporaryDirectory[str]:
    """Gradio's own files, gone with the process: its default, one /tmp/gradio for all users, cannot
    be written by the second one."""
    return tempfile.TemporaryDirectory(prefix="harness-ui-", ignore_cleanup_errors=True)


class Guarded:
    """ASGI middleware: every answer tells the browser to load from here only, and no page of another
    origin is answered, be it of this machine (gradio would answer every port of it)."""

    def __init__(self, app: Any):
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def guarded(message: Any) -> None:
            if message["type"] == "http.response.start":
                extra = [
                    (b"content-security-policy", POLICY.encode()),
                    (b"referrer-policy", b"no-referrer"),
                    (b"x-content-type-options", b"nosniff"),
                ]
                message = {**message, "headers": [*message["headers"], *extra]}
            await send(message)

        if foreign(scope):
            if scope["type"] == "http":
                await send({"type": "http.response.start", "status": 403, "headers": []})
                await send({"type": "http.response.body", "body": b"another origin\n"})
            return
        await self.app(scope, receive, guarded)


def foreign(scope: Any) -> bool:
    """Whether a request comes from a page of another origin (scheme, host and port) than the one it
    asks. Without `Origin` no page asks: a person opens it, or a program that needs no browser."""
    sent = {name: value.decode("latin-1") for name, value in scope.get("headers", ())}
    origin = sent.get(b"origin")
    return origin is not None and origin != f"http://{sent.get(b'host', '')}"
