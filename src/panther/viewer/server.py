"""The Flask application of the viewer, whose answers hold no path of the server."""

import logging
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
from flask import Flask, Response, jsonify, request
from flask.json.provider import DefaultJSONProvider
from pydantic import ValidationError
from werkzeug.exceptions import HTTPException

from panther.errors import InputError, format_invalid
from panther.viewer.annotations import annotation_routes
from panther.viewer.guard import Guard, guarded
from panther.viewer.pages.cohort import cohort_routes
from panther.viewer.pages.patch import patch_routes
from panther.viewer.pages.prototypes import prototype_routes
from panther.viewer.pages.slide import slide_routes
from panther.viewer.pages.start import start_routes
from panther.viewer.pages.study import study_routes
from panther.viewer.workbench import BusyError, InProgressError, UnknownError, Workbench, as_sentence

PAGES = (start_routes, slide_routes, annotation_routes, patch_routes, prototype_routes, cohort_routes, study_routes)
REMEMBERED = 1000  # messages in the log of the terminal
STEP = r"""[^/\\\s'"`,;:()<>]+[/\\]"""  # a folder in the middle of a text; a blank ends the path
START = r"(?<![\w.~/\\-])"


logger = logging.getLogger(__name__)


def path_redactor(folders: Iterable[Path] = ()) -> Callable[[str], str]:
    """Function that keeps of every absolute path in a text its last part: `/data/job/S1.tif: damaged` is about `S1.tif`.

    ``folders`` are known to be paths whatever letters they hold. Messages that it shortens are logged in full, once.
    """
    known = {str(place) for folder in folders if folder.is_absolute() for place in (folder, folder.parent)} - {"/"}
    places = "|".join(re.escape(place) for place in sorted(known, key=len, reverse=True)) or r"\b\B"
    path = re.compile(rf"{START}(?:(?:{places})[/\\](?:{STEP})*|/(?:{STEP})+)")
    logged: set[str] = set()

    def redact(text: str) -> str:
        short = path.sub("", text) if "/" in text or "\\" in text else text
        if short != text and ": " in text and text not in logged and len(logged) < REMEMBERED:
            logged.add(text)
            logger.warning("%s", text)
        return short

    return redact


def json_ready(value: Any, redact: Callable[[str], str]) -> Any:
    """An answer for JSON: without paths, except in people's notes on prototypes, and null for what is not a finite number."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {json_ready(k, redact): v if k == "note" else json_ready(v, redact) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_ready(item, redact) for item in value]
    if isinstance(value, (np.generic, np.ndarray)):
        return json_ready(value.tolist(), redact)
    return json_ready(asdict(value), redact) if is_dataclass(value) and not isinstance(value, type) else value


def make_app(bench: Workbench, guard: Guard) -> Flask:
    """Application for one workbench."""
    app = guarded("panther.viewer", guard)
    roots = bench.contents.roots
    redact = path_redactor(() if roots is None else (*roots.places, *roots.as_given))

    class Provider(DefaultJSONProvider):
        sort_keys = False

        def dumps(self, obj: Any, **options: Any) -> str:
            return super().dumps(json_ready(obj, redact), **options)

    def message(error: Exception) -> Any:
        """JSON with one sentence; as text for a browser that opens the address itself."""
        text, code = _describe(error)
        sentence = as_sentence(text)
        if request.accept_mimetypes.best_match(("application/json", "text/html")) == "text/html":
            return Response(f"{redact(sentence)}\n", code, mimetype="text/plain")
        return jsonify(error=sentence), code

    @app.get("/api/contents")
    def contents() -> dict[str, Any]:
        contents = bench.contents
        slides = [
            {"name": name, "patient": slide.patient, "image": bool(slide.image), "features": slide.features is not None}
            for name, slide in contents.slides.items()
        ]
        return {
            "title": contents.title,
            "slides": slides,
            "prototypes": [{"name": name, "count": len(bench.prototypes(name))} for name in contents.prototypes],
            "models": list(contents.models),
            "studies": list(contents.studies),
            "notes": contents.notes,
        }

    app.json = Provider(app)
    app.get("/api/link", endpoint="link")(lambda: {"token": guard.token})  # for links to share
    for page in PAGES:
        app.register_blueprint(page(bench))
    app.register_error_handler(InProgressError, lambda running: {"progress": running.progress})
    app.register_error_handler(Exception, message)
    return app


def _describe(error: Exception) -> tuple[str, int]:
    """One line and a status for an error."""
    if isinstance(error, HTTPException):
        return error.description or "The viewer cannot answer this.", error.code or 500
    if isinstance(error, ValidationError):
        return format_invalid(error).lstrip(": "), 422
    if isinstance(error, InputError):
        return str(error), {UnknownError: 404, BusyError: 503}.get(type(error), 422)
    if isinstance(error, RecursionError):
        return "request: found deep nesting, expected a flat object", 400
    if isinstance(error, OSError):
        return f"{error.filename or 'system'}: {error.strerror or error}", 422
    logger.error("The viewer could not answer %s.", request.path, exc_info=error)
    return f"unexpected {type(error).__name__}: {error}; see the terminal of `panther view`", 500
