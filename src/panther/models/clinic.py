"""Covariates beside the embeddings that a model is trained on."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from panther.cohort.covariate_checks import check_covariates
from panther.cohort.covariates import COVARIATES, CovariateSpec, fit_covariates
from panther.cohort.load import Cohort
from panther.errors import InputError
from panther.feature_space import FeatureSpace
from panther.models.blocks import CONCAT, Block
from panther.models.fitting import Embedded, TrainingRecipe
from panther.models.named import Named


@dataclass(frozen=True, eq=False)
class Clinic:
    """What is known of a cohort without its slides."""

    cohort: Cohort
    specs: Sequence[CovariateSpec]

    def check(self, recipe: TrainingRecipe) -> list[str]:
        """Refuse columns that cannot be read, and networks; notes about columns that say nothing, or the target itself."""
        if recipe.supervised:
            raise InputError(
                f"{recipe.method.name} is a network on patches, which reads no covariates; leave out `covariates=`, or take an embedding."
            )
        return check_covariates(self.cohort, self.specs)

    def beside(self, recipe: TrainingRecipe, data: Embedded) -> tuple[TrainingRecipe, Embedded]:
        """What to train on both, side by side."""
        table = self.cohort.table.loc[list(data.names)]
        fitted, _ = fit_covariates(table, self.specs, len(table))
        numbers = fitted.encode(table).astype(np.float32)
        method = Named(name=COVARIATES, options={"columns": fitted.settings()}, label=COVARIATES)
        block = Block(method, FeatureSpace(numbers.shape[1]))
        title = recipe.method.title
        both = Named(name=CONCAT, options={"of": [title, COVARIATES]}, label=f"{title} + {COVARIATES}")
        joined = Embedded(np.hstack([data.x, numbers]), data.names, (*data.blocks, block))
        return replace(recipe, method=both), joined
