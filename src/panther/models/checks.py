"""Names and settings of a study, tried before anything runs."""

import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any, get_type_hints

import numpy as np
import torch
from pydantic import TypeAdapter, ValidationError

from panther.aggregators import aggregators, build
from panther.cohort.targets import Classes, Kind, Labels, Survival, Target, Values
from panther.errors import InputError, suggestion
from panther.mil import build as build_network
from panther.mil import networks
from panther.mixture import STARTING_VARIANCES
from panther.models.blocks import CONCAT, REDUCED, check_reduced
from panther.models.heads import PAPER, PROBE, build_head, heads
from panther.models.scaling import build_scaler, scalers
from panther.models.settings import TrainSettings, preset
from panther.models.tasks import fit_task, tasks
from panther.prototypes import KMeansSettings
from panther.types import Prototypes

STRUCTURED = ("structured", *PAPER)  # heads that need one token per prototype
# A trial needs something to be tried on; no result depends on it.
_PROTOTYPES = Prototypes(torch.eye(2, 3), torch.ones(3), surprise=torch.tensor([[1.0, 2.0]] * len(STARTING_VARIANCES)))
_TARGETS: dict[Kind, Target] = {
    "classification": Classes(("a", "b"), np.array([0, 1] * 4)),
    "survival": Survival(np.arange(1.0, 65.0), np.ones(64, bool)),
    "regression": Values(np.arange(8.0)),
    "labels": Labels(("a", "b"), np.array([[0.0, 1.0], [1.0, 0.0]] * 4)),
}


def method_names() -> list[str]:
    """Every method that can be trained: unsupervised embeddings, then networks."""
    return [*aggregators.names(), *REDUCED, *networks.names()]


def head_names() -> list[str]:
    """Every head for embeddings."""
    return [PROBE, *heads.names()]


def loss_names(kind: Kind | None = None) -> list[str]:
    """Losses for a kind of target, or all."""
    return [entry.name for entry in tasks if kind is None or entry.metadata.target is type(_TARGETS[kind])]


def check_method(name: str, options: Mapping[str, Any]) -> None:
    """Refuse an unknown method, and settings that it does not take."""
    if name == CONCAT:
        _check_known("setting of concat", set(options), ("of",))
        return
    _check_known("method", [name], method_names())
    if name in REDUCED:
        check_reduced(name, options)
    elif name in networks:
        _try(lambda: build_network(name, 3, 2, _PROTOTYPES, options))
    else:
        _try(lambda: build(name, _PROTOTYPES, options))


def check_head(name: str, options: Mapping[str, Any]) -> None:
    """Refuse an unknown head, and settings that it does not take."""
    _check_known("head", [name], head_names())
    if name == PROBE and options:
        raise InputError(f"The head {name!r} has no setting {min(options)!r}")
    if name != PROBE:
        _try(lambda: build_head(name, (2, 3), 2, options))


def check_loss(name: str, options: Mapping[str, Any], kind: Kind) -> None:
    """Refuse an unknown loss, one for another kind of target, and settings that it does not take."""
    # one weight per class: checked once the classes are known
    known = {k: v for k, v in options.items() if not (k == "class_weights" and isinstance(v, (list, tuple)))}
    _try(lambda: fit_task(name, _TARGETS[kind], **known))


def check_scaling(name: str, options: Mapping[str, Any]) -> None:
    """Refuse an unknown scaling, and settings that it does not take."""
    _check_known("scaling", [name], scalers.names())
    _try(lambda: build_scaler(name, options))


def check_training(settings: Mapping[str, Any], base: str) -> None:
    """Refuse settings of training that do not exist or cannot be, over a preset's."""
    _check_settings(settings, TrainSettings, asdict(preset(base).train))


def check_prototypes(settings: Mapping[str, Any], counts: Sequence[int]) -> None:
    """Refuse settings of K-means that do not exist or cannot be."""
    if "n_prototypes" in settings:
        raise InputError("n_prototypes: expected as a key of the study, n_prototypes: [16]")
    for count in counts:
        _check_settings(settings, KMeansSettings, {"n_prototypes": count})


def refuse_repeated(values: Sequence[Any]) -> None:
    """Refuse what stands twice in a list."""
    for position, value in enumerate(values):
        if value in values[:position]:
            raise InputError(f"{value!r} stands twice, expected once")


def refuse_alike(settings: Sequence[str], titles: Sequence[str]) -> None:
    """Refuse entries with the same settings, and different ones under the same title."""
    for position, title in enumerate(titles):
        if settings[position] in settings[:position]:
            raise InputError(f"{title!r} stands twice with the same settings, expected once")
        if title in titles[:position]:
            raise InputError(f"two with different settings are called {title!r}; give each a label")


def _check_known(kind: str, names: Collection[str], known: Collection[str]) -> None:
    for name in names:
        if name not in known:
            raise InputError(f"there is no {kind} {name!r}; {suggestion(name, known)}")


def _check_settings(settings: Mapping[str, Any], kind: type, base: Mapping[str, Any]) -> None:
    _check_known("setting", settings, [f.name for f in fields(kind)])
    for name, value in settings.items():
        try:
            TypeAdapter(get_type_hints(kind)[name]).validate_python(value, strict=True)
        except ValidationError as error:
            problem = error.errors()[0]["msg"].replace("Input should be", "expected")
            raise InputError(f"{name}: {problem}, found {value!r}") from error
    kind(**{**base, **settings})


def _try(make: Callable[[], Any]) -> None:
    """Make it without its memory: a width of a billion is no reason to wait."""
    with warnings.catch_warnings(), torch.device("meta"):
        warnings.simplefilter("ignore")
        try:
            make()
        except InputError:
            raise
        except Exception as error:  # of a library; the setting is wrong all the same
            raise InputError(f"a setting cannot be used: {' '.join(str(error).split())}") from error
