"""Routes of the exports page."""

from flask import Blueprint

from panther.viewer.workbench import Workbench


def export_routes(bench: Workbench) -> Blueprint:
    """Routes."""
    routes = Blueprint("exports", __name__)
    return routes
