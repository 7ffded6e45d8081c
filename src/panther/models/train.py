"""Train one model on a whole cohort."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from panther.aggregators import embed_bags
from panther.cohort.covariates import CovariateSpec, as_covariate
from panther.cohort.load import make_cohort
from panther.cohort.spec import Level, TaskSpec, checked
from panther.cohort.targets import Target
from panther.engine import HERE, Work, collect
from panther.errors import InputError, warn_left_out
from panther.feature_space import FeatureSpace
from panther.limits import check_whole, plain
from panther.mil import networks
from panther.models.blocks import Block
from panther.models.blocks.reduction import made_by
from panther.models.checks import check_head, check_loss, check_method
from panther.models.clinic import Clinic
from panther.models.fitting import Bags, Embedded, Parts, TrainingRecipe, fit_model
from panther.models.heads import PROBE
from panther.models.model import Model
from panther.models.model_file import save_model
from panther.models.named import Named
from panther.models.presets import USUAL_LOSS, preset, usual_preset
from panther.models.probes import PROBES
from panther.patch_spec import in_common
from panther.prototypes import KMeansSettings, fit_bags
from panther.prototypes.centre import with_sites_of
from panther.prototypes.patches import BagInfo, example, scan_bags
from panther.storage.bags import BagsLike, as_bags
from panther.storage.clinical import USUAL, ColumnsLike, read_clinical, refuse_whole_split, without_features
from panther.storage.fingerprints import sound_content
from panther.storage.inputs import check_output
from panther.storage.prototypes import as_prototypes
from panther.types import Openable, Prototypes

INNER_FOLDS = 5  # whose held-out predictions calibrate a model


def train(
    features: BagsLike,
    table: Path | str | pd.DataFrame,
    *,
    label: str | None = None,
    survival: str | None = None,
    time: str | None = None,
    event: str | None = None,
    censorship: str | None = None,
    value: str | None = None,
    labels: Sequence[str] | None = None,
    level: Level = "patient",
    split: str | None = None,
    columns: ColumnsLike = USUAL,
    method: str = "panther",
    options: Mapping[str, Any] | None = None,
    covariates: Sequence[str | CovariateSpec] = (),
    head: str = "probe",
    loss: str | None = None,
    prototypes: Prototypes | Path | str | None = None,
    n_prototypes: int | None = None,
    epochs: int | None = None,
    calibrate: int | None = None,
    seed: int = 1,
    output: Path | str | None = None,
    work: Work = HERE,
) -> Model:
    """Train one model on all patients (or slides) of a table.

    Parameters
    ----------
    features : path, list, mapping or Listing
        Folder of feature files, or bags in memory (see :func:`panther.list_bags`).
    table : path or DataFrame
        Clinical table with one row per slide.
    label : str, optional
        Column of the label, for a classifier.
    survival : str, optional
        Endpoint `os`, `dss`, `dfi` or `pfi`, for a survival model.
    time, event, censorship : str, optional
        Columns of the follow-up, and of what is 1 where the event happened, or where the patient was censored.
    value : str, optional
        Column of numbers, for a regression.
    labels : list of str, optional
        Columns of several labels at once, each 0 or 1, empty where it is not known.
    level : str, default="patient"
        One prediction per `patient`, all whose slides are one bag, or per `slide`.
    split : str, optional
        Part of the table to train on, e.g. `train`.
    columns : Columns or dict
        Names of the table's slide and patient columns, where they are not the usual ones.
    method : str, default="panther"
        `panther`, `ot`, `h2t`, `protocounts`, `deepsets`, or a network: `abmil`, `transmil`, `dsmil`, `attnmisl`, `ilra`.
    options : mapping, optional
        Settings of the method, e.g. ``{"preset": "calibrated"}``.
    covariates : list of str, optional
        Columns of the table that the model reads beside the embedding, e.g. ``["age", "stage"]``.
    head : str, default="probe"
        `probe` (a convex model with inner cross-validation: logistic regression, ridge Cox, ridge regression, proportional odds), `linear`,
        `mlp`, `structured`, `paper-classification`, `paper-survival`; networks bring their own.
    loss : str, optional
        `cross-entropy` or `ordinal`; `cox`, `nll` or `ranking`; `mse` or `huber`; `binary-cross-entropy`.
    prototypes : Prototypes or path, optional
        Instead of fitting new ones.
    n_prototypes : int, optional
        Number of new prototypes, 16 by default.
    epochs : int, optional
        Instead of the paper's.
    calibrate : int, optional
        Inner folds: a classifier is also trained that often without a fold of its patients, whose predictions then calibrate its
        probabilities. 5 by default; 0, no calibration, for networks, which take long to train.
    seed : int, default=1
        Same seed and input: same model.
    output : path, optional
        File to write, `.safetensors`.
    work : Work
        How work is run, and on which device.

    Returns
    -------
    Model
        For :func:`panther.predict`, maps and attribution. Its `failures` say who was left out and why; a warning tells of them.

    Examples
    --------
    >>> import numpy as np, pandas as pd, panther
    >>> rng = np.random.default_rng(0)
    >>> bags = {f"S{i}": rng.normal(i % 2, 1, (30, 4)) for i in range(12)}
    >>> table = pd.DataFrame({"slide_id": list(bags), "case_id": list(bags), "subtype": ["a", "b"] * 6})
    >>> model = panther.train(bags, table, label="subtype", n_prototypes=2)
    >>> panther.predict(model, bags).columns.tolist()[:4]
    ['sample', 'predicted', 'probability_a', 'probability_b']
    """
    seed, n_prototypes, epochs, calibrate, options = plain((seed, n_prototypes, epochs, calibrate, dict(options or {})))
    follow_up = {"survival": survival, "time": time, "event": event, "censorship": censorship}
    if calibrate is not None:
        check_whole("calibrate", calibrate, 0, 100)
    several = tuple(labels) if labels else None
    task = checked(TaskSpec, label=label, value=value, labels=several, level=level, **follow_up)
    count = 16 if n_prototypes is None else n_prototypes
    recipe = make_recipe(task, method, options, head, loss, KMeansSettings(n_prototypes=count, seed=seed))
    settings: dict[str, Any] = {"seed": seed, "device": work.device} | ({} if epochs is None else {"epochs": epochs})
    recipe = replace(recipe, training=recipe.training.changed(settings))
    given = _given_prototypes(prototypes, n_prototypes, recipe)
    listing = as_bags(features)
    if output is not None:
        check_output(Path(output), listing.refs, *(path for path in (table, prototypes) if isinstance(path, Path)))
    refuse_whole_split(table, split)
    read = read_clinical(table, split, columns)
    read.refuse_shared_patients()
    cohort = make_cohort(read, task, [ref.sample for ref in listing.refs])
    clinic, notes = None, []
    if covariates:
        clinic = Clinic(cohort, [as_covariate(one) for one in covariates])
        notes = clinic.check(recipe)
    bags = cohort.join_bags(listing)
    if given is not None:
        given, told = with_sites_of(given, bags, read, work)
        notes = [*notes, *told]
    model, failures = train_model(
        bags,
        cohort.target,
        recipe,
        given,
        patients={s.id: s.patient for s in cohort.samples},
        clinic=clinic,
        calibrate=calibrate,
        work=work,
    )
    report = replace(cohort.report, notes=(*cohort.report.notes, *notes))
    missing = {slide: without_features(slide, report.source) for slide in report.missing_features}
    model = replace(model, report=report, failures={**missing, **listing.problems, **failures})
    if output is not None:
        save_model(model, Path(output))
    warn_left_out("Left out of the training", model.failures)
    return model


def make_recipe(
    task: TaskSpec,
    method: str,
    options: Mapping[str, Any],
    head: str,
    loss: str | None,
    prototypes: KMeansSettings,
) -> TrainingRecipe:
    """What to train, with the paper's settings of training; names and settings are tried first."""
    check_method(method, options)
    check_head(head, {})
    supervised = method in networks
    chosen = preset(usual_preset(task.kind, network=supervised))
    loss = loss or chosen.loss
    check_loss(loss, {}, task.kind)
    if head == PROBE and not supervised and loss not in PROBES:
        raise InputError(f"The head {PROBE!r} has no loss {loss!r}; use {USUAL_LOSS[task.kind]!r}, or another head.")
    own = Named(name="own" if supervised else head)
    return TrainingRecipe(
        Named(name=method, options=dict(options)), own, Named(name=loss), prototypes, chosen.train, task=task
    )


def _given_prototypes(
    prototypes: Prototypes | Path | str | None, count: int | None, recipe: TrainingRecipe
) -> Prototypes | None:
    if prototypes is None:
        return None
    source = str(prototypes) if isinstance(prototypes, (str, Path)) else "`prototypes=`"
    given = as_prototypes(prototypes)
    if not recipe.needs_prototypes:
        raise InputError(f"{recipe.method.name} has no use for prototypes; leave out {source}.")
    if recipe.supervised and given.alignment is not None:
        raise InputError(
            f"{source}: slides were centred first (centre={given.alignment.kind}), but {recipe.method.name} reads features as they are; "
            "fit prototypes for it without."
        )
    if count not in (None, len(given)):
        raise InputError(
            f"{source}: holds {len(given)} prototypes, but `n_prototypes=` asks for {count}; give one of the two."
        )
    return given


def train_model(
    bags: Sequence[Openable],
    target: Target,
    recipe: TrainingRecipe,
    prototypes: Prototypes | None = None,
    *,
    patients: Mapping[str, str] | None = None,
    clinic: Clinic | None = None,
    calibrate: int | None = None,
    work: Work = HERE,
) -> tuple[Model, dict[str, str]]:
    """Train on all bags given, on given ``prototypes`` or new ones; those that cannot be read are left out and listed.

    ``patients`` names the patient of each bag, where bags are slides: a probe's inner folds keep a patient's slides together.
    ``clinic`` has the covariates that are read beside the embedding, ``calibrate`` as in :func:`train`.
    """
    infos, failures = scan_bags(bags, work)
    refs = {bag.sample: bag for bag in bags if bag.sample in infos}
    if not refs:
        raise InputError(f"None of the {len(bags)} samples can be read. {example(failures)}")
    target = target.take(np.flatnonzero([bag.sample in refs for bag in bags]))
    if not recipe.needs_prototypes:
        prototypes = None
    elif prototypes is None:
        fitted = fit_bags(list(refs.values()), recipe.prototypes, work=work)
        prototypes, failures = fitted.prototypes, {**failures, **fitted.failures}
    parts = Parts({"train": tuple(refs)}, {"train": target}, patients or {name: name for name in refs})
    data: Embedded | Bags
    if recipe.supervised:
        data = Bags(refs, prototypes, in_common([info.spec for info in infos.values()]))
        contents, bad = collect(_content, list(refs.values()), "reading the features", work)
        failures, parts = {**failures, **bad}, parts.known(list(contents))
        if not contents:
            raise InputError(f"None of the {len(bags)} samples can be trained on. {example(failures)}")
    else:
        basis = prototypes or _space(infos)
        made = made_by(recipe.method)
        table = embed_bags(list(refs.values()), basis, made.name, made.options, work=work)
        data = Embedded(table.vectors, table.samples, (Block(recipe.method, basis),))
        if clinic is not None:
            recipe, data = clinic.beside(recipe, data)
        contents = dict(table.contents)
        failures = {**failures, **table.failures}
    folds = (0 if recipe.supervised else INNER_FOLDS) if calibrate is None else calibrate
    parts = replace(parts, contents=contents)
    return fit_model(recipe, parts, data, track=work.track, inner_folds=folds).model, failures


def _content(ref: Openable) -> str:
    """Hash of features that a network can read: some, and all of them numbers."""
    if not len(ref.open()):
        raise InputError(f"{ref.sample}: zero patches; it is left out.")
    return sound_content(ref)


def _space(infos: Mapping[str, BagInfo]) -> FeatureSpace:
    """What the features of all bags are, which were found to be alike."""
    encoder = next((info.encoder for info in infos.values() if info.encoder), None)
    return FeatureSpace(next(iter(infos.values())).dim, encoder, in_common([info.spec for info in infos.values()]))
