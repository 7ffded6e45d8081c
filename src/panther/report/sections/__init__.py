"""The tabs, one function each: Material -> context of the macro of its name in `tabs.html`, or None where there is nothing to show."""

from collections.abc import Callable
from typing import Any

from panther.report.material import Material
from panther.report.sections.cohort import cohort, reproduce, splits
from panther.report.sections.predictions import curves, sureness
from panther.report.sections.prototypes import agreement, attribution, diagnostics, maps, mixtures, prototypes
from panther.report.sections.results import results, retrieval, shuffle, summary

SECTIONS: dict[str, Callable[[Material], dict[str, Any] | None]] = {
    "Summary": summary,
    "Cohort": cohort,
    "Splits": splits,
    "Results": results,
    "Curves": curves,
    "How sure": sureness,
    "Retrieval": retrieval,
    "Shuffle test": shuffle,
    "Prototypes": prototypes,
    "Mixtures": mixtures,
    "Maps": maps,
    "Tissue classes": agreement,
    "Attribution": attribution,
    "Diagnostics": diagnostics,
    "Reproduce": reproduce,
}
# tabs that show what other commands wrote: a file that is not as expected costs the tab, not the report
FOREIGN = ("Prototypes", "Tissue classes", "Attribution")
