"""`panther run`, `panther study` and `panther report`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from panther.errors import InputError, note, require_packages, warn_left_out
from panther.verbs import Text, verb
from panther.verbs import parameters as p

if TYPE_CHECKING:
    from panther.report.page import Report
    from panther.study.results import Results

PANEL = "Predict and compare"


@verb("run", PANEL)
def run_study(
    study: Annotated[Any, p.option("Study file (YAML); its paths count from its folder.", text=Path, metavar="STUDY")],
    output: p.RequiredFolder = None,
    *,
    workers: p.Workers = "auto",
    device: p.Device = "auto",
) -> "Results":
    """Train and test every method, head and loss of a study over every fold.

    Parameters
    ----------
    study : Study, mapping or path
        A study file (YAML), or its keys and values: then a `table` may be a DataFrame, and `features` a folder, arrays or bags instead of
        `{encoder: folder}`. Paths in a file count from its folder.
    output : path, optional
        Folder for results, models and cache. Run again with the same folder, a study that was killed resumes. Without it
        everything lies in a temporary folder that is removed together with the results; :meth:`Results.write` keeps it.
    workers : int or str, default="auto"
        Worker processes (see :func:`panther.embed_cohort`).
    device : str, default="auto"
        Where networks are trained.

    Returns
    -------
    Results
        Tables `metrics`, `summary`, `comparisons` and `predictions`; the models that were tested, `results.model(fold=0, method="panther")`;
        `failures`, a message for each sample that was left out, also given as a warning.

    Examples
    --------
    >>> import numpy as np, pandas as pd, panther
    >>> rng = np.random.default_rng(0)
    >>> bags = {f"S{i}": rng.normal(i % 2, 1, (30, 4)) for i in range(12)}
    >>> table = pd.DataFrame({"slide_id": list(bags), "case_id": list(bags), "subtype": ["a", "b"] * 6})
    >>> study = {"name": "example", "table": table, "features": bags, "task": {"label": "subtype"}, "heads": ["probe"]}
    >>> results = panther.run_study({**study, "n_prototypes": [2], "splits": {"k": 2}, "bootstrap": 10})
    >>> results.metrics.query("part == 'test' and metric == 'auroc'")["value"].tolist()
    [1.0, 1.0]
    >>> results.model(fold=0).task.names
    ('a', 'b')
    """
    import os
    import shutil
    import tempfile
    import weakref

    from panther.engine import open_work
    from panther.store import check_output_folder
    from panther.study.evaluate import evaluate
    from panther.study.file import as_study
    from panther.study.results import WRITTEN
    from panther.study.training import train_all

    folder = Path(tempfile.mkdtemp(prefix="panther-study-")) if output is None else Path(output)
    # made by this call, and removed again where it is refused before the first result; os.path: a name may be too long
    made = [place for place in (folder / "cache", folder) if output is None or not os.path.exists(place)]
    try:
        checked = as_study(study, folder)
        tables = [checked.table, *(cohort.table for cohort in checked.external.values())]
        check_output_folder(folder, WRITTEN, Path(study) if isinstance(study, (str, Path)) else None, tables)
        with open_work(workers, device=device) as work:
            results = evaluate(train_all(checked, folder, work), work=work)
    except BaseException:
        if output is None or not any(Path(folder, "cache").glob("*-*")):
            for place in made:
                shutil.rmtree(place, ignore_errors=True)
        raise
    if output is None:
        weakref.finalize(results, shutil.rmtree, folder, ignore_errors=True)
    else:
        results.write(folder)
    note(*results.run.notes)
    warn_left_out("Left out of the study, or failed in it", results.failures)
    return results


@verb("report", PANEL)
def make_report(
    run: Annotated[Any, p.option(text=Path, metavar="RUN")],
    *,
    atlas: p.Folder = None,
    maps: p.Folder = None,
    attribution: p.Folder = None,
    km: p.Folder = None,
    agreement: p.Folder = None,
    names: p.PrototypeNames = None,
    title: str | None = None,
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
    material = gather(run, folders, names, title)
    report = Report(build_page(material), material.failures)
    if output is not None:
        write_text(output, report.html)
    warn_left_out("Left out of the report", report.failures)
    return report


@verb("study new", PANEL)
def new_study(
    name: Annotated[
        str,
        p.option(
            "Template; `panther study list` shows them.",
            completer=p.names_of("panther.study.templates:TEMPLATES"),
            metavar="NAME",
        ),
    ],
    output: Annotated[p.OutputFile, p.option("File to write; NAME.yaml by default.")] = None,
    literal: Annotated[
        bool, p.option("The paper to the letter: every setting written out, with its value in the paper.")
    ] = False,
) -> Text:
    """Write a study file to start from."""
    from panther.study.templates import find_template, literal_text, write_study

    path = output or Path(f"{name}.yaml")
    text = literal_text(name, path.stem) if literal else find_template(name).text(path.stem)
    write_study(text, path)
    return Text([f"{path}: fill in the paths, then run: panther run {path} -o {path.stem}/"], {"output": str(path)})


@verb("study list", PANEL)
def list_studies() -> Text:
    """List the templates of study files."""
    from panther.study.templates import TEMPLATES

    titles = {name: template.title for name, template in TEMPLATES.items()}
    return Text([f"{name:<20} {title}" for name, title in titles.items()], titles)


@verb("study schema", PANEL)
def study_schema() -> Text:
    """Print the JSON schema of study files, for editors."""
    import json

    from panther.study.file import Study

    schema = Study.model_json_schema()
    return Text([json.dumps(schema, indent=2)], schema)
