"""The tabs: a function Material -> context (None where there is nothing to show), and a macro of the same name in `tabs.html`."""

from collections.abc import Callable
from typing import Any

from panther.report.material import Material
from panther.report.sections.cohort import cohort, reproduce, splits
from panther.report.sections.predictions import curves, uncertainty
from panther.report.sections.prototypes import attribution, diagnostics, maps, mixtures, prototypes, tissue_classes
from panther.report.sections.results import results, shuffle_test, summary

SECTIONS: dict[str, Callable[[Material], dict[str, Any] | None]] = {
    section.__name__.replace("_", " ").capitalize(): section
    for section in (
        summary, cohort, splits, results, curves, uncertainty, shuffle_test, prototypes, mixtures, maps,
        tissue_classes, attribution, diagnostics, reproduce,
    )
}  # fmt: skip
# tabs of the files of other commands: an unexpected file omits its tab, not the report
FOREIGN = ("Prototypes", "Tissue classes", "Attribution")
