"""One module per page: its data as JSON, pictures as bytes. Each gives a function of the workbench that returns its routes."""

from collections.abc import Callable

from flask import Blueprint

from panther.viewer.pages.cohort import cohort_routes
from panther.viewer.pages.names import name_routes
from panther.viewer.pages.patch import patch_routes
from panther.viewer.pages.prototypes import prototype_routes
from panther.viewer.pages.slide import export_routes, slide_routes
from panther.viewer.pages.study import study_routes
from panther.viewer.workbench import Workbench

PAGES: tuple[Callable[[Workbench], Blueprint], ...] = (
    slide_routes,
    patch_routes,
    name_routes,
    prototype_routes,
    cohort_routes,
    study_routes,
    export_routes,
)
