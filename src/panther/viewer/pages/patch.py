"""Routes of the patch page."""

from flask import Blueprint

from panther.viewer.workbench import Workbench


def patch_routes(bench: Workbench) -> Blueprint:
    """Routes."""
    routes = Blueprint("patch", __name__)
    return routes
