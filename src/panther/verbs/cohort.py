"""`panther splits`."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from panther.errors import InputError, note
from panther.verbs import parameters as p
from panther.verbs import verb

if TYPE_CHECKING:
    from panther.cohort.load import Cohort
    from panther.cohort.splits import Split


@verb("splits", "Predict and compare")
def make_splits(
    cohort: Annotated[
        Any, p.option("Clinical table, or a folder of splits, which are joined or checked.", text=Path, metavar="TABLE")
    ],
    scheme: Annotated[Literal["kfold", "site-kfold", "holdout"] | None, p.option(panel=p.FOLDS)] = None,
    k: Annotated[int, Field(ge=2, strict=True), p.option(panel=p.FOLDS, name=["-k", "--folds"])] = 5,
    *,
    shares: p.Shares = (0.8, 0.1, 0.1),
    val: Annotated[bool, p.option(panel=p.FOLDS)] = False,
    seed: p.Seed = 0,
    seconds: Annotated[float, Field(gt=0), p.option(panel=p.FOLDS)] = 30.0,
    check: Annotated[Path | None, p.option(panel=p.FOLDS, metavar="PATH")] = None,
    label: p.Label = None,
    classes: Annotated[p.Names, p.option(panel=p.OUTCOME)] = None,
    survival: p.Survival = None,
    time: p.Time = None,
    event: p.Event = None,
    censorship: p.Censorship = None,
    value: p.Value = None,
    labels: p.Labels = None,
    level: p.Level = "patient",
    slide_column: p.SlideColumn = None,
    patient_column: p.PatientColumn = None,
    site_column: p.SiteColumn = None,
    output: p.OutputFolder = None,
    name: str | None = None,
) -> "Splits":
    """Divide a cohort into training, validation and test parts by patient, or check splits for leakage.

    Parameters
    ----------
    cohort : Cohort, path or DataFrame
        Clinical table, or a folder of splits, which are joined or checked; in Python also a `Cohort`.
    scheme : "kfold", "site-kfold" or "holdout", optional
        Folds with the same share of each class (of events and times, of small and large values, of each label), folds that also keep
        every site whole, or one split. By default "kfold"; a folder of splits is then checked, not divided again.
    k : int, default=5
        Number of folds.
    shares : tuple of float
        Train, validation and test of a holdout, in parts of any sum.
    val : bool
        Use the next fold as the validation part.
    seed : int
        Same seed and table: same splits.
    seconds : float
        Time limit for the solver of site-kfold, seconds.
    check : path, optional
        Splits that name slides only (CLAM's `splits_0.csv`), to be checked against the table.
    label : str, optional
        Column of the label; by default one of the usual names. Splits are checked for leakage also without an outcome.
    classes : list of str, optional
        Classes in their order; others are left out.
    survival : str, optional
        Endpoint `os`, `dss`, `dfi` or `pfi`.
    time, event, censorship : str, optional
        Columns of the follow-up: the time, and what is 1 where the event happened, or where the patient was censored.
    value : str, optional
        Column of numbers.
    labels : list of str, optional
        Columns of several labels, each 0 or 1, empty where unknown.
    level : str, default="patient"
        What is divided: patients with all their slides, or slides (still by patient).
    slide_column, patient_column, site_column : str, optional
        Columns of the table, if not the default names.
    output : path, optional
        Folder to write `NAME_k=0/train.csv` ... to.
    name : str, optional
        Name of the splits; by default the table's.

    Returns
    -------
    Splits
        List of `Split`, names of the slides or patients of each part; ``cohort.positions(split.train)`` are their rows.

    Examples
    --------
    >>> import pandas as pd
    >>> from panther import make_splits
    >>> table = pd.DataFrame({"slide_id": list("abcdefgh"), "grade": ["high", "low"] * 4})
    >>> [len(split.train) for split in make_splits(table, k=4, label="grade")]
    [6, 6, 6, 6]
    """
    from panther.cohort import split_files as files
    from panther.cohort.load import Cohort, load_cohort, make_cohort
    from panther.cohort.spec import NoOutcome, SplitSpec, checked
    from panther.cohort.splits import balance_of_tests, balanced_splits, fold_notes
    from panther.storage.clinical import Columns, read_clinical

    columns = Columns(slide_column, patient_column, site_column)
    task: dict[str, Any] = {"label": label, "classes": classes, "survival": survival, "time": time, "event": event}
    task |= {"censorship": censorship, "value": value, "labels": labels, "level": level, "columns": columns}
    source = Path(cohort) if isinstance(cohort, str) else cohort
    if scheme is None and (check is not None or (isinstance(source, Path) and files.holds_splits(source))):
        if output is not None:
            raise InputError(
                "scheme: expected kfold, site-kfold or holdout to write splits; without it they are checked"
            )
        written = files.read_splits(check or source)
        if check is None and not written.has_rows():
            raise InputError(f"{source}: these splits only name slides; expected a clinical table, and them as `check`")
        table = source if check else written.table()
        if any((label, classes, survival, time, event, censorship, value, labels)):
            cohort = load_cohort(table, **task)
        else:  # leakage needs no outcome
            cohort = make_cohort(read_clinical(table, columns=columns), NoOutcome(level=level))
        splits, report = files.assign(written, cohort, columns)
        about = files.about_splits(cohort, splits, balance_of_tests(cohort, splits))
        about |= {"left_out": report.left_out, "shared_sites": report.shared_sites, "report": cohort.report.to_dict()}
        notes, lines = list(report.notes), _leakage_lines(cohort, splits, report)
    elif check is not None:
        raise InputError("check: expected no `scheme`, splits are either made or checked")
    else:
        if output is not None:
            name = name or (files.plain_name(source) if isinstance(source, Path) else "splits")
            files.check_splits_output(output, name, source if isinstance(source, Path) else None)
        spec = checked(SplitSpec, scheme=scheme or "kfold", k=k, seed=seed, shares=shares, val=val, seconds=seconds)
        if not isinstance(source, Cohort):
            cohort = load_cohort(files.split_source(source) if isinstance(source, Path) else source, **task)
        splits, balance = balanced_splits(cohort, spec)
        notes, lines = fold_notes(cohort, splits), []
        if balance is not None and balance.hit_time_limit:
            notes.append("The time limit stopped the solver; another machine may find other folds. Raise `seconds=`.")
        about = {**files.about_made(spec, cohort), "level": level, **files.about_splits(cohort, splits, balance)}
        if output is not None:
            paths = files.write_splits(output, str(name), cohort, splits, about)
            about["files"] = [str(path) for path in paths]
        about["report"] = cohort.report.to_dict()
    note(*notes)
    return Splits(splits, about, [*cohort.report.sentences(), *_fold_lines(about), *lines])


class Splits(list["Split"]):
    """Splits, and the sizes and balance of their folds."""

    def __init__(self, splits: list["Split"], about: dict[str, Any], lines: list[str]) -> None:
        super().__init__(splits)
        self.about, self._lines = about, lines

    def to_lines(self) -> list[str]:
        """Lines for people."""
        return self._lines

    def to_json(self) -> dict[str, Any]:
        """The same for programs."""
        return self.about


def _leakage_lines(cohort: "Cohort", splits: list["Split"], report: Any) -> list[str]:
    lines = ["No patient is in two parts of a fold."]
    if report.left_out:
        lines.append(f"{report.left_out} names in the splits have no usable row in the table and are left out.")
    shared = [sites for sites in report.shared_sites.values() if sites]
    known = sum(site is not None for site in cohort.sites)
    if shared:
        sites = f"{len(shared)} of {len(splits)} folds, e.g. {', '.join(shared[0][:5])}"
        lines.append(f"Sites in training and test: {sites}.")
    elif known:
        lines.append(
            f"No site is in training and test of a fold (sites of {known} of {len(cohort)} samples are known)."
        )
    else:
        lines.append("Sites are not known.")
    return lines


def _fold_lines(about: Mapping[str, Any]) -> list[str]:
    """Parts of every fold, one per line, and the balance."""
    groups = list(about["folds"][0]["train"]["counts"])
    shown = groups if len(groups) <= 8 else []  # thirty diagnoses do not fit a line; --json has them
    lines = [f"fold  {'part':<12} samples  " + "".join(f"{group[:12]:>13}" for group in shown) + "  sites"]
    for number, parts in enumerate(about["folds"]):
        for part, held in parts.items():
            sites = ", ".join(held["sites"]) if len(held["sites"]) <= 6 else f"{len(held['sites'])} sites"
            counts = "".join(f"{held['counts'][group]:>13}" for group in shown)
            lines.append(f"{number:<5} {part:<12} {held['samples']:>7}  {counts}  {sites}")
    if balance := about["balance"]:
        bound = balance["bound"]
        least = "" if bound is None else f"; no folds of whole sites can have less than {bound:.4f}"
        lines.append(
            f"Imbalance {balance['imbalance']:.4f} (share that would have to change fold, mean over strata){least}."
        )
    return lines
