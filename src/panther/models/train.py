"""Training of one model on a whole cohort."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from panther.aggregators import embed_bags
from panther.cohort.spec import TaskSpec
from panther.cohort.targets import Target
from panther.engine import HERE, Work, collect
from panther.errors import InputError
from panther.feature_space import FeatureSpace
from panther.mil import networks
from panther.models.blocks import Block
from panther.models.blocks.reduction import made_by
from panther.models.checks import check_head, check_loss, check_method
from panther.models.clinic import Clinic
from panther.models.fitting import Bags, Embedded, Parts, TrainingRecipe, fit_model
from panther.models.heads import PROBE
from panther.models.model import Model
from panther.models.named import Named
from panther.models.presets import USUAL_LOSS, preset, usual_preset
from panther.models.probes import PROBES
from panther.patch_spec import in_common
from panther.prototypes import KMeansSettings, fit_bags
from panther.prototypes.patches import BagInfo, example, scan_bags
from panther.storage.fingerprints import finite_content
from panther.storage.prototypes import as_prototypes
from panther.types import Openable, Prototypes

INNER_FOLDS = 5  # whose held-out predictions calibrate a model


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


def check_prototypes(prototypes: Prototypes | Path | str, count: int | None, recipe: TrainingRecipe) -> Prototypes:
    """Prototypes to train on; refused where the recipe has no use for them."""
    source = str(prototypes) if isinstance(prototypes, (str, Path)) else "prototypes"
    fitted = as_prototypes(prototypes)
    if not recipe.needs_prototypes:
        raise InputError(
            f"{source}: found prototypes, expected none: the method {recipe.method.name} does not use them"
        )
    if recipe.supervised and fitted.alignment is not None:
        raise InputError(
            f"{source}: slides were centred first (centre={fitted.alignment.kind}), but {recipe.method.name} reads features as they are"
        )
    if count not in (None, len(fitted)):
        raise InputError(f"{source}: found {len(fitted)} prototypes, expected n_prototypes = {count}")
    return fitted


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
    ``clinic`` has the covariates that are read beside the embedding, ``calibrate`` the number of inner folds.
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
    return finite_content(ref)


def _space(infos: Mapping[str, BagInfo]) -> FeatureSpace:
    """What the features of all bags are, which were found to be alike."""
    encoder = next((info.encoder for info in infos.values() if info.encoder), None)
    return FeatureSpace(next(iter(infos.values())).dim, encoder, in_common([info.spec for info in infos.values()]))
