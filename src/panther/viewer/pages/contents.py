"""Contents of the opened folder: the first request of a page."""

from typing import Any

from flask import Blueprint

from panther.viewer.workbench import Workbench


def contents_routes(bench: Workbench) -> Blueprint:
    """Route of the table of contents."""
    routes = Blueprint("contents", __name__)

    @routes.get("/api/contents")
    def contents() -> dict[str, Any]:
        contents = bench.contents
        return {
            "title": contents.title,
            "slides": [
                {
                    "name": one.name,
                    "patient": one.patient,
                    "image": one.image is not None,
                    "features": one.features is not None,
                }
                for one in contents.slides.values()
            ],
            "prototypes": [{"name": name, "count": len(bench.prototypes(name))} for name in contents.prototypes],
            "models": list(contents.models),
            "studies": list(contents.studies),
            "embeddings": contents.embeddings is not None,
            "columns": [] if contents.table is None else [str(name) for name in contents.table.rows.columns],
            "notes": list(contents.notes),
        }

    return routes
