"""Slides made of four tissues, and their prototypes."""

import numpy as np
import torch

import panther

C, D = 4, 6
PROTOTYPES = panther.Prototypes(6 * torch.eye(C, D), torch.ones(D))


def bag(seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    which = rng.choice(C, size=120, p=rng.dirichlet(np.full(C, 0.5)))
    return (6 * np.eye(C, D)[which] + rng.normal(size=(120, D))).astype(np.float32)
