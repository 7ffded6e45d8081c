"""Train one model on a whole cohort."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from panther.aggregators import embed_cohort
from panther.cohort.targets import Target
from panther.errors import InputError
from panther.execution import HERE, Work
from panther.models.fitting import Bags, Embedded, Parts, Recipe, fit_model
from panther.models.model import Model
from panther.patch_spec import in_common
from panther.prototypes import fit_prototypes
from panther.prototypes.patches import example, scan_bags
from panther.types import Openable, Prototypes


def train_model(
    bags: Sequence[Openable],
    target: Target,
    recipe: Recipe,
    prototypes: Prototypes | None = None,
    *,
    patients: Mapping[str, str] | None = None,
    work: Work = HERE,
) -> tuple[Model, dict[str, str]]:
    """Train on all bags given, on given ``prototypes`` or new ones; those that cannot be read are left out and listed.

    ``patients`` names the patient of each bag, where bags are slides: a probe's inner folds keep a patient's slides together.
    """
    infos, failures = scan_bags(bags, work)
    refs = {bag.sample: bag for bag in bags if bag.sample in infos}
    if not refs:
        raise InputError(f"None of the {len(bags)} samples can be read. {example(failures)}")
    target = target.take(np.flatnonzero([bag.sample in refs for bag in bags]))
    if not recipe.needs_prototypes:
        prototypes = None
    elif prototypes is None:
        fitted = fit_prototypes(list(refs.values()), recipe.prototypes, work=work)
        prototypes, failures = fitted.prototypes, {**failures, **fitted.failures}
    parts = Parts({"train": tuple(refs)}, {"train": target}, patients or {name: name for name in refs})
    data: Embedded | Bags
    if recipe.supervised:
        data = Bags(refs, prototypes, in_common([info.spec for info in infos.values()]))
        contents = {name: ref.open().fingerprint() for name, ref in refs.items()}
    else:
        assert prototypes is not None
        table = embed_cohort(list(refs.values()), prototypes, recipe.method.name, recipe.method.options, work=work)
        data, contents = Embedded(table.vectors, table.samples, prototypes), dict(table.contents)
        failures = {**failures, **table.failures}
    return fit_model(recipe, replace(parts, contents=contents), data, track=work.track).model, failures
