"""Which of a study's losses are trained with: a probe has no model of some of them, and networks have a key of their own."""

from panther.errors import listed
from panther.mil import networks
from panther.models.heads import PROBE
from panther.models.probes import PROBES
from panther.study.file import Study


def untrained_losses(study: Study) -> list[str]:
    """A sentence about each kind of row that is not trained with the losses that the study names."""
    asked = [loss.name for loss in study.losses or []]
    told = []
    lacking = [name for name in dict.fromkeys(asked) if name not in PROBES]
    if lacking and any(head.name == PROBE for head in study.heads):
        fitted = listed(loss.name for loss in study.probes())
        told.append(
            f"The head `{PROBE}` is fitted with {fitted}: it has no model of {listed(lacking)}, which are for heads that are trained."
        )
    supervised = [row for row in study.rows if row.name in networks]
    if asked and supervised and study.mil_loss is None:
        (own,) = study.losses_of(supervised[0])
        if set(asked) != {own.name}:
            told.append(
                f"{listed(row.title for row in supervised)}: trained with {own.name}; `losses` ({listed(asked)}) is for heads on embeddings, "
                f"and the loss of networks is chosen with mil_loss: {asked[0]}."
            )
    return told
