"""Routes of the prototypes page."""

from flask import Blueprint

from panther.viewer.workbench import Workbench


def prototype_routes(bench: Workbench) -> Blueprint:
    """Routes."""
    routes = Blueprint("prototypes", __name__)
    return routes
