r"""EM for one slide's Gaussian mixture with diagonal covariance (paper section 3.1), as free functions.

The E-step is an assignment for :func:`panther.statistics.accumulate`; the M-step turns the sums into parameters (`steps`). `fit` takes them in
turn, on a GPU by way of `replayed`, and there for several bags at once (`together`).
"""

from panther.mixture.fit import fit_mixture as fit_mixture
from panther.mixture.fit import responsibilities as responsibilities
from panther.mixture.fit import start_of as start_of
from panther.mixture.fit import surprise_of as surprise_of
from panther.mixture.fit import take_first_step as take_first_step
from panther.mixture.settings import FLOOR as FLOOR
from panther.mixture.settings import PRESETS as PRESETS
from panther.mixture.settings import STARTING_VARIANCES as STARTING_VARIANCES
from panther.mixture.settings import EMSettings as EMSettings
from panther.mixture.settings import starting_variance as starting_variance
from panther.mixture.steps import FirstStep as FirstStep
from panther.mixture.steps import MixtureFit as MixtureFit
from panther.mixture.steps import Start as Start
from panther.mixture.steps import effective_number as effective_number
from panther.mixture.steps import log_posterior as log_posterior
from panther.mixture.together import BatchedFitter as BatchedFitter
from panther.mixture.together import PendingFit as PendingFit
