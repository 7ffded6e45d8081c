"""Routes of the study page."""

from flask import Blueprint

from panther.viewer.workbench import Workbench


def study_routes(bench: Workbench) -> Blueprint:
    """Routes."""
    routes = Blueprint("study", __name__)
    return routes
