"""What there is: the first thing that a page asks for."""

from typing import Any

from flask import Blueprint

from panther.viewer.workbench import Workbench


def contents_routes(bench: Workbench) -> Blueprint:
    """Route of the table of contents."""
    routes = Blueprint("contents", __name__)

    @routes.get("/api/contents")
    def contents() -> dict[str, Any]:
        found = bench.contents
        return {
            "title": found.title,
            "slides": [
                {
                    "name": one.name,
                    "patient": one.patient,
                    "image": one.image is not None,
                    "features": one.features is not None,
                }
                for one in found.slides.values()
            ],
            "prototypes": [{"name": name, "count": len(bench.prototypes(name))} for name in found.prototypes],
            "models": list(found.models),
            "studies": list(found.studies),
            "embeddings": found.embeddings is not None,
            "columns": [] if found.table is None else [str(name) for name in found.table.rows.columns],
            "notes": list(found.notes),
        }

    return routes
