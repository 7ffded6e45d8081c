"""`panther report`."""

from typing import TYPE_CHECKING, Annotated, Any

from panther.errors import InputError, note, require_packages, warn_left_out
from panther.verbs import parameters as p
from panther.verbs import verb

if TYPE_CHECKING:
    from panther.report.page import Report

LARGE = 30e6  # bytes above which mail servers refuse


@verb("report", "Predict and compare")
def make_report(
    run: Annotated[Any, p.option(text=p.as_path, metavar="RUN")],
    *,
    atlas: Annotated[Any, p.option(text=p.as_path, metavar="FOLDER")] = None,
    maps: Annotated[Any, p.option(text=p.as_path, metavar="FOLDER")] = None,
    attribution: Annotated[Any, p.option(text=p.as_path, metavar="FOLDER")] = None,
    km: Annotated[Any, p.option(text=p.as_path, metavar="FOLDER")] = None,
    agreement: Annotated[Any, p.option(text=p.as_path, metavar="FOLDER")] = None,
    names: p.PrototypeNames = None,
    title: str | None = None,
    color_by: str | None = None,
    output: p.RequiredFile = None,
) -> "Report":
    """Write a study as one HTML page in plain words, with its figures; it works offline and prints.

    Parameters
    ----------
    run : Results or path
        Folder of `panther run`, or what `run_study` returned.
    atlas : Atlas or path, optional
        Folder of `panther atlas`, or what `make_atlas` returned with an ``output``.
    maps : path, optional
        Folder of `panther map`.
    attribution : Attribution or path, optional
        Folder of `panther attribute`, or what `attribute` returned with an ``output``.
    km : path, optional
        Folder of `panther kaplan-meier`.
    agreement : path, optional
        Folder of `panther concordance`.
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
    require_packages("report", "jinja2", "plotly", "PIL")
    from panther.report.material import gather
    from panther.report.page import Report, build_page, written_folder
    from panther.storage.files import write_text
    from panther.store import check_output

    folders = {"atlas": atlas, "maps": maps, "attribution": attribution, "km": km, "agreement": agreement}
    folders = {name: written_folder(name, value) for name, value in folders.items() if value is not None}
    if output is not None:
        if output.suffix.lower() not in (".html", ".htm"):
            raise InputError(f"output: found {output}, expected a name that ends in .html")
        check_output(output, names)
    material = gather(run, folders, names, title, color_by)
    report = Report(build_page(material), material.failures)
    if output is not None:
        write_text(output, report.html)
        if report.size > LARGE:
            note(
                f"{output} has {report.size / 1e6:.0f} MB, more than most mail servers accept; use fewer maps or exemplars"
            )
    warn_left_out("Left out of the report", report.failures)
    return report
