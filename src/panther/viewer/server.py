"""The web application: its routes are those of the pages, its errors are sentences, its addresses relative."""

import logging
from functools import cache
from importlib.resources import files
from typing import Any

from flask import Blueprint, Flask, Response, abort, jsonify, request
from werkzeug.exceptions import HTTPException

from panther.errors import InputError
from panther.viewer.pages import PAGES
from panther.viewer.security import Guard
from panther.viewer.workbench import UnknownError, Workbench

PLOTLY = "plotly.min.js"
TYPES = {"html": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
LARGEST = 4 << 20  # bytes of a request: a lasso around 100,000 slides

logger = logging.getLogger(__name__)


def make_app(bench: Workbench, guard: Guard) -> Flask:
    """Application for one workbench."""
    app = Flask("panther.viewer", static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = LARGEST
    app.json.sort_keys = False  # type: ignore[attr-defined]
    guard.protect(app)
    app.register_blueprint(_frame(guard))
    for page in PAGES:
        app.register_blueprint(page(bench))
    app.register_error_handler(Exception, _sentence)
    return app


def _frame(guard: Guard) -> Blueprint:
    """The page that holds all others, its scripts and styles."""
    routes = Blueprint("frame", __name__)

    @routes.get("/")
    def index() -> Response:
        return _asset("index.html")

    @routes.get("/static/<name>")
    def static(name: str) -> Response:
        return _asset(name)

    @routes.get("/plotly.js")
    def plotly() -> Response:
        return _asset(PLOTLY)

    @routes.get("/api/link")
    def link() -> Any:
        return {"token": guard.token}  # for a link that a colleague can open

    return routes


@cache
def _assets() -> dict[str, bytes]:
    """Files of the page, by name: nothing else is ever opened for it."""
    own = {file.name: file.read_bytes() for file in (files("panther.viewer") / "static").iterdir() if file.is_file()}
    # of the installed package: nothing is fetched, nothing is copied into this one
    return own | {PLOTLY: (files("plotly") / "package_data" / PLOTLY).read_bytes()}


def _asset(name: str) -> Response:
    content = _assets().get(name)
    if content is None:
        abort(404, f"The page has no file {name!r}.")
    response = Response(content, mimetype=TYPES[name.rsplit(".", 1)[-1]])
    response.add_etag()
    return response.make_conditional(request)  # type: ignore[return-value]


def _sentence(error: Exception) -> Any:
    """What the page shows instead."""
    if isinstance(error, HTTPException):
        return jsonify(error=error.description), error.code
    if isinstance(error, UnknownError):
        return jsonify(error=str(error)), 404
    if isinstance(error, (InputError, OSError)):
        return jsonify(error=str(error)), 422
    logger.exception("The viewer could not answer.")
    return jsonify(error=f"Unexpected {type(error).__name__}: {error}. The server's window says where."), 500
