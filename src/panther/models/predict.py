"""Predict new slides or patients with a trained model, and score the predictions where a table has the outcome."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from pydantic import ValidationError

from panther.aggregators import embed_bags
from panther.cohort.covariates import COVARIATES, load_covariates
from panther.cohort.load import Cohort, make_cohort, rows_per_sample
from panther.cohort.spec import Level, TaskSpec
from panther.cohort.targets import Classes
from panther.engine import LOCAL, Work
from panther.errors import InputError, listed, suggestion
from panther.evaluation.intervals import Interval, exact_bounds, intervals, is_perfect, resample
from panther.evaluation.metrics import metric_title
from panther.evaluation.verdicts import about_one_class, about_perfect
from panther.mil import BagSource, LoadSettings
from panther.models.blocks import PRECOMPUTED, UNMADE, Block, made_by
from panther.models.model import Model, check_bag
from panther.models.settings import TrainSettings
from panther.models.sureness import OUTSIDE, mean_features, sure_columns, with_familiarity
from panther.models.tasks import KINDS, ClassTask
from panther.models.trainer import predict_logits
from panther.prototypes.centre import add_sites
from panther.storage.bags import Listing, group_by_patient
from panther.storage.clinical import TCGA, USUAL, ClinicalTable, ColumnsLike, Selection
from panther.storage.names import without_suffix
from panther.storage.slide_vectors import vector_bags
from panther.types import Openable, Prototypes


def vector_names(model: Model) -> list[str]:
    """Names of the precomputed vectors that a model reads."""
    return [_name(block) for block in model.representation() if block.method.name == PRECOMPUTED]


def reads_patches(model: Model) -> bool:
    """Whether a model reads features of patches."""
    return model.scaler is None or any(block.method.name not in UNMADE for block in model.representation())


class _Rows(NamedTuple):
    names: Sequence[str]
    vectors: np.ndarray
    failures: Mapping[str, str]


def _represent(
    model: Model,
    bags: Sequence[Openable],
    vectors: Mapping[str, Sequence[Openable]],
    clinic: pd.DataFrame | None,
    work: Work,
) -> tuple[list[str], np.ndarray, dict[str, str]]:
    """Samples, their rows (n, D) and what failed; the mean of precomputed vectors of a patient's slides is the patient's."""
    blocks = model.representation()
    tables = [_rows_of(block, bags, vectors, clinic, work) for block in blocks]
    first = tables[0]
    failures = {name: why for table in tables for name, why in table.failures.items()}
    if len(tables) == 1:
        return list(first.names), np.asarray(first.vectors), failures
    where = [{name: row for row, name in enumerate(table.names)} for table in tables]
    everyone = dict.fromkeys(name for table in tables for name in table.names)
    samples = [name for name in everyone if all(name in rows for rows in where)]
    titles = [block.method.title for block in blocks]
    for name in everyone:
        lacking = [title for title, rows in zip(titles, where, strict=True) if name not in rows]
        if lacking and name not in failures:
            failures[name] = f"{name}: has no {listed(lacking)}, which the model reads; it is left out."
    if not samples:
        raise InputError(f"None of the samples has all that the model reads ({listed(titles)}).")
    pieces = [table.vectors[[rows[name] for name in samples]] for table, rows in zip(tables, where, strict=True)]
    return samples, np.concatenate(pieces, 1), failures


def with_new_sites(
    model: Model, bags: Sequence[Openable], table: ClinicalTable | None, work: Work = LOCAL
) -> tuple[Model, list[str]]:
    """The model, knowing the sites of these bags where its prototypes ask for sites and a table names them; and what to say about it."""
    known: dict[int, tuple[Prototypes, list[str]]] = {}

    def grown(prototypes: Prototypes) -> Prototypes:
        if id(prototypes) not in known:
            known[id(prototypes)] = add_sites(prototypes, bags, table, work=work)
        return known[id(prototypes)][0]

    blocks = tuple(
        replace(block, basis=grown(block.basis)) if isinstance(block.basis, Prototypes) else block
        for block in model.blocks
    )
    prototypes = None if model.prototypes is None else grown(model.prototypes)
    notes = dict.fromkeys(note for _, new in known.values() for note in new)
    return replace(model, blocks=blocks, prototypes=prototypes), list(notes)


def _rows_of(
    block: Block,
    bags: Sequence[Openable],
    vectors: Mapping[str, Sequence[Openable]],
    clinic: pd.DataFrame | None,
    work: Work,
) -> _Rows:
    if block.method.name == COVARIATES:
        fitted = load_covariates(block.method.options["columns"])
        if clinic is None:
            columns = listed([one.column for one in fitted.columns])
            raise InputError(f"The model reads covariates ({columns}); give `table=`")
        every = [*bags, *(bag for some in vectors.values() for bag in some)]
        wanted = [name for name in dict.fromkeys(bag.sample for bag in every) if name in clinic.index]
        rows = clinic.loc[wanted] if every else clinic
        return _Rows(list(rows.index), fitted.encode(rows).astype(np.float32), {})
    if block.method.name == PRECOMPUTED:
        if _name(block) not in vectors:
            raise InputError(f"The model reads vectors of {_name(block)!r}; they need `embeddings={_name(block)}=PATH`")
        bags = vectors[_name(block)]
    made = made_by(block.method)
    table = embed_bags(bags, block.basis, made.name, made.options, work=work)
    return _Rows(table.samples, table.vectors, table.failures)


def _name(block: Block) -> str:
    return str(block.method.options["name"])


RESAMPLES = 1000


@dataclass(frozen=True)
class Scores:
    """Metrics of the predictions whose outcome is known."""

    samples: int
    patients: int
    counts: Mapping[str, int]  # samples per class, or with and without the event
    metrics: Mapping[str, Interval]  # over patients; without those that are not defined here
    columns: str  # of the outcome, and what their values mean
    notes: tuple[str, ...]

    def sentences(self) -> list[str]:
        """Scores for reading."""
        counts = ", ".join(f"{name} {n}" for name, n in self.counts.items())
        who = f"{self.samples} samples of {self.patients} patients whose outcome is known from {self.columns}"
        limits = [f"  {metric_title(m)} {i.value:.3f} [{i.low:.3f}, {i.high:.3f}]" for m, i in self.metrics.items()]
        return [f"Scored on {who}: {counts}.", *limits]

    def to_dict(self) -> dict[str, Any]:
        """Scores for a machine."""

        def plain(value: float) -> float | None:
            return None if np.isnan(value) else value

        metrics = {
            name: {"value": i.value, "ci_low": plain(i.low), "ci_high": plain(i.high), "resamples": i.resamples}
            for name, i in self.metrics.items()
        }
        return {**vars(self), "counts": dict(self.counts), "metrics": metrics, "notes": list(self.notes)}


def trained_task(model: Model, source: object = "the model") -> TaskSpec | None:
    """What a model was trained to predict, as columns of its table; None where its file, ``source``, does not say."""
    task = model.about.get("task")
    try:
        return None if task is None else TaskSpec.model_validate(task)
    except ValidationError as error:
        raise InputError(f"{source}: task {task!r} is none; train it again") from error


def in_units(
    refs: Sequence[Openable], level: Level, table: ClinicalTable | None
) -> tuple[tuple[Openable, ...], Level, list[str]]:
    """Bags of that level where it can be had, else of slides, and notes; without a table only TCGA's names tell the patient."""
    if level == "slide":
        return tuple(refs), level, []
    slides = [ref.sample for ref in refs]
    if table is not None:
        who = table.who
        patients, notes = dict(zip(who.slide, who.patient, strict=True)), who.notes
    elif all(re.match(TCGA, slide) for slide in slides):
        patients, notes = {slide: slide[:12] for slide in slides}, []
    else:
        why = "The model was trained on patients; without a table every slide is predicted by itself."
        return tuple(refs), "slide", [why]
    known = {slide: patients[without_suffix(slide)] for slide in slides}
    return group_by_patient(Listing(tuple(refs), {}), known)[0].refs, level, list(notes)


def score(
    model: Model,
    samples: Sequence[str],
    predictions: Mapping[str, np.ndarray],
    cohort: Cohort,
    split: str | None = None,
) -> Scores | None:
    """Judge the predictions of samples whose outcome is known, of that part of the table; None where there is none."""
    known = set(cohort.ids)
    rows = np.array([i for i, name in enumerate(samples) if name in known], np.int64)
    if not len(rows):
        return None
    positions = cohort.positions([samples[i] for i in rows])
    target = cohort.target.take(positions)
    patients = np.array([cohort.samples[i].patient for i in positions])
    judged = {name: values[rows] for name, values in predictions.items()}

    resampled = resample(lambda counts: model.task.judge(judged, target, None, counts), patients, RESAMPLES)
    metrics = {name: i for name, i in intervals(resampled).items() if not np.isnan(i.value)}
    notes, scored = [], {samples[i] for i in rows}
    if seen := set(model.about.get("samples", ())) & scored:
        remedy = (
            "train without them" if split is not None and split.startswith("test") else "score others, `split=test`"
        )
        notes.append(f"{len(seen)} of the {len(scored)} scored samples were trained on, e.g. {min(seen)}; {remedy}.")
    bounds: dict[str, float] = {}
    if isinstance(target, Classes):
        bounds = exact_bounds(target.labels, patients)
        if (only := target.only_class()) is not None:
            notes.append(f"Of the scored, {about_one_class(len(target), only)}.")
    for name, interval in metrics.items():
        if is_perfect(interval.value, name):
            bound = bounds.get(name, np.nan)
            about = {"metric": name, "mean": interval.value, "patients": len(set(patients)), "exact_low": bound}
            notes.append(f"{metric_title(name)} is 1: {about_perfect(pd.Series(about))}.")
    return Scores(len(rows), len(set(patients)), target.counts(), metrics, cohort.report.columns, tuple(notes))


@dataclass(frozen=True)
class Predictions:
    """Predictions of a cohort, and how good they are where the outcome is known."""

    table: pd.DataFrame  # one row per slide or patient
    level: Level  # what a row is
    scores: Scores | None
    notes: list[str]
    failures: dict[str, str]

    def rows(self) -> pd.DataFrame:
        """The table as it is written: empty where a value is missing."""
        return self.table.astype(object).where(self.table.notna(), "")

    def to_lines(self) -> list[str]:
        """Lines for people."""
        lines = [f"{len(self.table)} predictions, one per {self.level}"]
        return lines if self.scores is None else lines + self.scores.sentences()

    def to_json(self) -> dict[str, Any]:
        """The same for programs."""
        scores = None if self.scores is None else self.scores.to_dict()
        return {"unit": self.level, "predictions": self.rows().to_dict("records"), "scores": scores}


def open_vectors(
    model: Model,
    features: Any,
    embeddings: Mapping[str, Path | str],
    table: Any = None,
    split: str | None = None,
    columns: ColumnsLike = USUAL,
) -> dict[str, Listing]:
    """Precomputed vectors that a model reads, by name; where it reads nothing else and one alone, ``features`` may be their place."""
    wanted = vector_names(model)
    for name in embeddings:
        if name not in wanted:
            raise InputError(f"The model reads no vectors of {name!r}; {suggestion(name, wanted)}.")
    places = dict(embeddings)
    if len(wanted) == 1 and not places and not reads_patches(model) and features is not None:
        places = {wanted[0]: features}
    for name in wanted:
        if name not in places:
            raise InputError(f"The model reads vectors of {name!r}; they need `embeddings={name}=PATH`")
    if features is None and (reads_patches(model) or not wanted):
        what = "features of patches" if reads_patches(model) else "covariates of slides with features"
        raise InputError(f"The model reads {what}; give their folder.")
    return {name: vector_bags(places[name], table, split, columns) for name in wanted}


def predict_slides(
    model: Model,
    chosen: Selection,
    level: Level | None = None,
    outcome: TaskSpec | None = None,
    vectors: Mapping[str, Listing] | None = None,
    *,
    work: Work = LOCAL,
) -> Predictions:
    """Predict the slides that were chosen, and score them where the table knows the outcome.

    The outcome's columns are those of ``outcome``; without it those of the training, and a table that lacks them is noted.
    """
    task = trained_task(model)
    if level == "patient" and chosen.table is None:
        raise InputError("`level=patient` needs a `table=` with the patient of each slide.")
    wanted: Level = level or (task.level if task else "slide")
    cohort, notes = _outcomes(model, outcome, chosen, wanted)
    refs, unit, more = in_units(chosen.refs, wanted, chosen.table)
    in_unit = {name: in_units(listing.refs, unit, chosen.table)[0] for name, listing in (vectors or {}).items()}
    clinic = None if chosen.table is None else rows_per_sample(chosen.table, unit)
    model, site_notes = with_new_sites(model, refs, chosen.table, work)
    names, predictions, failures = predict_bags(model, refs, in_unit, clinic, work=work)
    split = chosen.table.split if chosen.table else None
    scores = None if cohort is None else score(model, names, predictions, cohort, split)
    if task is not None and unit != task.level and level is not None:
        more.append(f"The model was trained on {task.level}s, but predicts {unit}s here.")
    notes = list(dict.fromkeys([*chosen.notes, *site_notes, *more, *notes, *(scores.notes if scores else ())]))
    table = _table(model, names, predictions, sure_columns(model, names, predictions, refs, work), cohort)
    outside = [
        f"{row['sample']}: {row['sureness']}" for _, row in table.iterrows() if OUTSIDE in row.get("sureness", "")
    ]
    others = f" (and {len(outside) - 1} more)" if len(outside) > 1 else ""
    notes += [*model.sure.why, *(f"{one}.{others}" for one in outside[:1])]
    return Predictions(table, unit, scores, notes, {**chosen.problems, **failures})


def _outcomes(
    model: Model, outcome: TaskSpec | None, chosen: Selection, level: Level
) -> tuple[Cohort | None, list[str]]:
    """Samples with an outcome in the table, and why others are not scored; an explicit outcome that none has is an error, else a note."""
    task = outcome or trained_task(model)
    if chosen.table is None or task is None:
        return None, []
    try:
        if task.kind != model.task.kind:
            predicts = "risks of survival" if model.task.kind == "survival" else KINDS[model.task.kind]
            raise InputError(f"The model predicts {predicts}; name the columns of such an outcome to score it.")
        classes = {"classes": tuple(model.task.names)} if isinstance(model.task, ClassTask) else {}
        known = task.model_copy(update={**classes, "level": level})
        cohort = make_cohort(chosen.table, known, [ref.sample for ref in chosen.refs])
    except InputError as error:
        if outcome is not None:
            raise
        return None, [f"The predictions are not scored. {error}"]
    return cohort, [*cohort.report.notes, *cohort.report.unused_rows("not scored")]


def _table(
    model: Model,
    names: Sequence[str],
    predictions: Mapping[str, np.ndarray],
    sure: Mapping[str, Any],
    cohort: Cohort | None,
) -> pd.DataFrame:
    """What the task says of each, and how sure that is; then the outcome where it is known."""
    table = pd.DataFrame({"sample": list(names), **model.task.columns(predictions), **sure})
    if cohort is None:
        return table
    outcome = pd.DataFrame(cohort.target.columns(), index=cohort.ids)
    if "event" in outcome:
        outcome = outcome.astype({"event": "Int64"})  # whole numbers, also where some are missing
    return table.join(outcome, on="sample")


def predict_bags(
    model: Model,
    bags: Sequence[Openable],
    vectors: Mapping[str, Sequence[Openable]] | None = None,
    clinic: pd.DataFrame | None = None,
    *,
    work: Work = LOCAL,
) -> tuple[list[str], dict[str, np.ndarray], dict[str, str]]:
    """Samples, their predictions and what failed; features of another encoder are refused sample by sample."""
    if model.scaler is not None:
        samples, x, failures = _represent(model, bags, vectors or {}, clinic, work)
        with torch.no_grad():
            blocks = [model.network(model.scaler(torch.from_numpy(x[i : i + 64].copy()))) for i in range(0, len(x), 64)]
        return samples, with_familiarity(model, model.task.predict(torch.cat(blocks)), x, model.scaler), failures
    samples, logits, means, failures = [], [], [], {}
    for bag in work.track(bags, "predicting", len(bags)):
        try:
            check_bag(model, bag)
            source = BagSource([bag], {"none": torch.zeros(1)}, LoadSettings().for_evaluation())
            logits.append(predict_logits(model.network, source, TrainSettings())[0])
            means.append(mean_features([bag]))
            samples.append(bag.sample)
        except InputError as error:
            failures[bag.sample] = str(error)
    if not samples:
        raise InputError(f"None of the {len(bags)} samples could be predicted. {next(iter(failures.values()), '')}")
    return samples, with_familiarity(model, model.task.predict(torch.cat(logits)), np.concatenate(means)), failures
