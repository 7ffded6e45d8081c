"""Predict new slides or patients with a trained model."""

from collections.abc import Sequence

import numpy as np
import torch

from panther.aggregators import embed_cohort
from panther.errors import InputError
from panther.execution import HERE, Work
from panther.mil import BagSource, LoadSettings
from panther.models.model import Model, check_bag
from panther.models.presets import TrainSettings
from panther.models.trainer import predict_logits
from panther.types import Openable


def predict_bags(
    model: Model, bags: Sequence[Openable], *, work: Work = HERE
) -> tuple[list[str], dict[str, np.ndarray], dict[str, str]]:
    """Samples, their predictions and what failed; features of another encoder are refused sample by sample."""
    if model.prototypes is not None and model.scaler is not None:
        table = embed_cohort(bags, model.prototypes, model.method.name, model.method.options, work=work)
        with torch.no_grad():
            blocks = [
                model.network(model.scaler(torch.from_numpy(np.array(table.vectors[i : i + 64]))))
                for i in range(0, len(table.samples), 64)
            ]
        return table.samples, model.task.predict(torch.cat(blocks)), dict(table.failures)
    samples, logits, failures = [], [], {}
    for bag in work.track(bags, "predicting", len(bags)):
        try:
            check_bag(model, bag)
            source = BagSource([bag], {"none": torch.zeros(1)}, LoadSettings().for_evaluation())
            logits.append(predict_logits(model.network, source, TrainSettings())[0])
            samples.append(bag.sample)
        except InputError as error:
            failures[bag.sample] = str(error)
    if not samples:
        raise InputError(f"None of the {len(bags)} samples could be predicted. {next(iter(failures.values()), '')}")
    return samples, model.task.predict(torch.cat(logits)), failures
