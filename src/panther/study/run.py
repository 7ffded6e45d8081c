"""Run a study: from a study file (or its values) to results."""

import os
import shutil
import tempfile
import weakref
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from panther.engine import HERE, Work, open_work
from panther.errors import warn_left_out
from panther.storage.bags import Listing, as_bags
from panther.storage.inputs import check_output_folder
from panther.storage.tables import write_table
from panther.storage.writers import store_bag
from panther.study.evaluate import evaluate
from panther.study.file import Study, load_study, parse_study
from panther.study.record import WRITTEN as RECORDS
from panther.study.results import Results
from panther.study.tables import WRITTEN as TABLES
from panther.study.training import train_all

WRITTEN = (*TABLES, *RECORDS)  # what a study writes into its folder, beside the cache and the models


def run_study(
    study: Study | Mapping[str, Any] | Path | str,
    output: Path | str | None = None,
    *,
    workers: int | str | None = None,
    work: Work = HERE,
) -> Results:
    """Train and test every method, head and loss of a study over every fold.

    Parameters
    ----------
    study : Study, mapping or path
        A study file (YAML), or its keys and values: then a `table` may be a DataFrame, and `features` a folder, arrays or bags instead of
        `{encoder: folder}`. Paths in a file count from its folder.
    output : path, optional
        Folder for results, models and cache. Run again with the same folder, a study that was killed resumes. Without it
        everything lies in a temporary folder that is removed together with the results; :meth:`Results.write` keeps it.
    workers : int or str, optional
        Worker processes, 0: one per core; or a Dask cluster, ``"tcp://HOST:PORT"`` or ``"slurm:OPTIONS.yaml"``. By default the study runs
        in this process.
    work : Work
        The same with all that can be said about how work is run.

    Returns
    -------
    Results
        Tables `metrics`, `summary`, `comparisons` and `predictions`; the models that were tested, `results.model(fold=0, method="panther")`;
        `failures`, who was left out and why, of which a warning tells.

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
    folder = Path(tempfile.mkdtemp(prefix="panther-study-")) if output is None else Path(output)
    is_new = output is None or not os.path.exists(folder)  # False for a name that cannot be, which is refused below
    try:
        checked = _as_study(study, folder)
        tables = [checked.table, *(cohort.table for cohort in checked.external.values())]
        check_output_folder(folder, WRITTEN, Path(study) if isinstance(study, (str, Path)) else None, tables)
        results = _run(checked, folder, workers, work)
    except BaseException:
        if output is None or (is_new and not os.path.exists(folder / "cache")):  # refused before the first job
            shutil.rmtree(folder, ignore_errors=True)
        raise
    if output is None:
        weakref.finalize(results, shutil.rmtree, folder, ignore_errors=True)
    else:
        results.write(folder)
    warn_left_out("Left out of the study, or failed in it", results.failures)
    return results


def _as_study(study: Study | Mapping[str, Any] | Path | str, folder: Path) -> Study:
    """The study, checked; tables and bags in memory are stored in its folder, so that it can be run again."""
    if isinstance(study, Study):
        return study
    if isinstance(study, (str, Path)):
        return load_study(Path(study))
    content = dict(study)
    external = {
        name: _on_disk(cohort, folder / "inputs" / name) for name, cohort in content.get("external", {}).items()
    }
    return parse_study({**_on_disk(content, folder / "inputs"), **({"external": external} if external else {})})


def _on_disk(content: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """A study's (or an external cohort's) values with paths in the place of tables and bags in memory."""
    content = dict(content)
    if isinstance(content.get("table"), pd.DataFrame):
        write_table(folder / "table.csv", content["table"])
        content["table"] = folder / "table.csv"
    features = content.get("features")
    by_encoder = isinstance(features, Mapping) and all(isinstance(value, (str, Path)) for value in features.values())
    if features is not None and not by_encoder:
        if not isinstance(features, (str, Path)):
            features = _stored(as_bags(features), folder / "features")
        content["features"] = {"features": features}
    return content


def _stored(listing: Listing, folder: Path) -> Path:
    """Bags as files; those of an earlier call that are not among them are removed, so that nobody is taken for one of these."""
    written = {store_bag(replace(ref.open(), slide_id=ref.sample), folder) for ref in listing.refs}
    for path in {*folder.glob("[!.]*.h5"), *folder.glob("[!.]*.safetensors")} - written:
        path.unlink()
    return folder


def _run(study: Study, folder: Path, workers: int | str | None, work: Work) -> Results:
    if workers is None:
        return evaluate(train_all(study, folder, work), work=work)
    with open_work(workers, device=work.device, track=work.track) as pool:
        return evaluate(train_all(study, folder, pool), work=pool)
