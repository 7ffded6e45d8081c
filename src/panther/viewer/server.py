"""The web application: its routes are those of the pages, its errors are sentences, its addresses relative."""

import logging
from functools import partial
from typing import Any

from flask import Blueprint, Flask, Response, jsonify, request
from werkzeug.exceptions import HTTPException

from panther.errors import InputError
from panther.viewer.assets import PLOTLY, asset
from panther.viewer.discretion import Discretion
from panther.viewer.pages import PAGES
from panther.viewer.security import Guard
from panther.viewer.workbench import UnknownError, Workbench

LARGEST = 4 << 20  # bytes of a request: a lasso around 100,000 slides

logger = logging.getLogger(__name__)


def make_app(bench: Workbench, guard: Guard) -> Flask:
    """Application for one workbench."""
    app = Flask("panther.viewer", static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = LARGEST
    app.config["PROVIDE_AUTOMATIC_OPTIONS"] = False  # nobody but its own page may ask what may be asked
    roots = bench.contents.roots
    discretion = Discretion(() if roots is None else (*roots.places, *roots.as_given))
    discretion.applied_to(app)
    guard.protect(app)
    app.register_blueprint(_frame(guard))
    for page in PAGES:
        app.register_blueprint(page(bench))
    app.register_error_handler(Exception, partial(_sentence, discretion))
    return app


def _frame(guard: Guard) -> Blueprint:
    """The page that holds all others, its scripts and styles."""
    routes = Blueprint("frame", __name__)

    @routes.get("/")
    def index() -> Response:
        return asset("index.html")

    @routes.get("/static/<name>")
    def static(name: str) -> Response:
        return asset(name)

    @routes.get("/plotly.js")
    def plotly() -> Response:
        return asset(PLOTLY)

    @routes.get("/api/link")
    def link() -> Any:
        return {"token": guard.token}  # for a link that a colleague can open

    return routes


def _sentence(discretion: Discretion, error: Exception) -> Any:
    """What the page shows instead: a sentence. A person who opens an address by hand gets it as text."""
    sentence, code = _said(error)
    if request.accept_mimetypes.best_match(("application/json", "text/html")) == "text/html":
        return Response(f"{discretion.sentence(sentence)}\n", code, mimetype="text/plain")
    return jsonify(error=sentence), code


def _said(error: Exception) -> tuple[str, int]:
    if isinstance(error, HTTPException):
        return error.description or "The viewer cannot answer this.", error.code or 500
    if isinstance(error, UnknownError):
        return str(error), 404
    if isinstance(error, InputError):
        return str(error), 422
    if isinstance(error, RecursionError):
        return "The request is nested too deeply; expected a flat object.", 400
    if isinstance(error, OSError):
        return f"{error.filename or 'The system'}: {error.strerror or error}.", 422
    logger.error("The viewer could not answer %s.", request.path, exc_info=error)
    return f"Unexpected {type(error).__name__}: {error}. The window of `panther view` says where.", 500
