"""Routes of the cohort page."""

from flask import Blueprint

from panther.viewer.workbench import Workbench


def cohort_routes(bench: Workbench) -> Blueprint:
    """Routes."""
    routes = Blueprint("cohort", __name__)
    return routes
