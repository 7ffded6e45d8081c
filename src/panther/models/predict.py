"""Predict new slides or patients with a trained model, and score the predictions where a table has the outcome."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

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
from panther.models.blocks import PRECOMPUTED, UNMADE, Block, join_rows, made_by
from panther.models.model import Model, check_bag
from panther.models.settings import TrainSettings
from panther.models.tasks import KINDS, ClassTask
from panther.models.trainer import predict_logits
from panther.models.uncertainty import OUTSIDE, mean_features, uncertainty_columns, with_familiarity
from panther.prototypes.centre import add_sites
from panther.storage.bags import Listing, group_by_patient
from panther.storage.clinical import TCGA, USUAL, ClinicalTable, Columns, Selection
from panther.storage.names import without_suffix
from panther.storage.slide_vectors import vector_bags
from panther.types import Openable, Prototypes


def reads_patches(model: Model) -> bool:
    """Whether a model reads features of patches."""
    return model.scaler is None or any(block.method.name not in UNMADE for block in model.blocks)


def with_new_sites(
    model: Model, bags: Sequence[Openable], table: ClinicalTable | None, work: Work = LOCAL
) -> tuple[Model, list[str]]:
    """The model with the sites of these bags, where its prototypes are centred by site and the table has sites; and notes."""
    blocks, notes, known = [], [], {}
    for block in model.blocks:
        if isinstance(block.basis, Prototypes):
            if id(block.basis) not in known:  # several blocks may share prototypes
                known[id(block.basis)], new = add_sites(block.basis, bags, table, work=work)
                notes += new
            block = replace(block, basis=known[id(block.basis)])
        blocks.append(block)
    return replace(model, blocks=tuple(blocks)), list(dict.fromkeys(notes))


def _rows_of(
    block: Block,
    bags: Sequence[Openable],
    vectors: Mapping[str, Sequence[Openable]],
    clinic: pd.DataFrame | None,
    work: Work,
) -> tuple[Sequence[str], np.ndarray, Mapping[str, str]]:
    """Samples, rows (n, D) and failures of one block."""
    if block.method.name == COVARIATES:
        fitted = load_covariates(block.method.options["columns"])
        if clinic is None:
            columns = listed([covariate.column for covariate in fitted.columns])
            raise InputError(f"The model reads covariates ({columns}); give `table=`")
        samples = dict.fromkeys(bag.sample for group in (bags, *vectors.values()) for bag in group)
        rows = clinic.loc[[name for name in samples if name in clinic.index]] if samples else clinic
        return list(rows.index), fitted.encode(rows).astype(np.float32), {}
    if block.method.name == PRECOMPUTED:
        name = block.method.options["name"]
        if name not in vectors:
            raise InputError(f"The model reads vectors of {name!r}; they need `embeddings={name}=PATH`")
        bags = vectors[name]
    method = made_by(block.method)
    table = embed_bags(bags, block.basis, method.name, method.options, work=work)
    return table.samples, table.vectors, table.failures


RESAMPLES = 1000


@dataclass(frozen=True)
class Scores:
    """Metrics of the predictions with a known outcome."""

    samples: int
    patients: int
    counts: Mapping[str, int]  # samples per class, or with and without the event
    metrics: Mapping[str, Interval]  # over patients; without undefined ones
    columns: str  # of the outcome, and the meaning of their values
    notes: tuple[str, ...]

    def sentences(self) -> list[str]:
        """Scores as lines of text."""
        counts = ", ".join(f"{name} {n}" for name, n in self.counts.items())
        cohort = f"{self.samples} samples of {self.patients} patients with an outcome from {self.columns}"
        limits = [f"  {metric_title(m)} {i.value:.3f} [{i.low:.3f}, {i.high:.3f}]" for m, i in self.metrics.items()]
        return [f"Scored on {cohort}: {counts}.", *limits]

    def to_dict(self) -> dict[str, Any]:
        """Scores as plain values."""
        metrics = {}
        for name, i in self.metrics.items():
            low, high = (None if np.isnan(limit) else limit for limit in (i.low, i.high))
            metrics[name] = {"value": i.value, "ci_low": low, "ci_high": high, "resamples": i.resamples}
        return {**vars(self), "counts": dict(self.counts), "metrics": metrics, "notes": list(self.notes)}


def trained_task(model: Model, source: object = "the model") -> TaskSpec | None:
    """Columns of the outcome that a model was trained on; None where its file, ``source``, has none."""
    task = model.about.get("task")
    try:
        return None if task is None else TaskSpec.model_validate(task)
    except ValidationError as error:
        raise InputError(f"{source}: invalid task {task!r}; train the model again") from error


def in_units(
    refs: Sequence[Openable], level: Level, table: ClinicalTable | None
) -> tuple[tuple[Openable, ...], Level, list[str]]:
    """Bags of a level, or of slides where the patients are unknown, and notes; without a table patients are read from TCGA's names."""
    if level == "slide":
        return tuple(refs), level, []
    slides = [ref.sample for ref in refs]
    if table is not None:
        patients, notes = dict(zip(table.who.slide, table.who.patient, strict=True)), table.who.notes
    elif all(re.match(TCGA, slide) for slide in slides):
        patients, notes = {slide: slide[:12] for slide in slides}, []
    else:
        note = "The model was trained on patients; without a table each slide is predicted separately."
        return tuple(refs), "slide", [note]
    patient_of = {slide: patients[without_suffix(slide)] for slide in slides}
    return group_by_patient(Listing(tuple(refs), {}), patient_of)[0].refs, level, list(notes)


def score(
    model: Model,
    samples: Sequence[str],
    predictions: Mapping[str, np.ndarray],
    cohort: Cohort,
    split: str | None = None,
) -> Scores | None:
    """Scores of the samples with a known outcome in this part of the table; None where there are none."""
    outcomes = set(cohort.ids)
    rows = np.array([i for i, name in enumerate(samples) if name in outcomes], np.int64)
    if not len(rows):
        return None
    scored = [samples[i] for i in rows]
    positions = cohort.positions(scored)
    target = cohort.target.take(positions)
    patients = np.array([cohort.samples[i].patient for i in positions])
    judged = {name: values[rows] for name, values in predictions.items()}

    resampled = resample(lambda counts: model.task.judge(judged, target, None, counts), patients, RESAMPLES)
    metrics = {name: i for name, i in intervals(resampled).items() if not np.isnan(i.value)}
    if not model.task.is_ordered:
        metrics.pop("quadratic_kappa", None)
    notes = []
    if trained := set(model.samples).intersection(scored):
        remedy = "train without them" if split and split.startswith("test") else "score others, `split=test`"
        notes.append(
            f"{len(trained)} of the {len(rows)} scored samples were trained on, e.g. {min(trained)}; {remedy}."
        )
    bounds: dict[str, float] = {}
    if isinstance(target, Classes):
        bounds = exact_bounds(target.labels, patients)
        if (name := target.only_class()) is not None:
            notes.append(f"Of the scored, {about_one_class(len(target), name)}.")
    for name, interval in metrics.items():
        if is_perfect(interval.value, name):
            bound = bounds.get(name, np.nan)
            about = {"metric": name, "mean": interval.value, "patients": len(set(patients)), "exact_low": bound}
            notes.append(f"{metric_title(name)} is 1: {about_perfect(pd.Series(about))}.")
    return Scores(len(rows), len(set(patients)), target.counts(), metrics, cohort.report.columns, tuple(notes))


@dataclass(frozen=True)
class Predictions:
    """Predictions of a cohort, and their scores where the outcome is known."""

    table: pd.DataFrame  # one row per slide or patient
    level: Level  # of a row
    scores: Scores | None
    notes: list[str]
    failures: dict[str, str]

    def rows(self) -> pd.DataFrame:
        """The table with empty texts for missing values."""
        return self.table.astype(object).where(self.table.notna(), "")

    def to_lines(self) -> list[str]:
        """Lines for people."""
        lines = [f"{len(self.table)} predictions, one per {self.level}"]
        return lines if self.scores is None else lines + self.scores.sentences()

    def to_json(self) -> dict[str, Any]:
        """Predictions and scores for programs."""
        scores = None if self.scores is None else self.scores.to_dict()
        return {"unit": self.level, "predictions": self.rows().to_dict("records"), "scores": scores}


def open_vectors(
    model: Model,
    features: Any,
    embeddings: Mapping[str, Path | str],
    table: Any = None,
    split: str | None = None,
    columns: Columns = USUAL,
) -> dict[str, Listing]:
    """Precomputed vectors of a model's input, by name; for a model of one kind of vectors alone ``features`` may be their path."""
    names = [block.method.options["name"] for block in model.blocks if block.method.name == PRECOMPUTED]
    for name in embeddings:
        if name not in names:
            raise InputError(f"The model reads no vectors of {name!r}; {suggestion(name, names)}.")
    paths = dict(embeddings)
    if len(names) == 1 and not paths and not reads_patches(model) and features is not None:
        paths = {names[0]: features}
    for name in names:
        if name not in paths:
            raise InputError(f"The model reads vectors of {name!r}; they need `embeddings={name}=PATH`")
    if features is None and (reads_patches(model) or not names):
        needed = "features of patches" if reads_patches(model) else "covariates of slides with features"
        raise InputError(f"The model reads {needed}; give their folder.")
    return {name: vector_bags(paths[name], table, split, columns) for name in names}


def predict_slides(
    model: Model,
    selection: Selection,
    level: Level | None = None,
    outcome: TaskSpec | None = None,
    vectors: Mapping[str, Listing] | None = None,
    *,
    work: Work = LOCAL,
) -> Predictions:
    """Predict the selected slides, and score them where the table has the outcome.

    The outcome's columns are those of ``outcome``; without it those of the training, and a note says where the table lacks them.
    """
    task, clinical = trained_task(model), selection.table
    if level == "patient" and clinical is None:
        raise InputError("`level=patient` needs a `table=` with the patient of each slide.")
    requested: Level = level or (task.level if task else "slide")
    cohort, notes = _outcomes(model, outcome, selection, requested)
    refs, unit, unit_notes = in_units(selection.refs, requested, clinical)
    in_unit = {name: in_units(listing.refs, unit, clinical)[0] for name, listing in (vectors or {}).items()}
    clinic = None if clinical is None else rows_per_sample(clinical, unit)
    model, site_notes = with_new_sites(model, refs, clinical, work)
    names, predictions, failures = predict_bags(model, refs, in_unit, clinic, work=work)
    scores = None if cohort is None else score(model, names, predictions, cohort, clinical.split if clinical else None)
    if task is not None and unit != task.level and level is not None:
        unit_notes.append(f"The model was trained on {task.level}s, but predicts {unit}s here.")
    notes = list(dict.fromkeys([*selection.notes, *site_notes, *unit_notes, *notes, *(scores.notes if scores else ())]))
    columns = model.task.columns(predictions) | uncertainty_columns(model, names, predictions, refs, work)
    table = pd.DataFrame({"sample": names, **columns})
    outside = [
        f"{name}: {text}" for name, text in zip(names, columns.get("sureness", ()), strict=False) if OUTSIDE in text
    ]
    others = f" (and {len(outside) - 1} more)" if len(outside) > 1 else ""
    notes += [*model.uncertainty.reasons, *(f"{text}.{others}" for text in outside[:1])]
    if cohort is not None:
        observed = pd.DataFrame(cohort.target.columns(), index=cohort.ids)
        if "event" in observed:
            observed = observed.astype({"event": "Int64"})  # whole numbers, also where some are missing
        table = table.join(observed, on="sample")
    return Predictions(table, unit, scores, notes, {**selection.problems, **failures})


def _outcomes(
    model: Model, outcome: TaskSpec | None, selection: Selection, level: Level
) -> tuple[Cohort | None, list[str]]:
    """Samples with an outcome in the table, and notes; missing columns are an error only for an explicit ``outcome``."""
    task = outcome or trained_task(model)
    if selection.table is None or task is None:
        return None, []
    try:
        if task.kind != model.task.kind:
            predicts = "risks of survival" if model.task.kind == "survival" else KINDS[model.task.kind]
            raise InputError(f"The model predicts {predicts}; name the columns of such an outcome to score it.")
        classes = {"classes": tuple(model.task.names)} if isinstance(model.task, ClassTask) else {}
        task = task.model_copy(update={**classes, "level": level})
        cohort = make_cohort(selection.table, task, [ref.sample for ref in selection.refs])
    except InputError as error:
        if outcome is not None:
            raise
        return None, [f"The predictions are not scored. {error}"]
    return cohort, [*cohort.report.notes, *cohort.report.unused_rows("not scored")]


def predict_bags(
    model: Model,
    bags: Sequence[Openable],
    vectors: Mapping[str, Sequence[Openable]] | None = None,
    clinic: pd.DataFrame | None = None,
    *,
    work: Work = LOCAL,
) -> tuple[list[str], dict[str, np.ndarray], dict[str, str]]:
    """Samples, their predictions and failures; samples with features of another encoder fail."""
    if model.scaler is not None:
        tables: list[tuple[Sequence[str], np.ndarray]] = []
        failures: dict[str, str] = {}
        for block in model.blocks:
            names, x, failed = _rows_of(block, bags, vectors or {}, clinic, work)
            tables.append((names, x))
            failures |= failed
        titles, known = [block.method.title for block in model.blocks], [set(names) for names, _ in tables]
        for name in dict.fromkeys(name for names, _ in tables for name in names):
            missing = [title for title, some in zip(titles, known, strict=True) if name not in some]
            if missing and name not in failures:
                failures[name] = f"{name}: has no {listed(missing)}, which the model reads; it is left out."
        samples, x = join_rows(tables)
        if not samples:
            raise InputError(f"None of the samples has all that the model reads ({listed(titles)}).")
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
