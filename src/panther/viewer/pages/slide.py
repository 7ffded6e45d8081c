"""Routes of the slide page."""

from flask import Blueprint

from panther.viewer.workbench import Workbench


def slide_routes(bench: Workbench) -> Blueprint:
    """Routes."""
    routes = Blueprint("slide", __name__)
    return routes
