"""Supervised multiple-instance networks: from a bag of patches to one vector, learned with the task."""

from panther.mil import abmil, attnmisl, dsmil, ilra, transmil  # noqa: F401 (register)
from panther.mil._base import Network, NetworkInputs, build, networks, revision
from panther.mil.loading import BagSource, LoadSettings
from panther.mil.model import MILModel, NetworkOutputs, build_model, count_parameters

__all__ = [
    "BagSource",
    "LoadSettings",
    "MILModel",
    "Network",
    "NetworkInputs",
    "NetworkOutputs",
    "build",
    "build_model",
    "count_parameters",
    "networks",
    "revision",
]
