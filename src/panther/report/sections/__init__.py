"""The tabs, one function each: Material -> HTML, or None where there is nothing to show."""

from collections.abc import Callable

from panther.report.html import Html
from panther.report.material import Material
from panther.report.sections.attribution import attribution
from panther.report.sections.cohort import cohort, splits
from panther.report.sections.curves import curves
from panther.report.sections.diagnostics import diagnostics, reproduce
from panther.report.sections.mixtures import mixtures
from panther.report.sections.pictures import maps
from panther.report.sections.prototypes import agreement, prototypes
from panther.report.sections.results import results
from panther.report.sections.retrieval import retrieval
from panther.report.sections.shuffle import shuffle
from panther.report.sections.summary import summary
from panther.report.sections.sureness import sureness

Section = Callable[[Material], Html | None]

SECTIONS: dict[str, Section] = {
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

__all__ = ["FOREIGN", "SECTIONS", "Section", "summary"]
