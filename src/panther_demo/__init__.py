"""A synthetic cohort of slides, drawn so that the truth is known, and the whole product run on it (`panther demo`).

Nothing in here is biology: tissues are textures that resemble H&E, patients are random numbers.
"""

from panther_demo.cohort import CohortSettings, make_patients, write_cohort
from panther_demo.pipeline import Demo, run_demo
from panther_demo.tissues import tissues

__all__ = ["CohortSettings", "Demo", "make_patients", "run_demo", "tissues", "write_cohort"]
