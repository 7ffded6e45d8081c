"""Predict new slides or patients with a trained model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from panther.cohort.load import Cohort, rows_per_sample
from panther.cohort.spec import Level, TaskSpec
from panther.engine import HERE, Work
from panther.errors import InputError, suggestion
from panther.mil import BagSource, LoadSettings
from panther.models.model import Model, check_bag
from panther.models.presets import TrainSettings
from panther.models.represent import NewSamples, given_names, reads_patches, represent, with_new_sites
from panther.models.scoring import Scores, in_units, known_outcomes, score, trained_task
from panther.models.sureness.learn import mean_features
from panther.models.sureness.tell import OUTSIDE, sure_columns, with_familiarity
from panther.models.trainer import predict_logits
from panther.storage.bags import Listing
from panther.storage.clinical import USUAL, ColumnsLike, Selection
from panther.storage.slide_vectors import vector_bags
from panther.types import Openable


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


def open_given(
    model: Model,
    features: Any,
    embeddings: Mapping[str, Path | str],
    table: Any = None,
    split: str | None = None,
    columns: ColumnsLike = USUAL,
) -> dict[str, Listing]:
    """Given vectors that a model reads, by name; where it reads nothing else and one alone, ``features`` may be their place."""
    wanted = given_names(model)
    for name in embeddings:
        if name not in wanted:
            raise InputError(f"The model reads no vectors of {name!r}; {suggestion(name, wanted)}.")
    places = dict(embeddings)
    if len(wanted) == 1 and not places and not reads_patches(model) and features is not None:
        places = {wanted[0]: features}
    for name in wanted:
        if name not in places:
            raise InputError(
                f"The model reads vectors of {name!r}; give their file or folder, `embeddings={name}=PATH`."
            )
    if features is None and (reads_patches(model) or not wanted):
        what = (
            "reads features of patches" if reads_patches(model) else "reads covariates alone, of slides with features"
        )
        raise InputError(f"The model {what}; give their folder.")
    return {name: vector_bags(places[name], table, split, columns) for name in wanted}


def predict_slides(
    model: Model,
    chosen: Selection,
    level: Level | None = None,
    outcome: TaskSpec | None = None,
    given: Mapping[str, Listing] | None = None,
    *,
    work: Work = HERE,
) -> Predictions:
    """Predict the slides that were chosen, and score them where the table knows the outcome.

    The outcome's columns are those of ``outcome``; without it those of the training, and a table that lacks them is noted.
    """
    task = trained_task(model)
    if level == "patient" and chosen.table is None:
        raise InputError("`level=patient` needs a `table=` that says whose slides they are.")
    wanted: Level = level or (task.level if task else "slide")
    cohort, notes = _outcomes(model, outcome, chosen, wanted)
    refs, unit, more = in_units(chosen.refs, wanted, chosen.table)
    vectors = {name: in_units(listing.refs, unit, chosen.table)[0] for name, listing in (given or {}).items()}
    clinic = None if chosen.table is None else rows_per_sample(chosen.table, unit)
    model, told = with_new_sites(model, refs, chosen.table, work)
    names, predictions, failures = predict_bags(model, refs, vectors, clinic, work=work)
    split = chosen.table.split if chosen.table else None
    scores = None if cohort is None else score(model, names, predictions, cohort, split)
    if task is not None and unit != task.level and level is not None:
        more.append(f"The model was trained on {task.level}s, but predicts {unit}s here.")
    notes = list(dict.fromkeys([*chosen.notes, *told, *more, *notes, *(scores.notes if scores else ())]))
    table = _table(model, names, predictions, sure_columns(model, names, predictions, refs, work), cohort)
    notes += _about_sureness(model, table)
    return Predictions(table, unit, scores, notes, {**chosen.problems, **failures})


def _outcomes(
    model: Model, outcome: TaskSpec | None, chosen: Selection, level: Level
) -> tuple[Cohort | None, list[str]]:
    """Those whose outcome the table knows, and why others are not scored; that none is, is a fault where it was asked for, else worth a note."""
    task = outcome or trained_task(model)
    if chosen.table is None or task is None:
        return None, []
    try:
        cohort = known_outcomes(model, task, chosen.table, level, [ref.sample for ref in chosen.refs])
    except InputError as error:
        if outcome is not None:
            raise
        return None, [f"The predictions are not scored. {error}"]
    return cohort, [*cohort.report.notes, *cohort.report.unused_rows("not scored")]


def _about_sureness(model: Model, table: pd.DataFrame) -> list[str]:
    """What the model does not know of its limits, and how many samples lie at the edge of what it has seen, or beyond."""
    outside = [
        f"{row['sample']}: {row['sureness']}." for _, row in table.iterrows() if OUTSIDE in row.get("sureness", "")
    ]
    more = f" (and {len(outside) - 1} more)" if len(outside) > 1 else ""
    return [*model.sure.why, *([outside[0] + more] if outside else [])]


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
    given: Mapping[str, Sequence[Openable]] | None = None,
    clinic: pd.DataFrame | None = None,
    *,
    work: Work = HERE,
) -> tuple[list[str], dict[str, np.ndarray], dict[str, str]]:
    """Samples, their predictions and what failed; features of another encoder are refused sample by sample."""
    if model.scaler is not None:
        samples, x, failures = represent(model, NewSamples(bags, given or {}, clinic), work)
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
