"""What fitting a mixture gives."""

from typing import NamedTuple

from torch import Tensor

from panther.statistics import Accumulated, Logits
from panther.types import Mixture


class MixtureFit(NamedTuple):
    """A fitted mixture and what is worth knowing about the fit; a leading batch dimension is allowed."""

    mixture: Mixture
    mass: Tensor  # (C,), expected number of patches per component, without the prior
    log_likelihood: Tensor  # (steps,), of the parameters that entered each step
    assignment: Tensor | None  # (N, C), the posterior that made the parameters
    scores: Tensor | None = None  # (N,), log p of each patch under the mixture that EM starts from


class FirstStep(NamedTuple):
    """The first E-step of a bag. It depends on the prototypes, the starting variance and the temperature, and on nothing else that is set."""

    assign: Logits
    found: Accumulated
