"""A study as one HTML page."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from panther.errors import InputError
from panther.explain.names import Names
from panther.report.material import Request, gather
from panther.report.page import build_page
from panther.storage.files import write_text
from panther.storage.inputs import check_output
from panther.study.results import Results

LARGE = 30e6  # bytes above which mail servers refuse


@dataclass(frozen=True)
class Report:
    """A study as a page.

    Attributes
    ----------
    html : str
        The page, with its styles, scripts and pictures inside.
    failures : mapping
        What could not be shown -> a sentence about it.
    notes : tuple of str
        What to mind about the file.
    """

    html: str
    failures: Mapping[str, str]
    notes: tuple[str, ...] = ()


def make_report(
    run: Results | Path | str,
    *,
    atlas: Any = None,
    maps: Path | str | None = None,
    attribution: Any = None,
    km: Path | str | None = None,
    agreement: Path | str | None = None,
    names: Names = None,
    title: str | None = None,
    color_by: str | None = None,
    output: Path | str | None = None,
) -> Report:
    """Tell a study in plain words, with its figures, on one page that works offline and prints.

    Parameters
    ----------
    run : Results or path
        What `run_study` returned, or the folder that it wrote.
    atlas : Atlas or path, optional
        Folder of `make_atlas`, or what it returned when it wrote one (``output=``).
    maps : path, optional
        Folder of `make_map`.
    attribution : Attribution or path, optional
        Folder of `attribute`, or what it returned when it wrote one.
    km : path, optional
        Folder of `kaplan_meier`.
    agreement : path, optional
        Folder of `concordance`.
    names : path or mapping, optional
        Names of prototypes, `{2: "tumour"}` or a file of them.
    title : str, optional
        Title of the page; by default the study's name.
    color_by : str, optional
        Column of the cohort that colours slides or patients first.
    output : path, optional
        HTML file to write.

    Returns
    -------
    Report
        The page as text, and what could not be shown.

    Examples
    --------
    >>> import numpy as np, pandas as pd, panther
    >>> rng = np.random.default_rng(0)
    >>> bags = {f"S{i}": rng.normal(i % 2, 1, (30, 4)) for i in range(12)}
    >>> table = pd.DataFrame({"slide_id": list(bags), "case_id": list(bags), "subtype": ["a", "b"] * 6})
    >>> study = {"name": "example", "table": table, "features": bags, "task": {"label": "subtype"}, "heads": ["probe"]}
    >>> results = panther.run_study({**study, "n_prototypes": [2], "splits": {"k": 2}, "bootstrap": 10})
    >>> report = panther.make_report(results, title="My study")
    >>> "<h1>My study</h1>" in report.html
    True
    """
    given = {"atlas": atlas, "maps": maps, "attribution": attribution, "km": km, "agreement": agreement}
    folders = {name: _folder(name, value) for name, value in given.items() if value is not None}
    path = None if output is None else Path(output)
    if path is not None:
        if path.suffix.lower() not in (".html", ".htm"):
            raise InputError(f"{path}: the report is one HTML file; give a name that ends in .html.")
        check_output(path, names)
    material = gather(Request(run, folders, names, title, color_by))
    page = build_page(material)
    if path is None:
        return Report(page, material.failures)
    write_text(path, page)
    size = path.stat().st_size
    large = f"{path} has {size / 1e6:.0f} MB, more than most mail servers take; give fewer maps or exemplars."
    return Report(page, material.failures, (large,) if size > LARGE else ())


def _folder(name: str, value: Any) -> Path:
    """Folder of another command, or the one that a value was written to."""
    if isinstance(value, (str, Path)):
        return Path(value)
    files = [file for file in getattr(value, "files", ()) if file.suffix == ".json"]
    if not files:
        raise InputError(f"`{name}=` was not written to files; make it with `output=`, or give its folder.")
    return Path(files[0]).parent
