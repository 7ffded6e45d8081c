"""Colour: Beer and Lambert's law for two stains, and differences between laboratories."""

from dataclasses import dataclass, replace

import numpy as np

from panther_demo.layout import strips

HAEMATOXYLIN = np.array([0.55, 0.74, 0.34])  # optical density of red, green, blue at unit concentration
EOSIN = np.array([0.12, 0.86, 0.42])


@dataclass(frozen=True)
class Stain:
    """One laboratory's (or one slide's) stain and scanner."""

    haematoxylin: np.ndarray  # (3,), unit length
    eosin: np.ndarray  # (3,), unit length
    strength: tuple[float, float]  # concentration of haematoxylin and of eosin, 1 is usual
    white: np.ndarray  # (3,), colour of empty glass, 0 to 255
    noise: float  # of the camera, in grey levels


def usual_stain() -> Stain:
    """Stain without a shift between laboratories."""
    return Stain(_unit(HAEMATOXYLIN), _unit(EOSIN), (1.0, 1.0), np.full(3, 243.0), 1.7)


def site_stain(rng: np.random.Generator, spread: float = 1.0) -> Stain:
    """Stain of a laboratory: hues differ by a few degrees, concentrations by some ten per cent, lamps by a few grey levels.

    A ``spread`` of 2.5 is a strong shift: visibly different hues, concentrations up to 1.7 times as high.
    """
    return Stain(
        _unit(HAEMATOXYLIN + rng.normal(0, 0.04, 3) * spread),
        _unit(EOSIN + rng.normal(0, 0.04, 3) * spread),
        (float(np.exp(rng.uniform(-0.2, 0.2) * spread)), float(np.exp(rng.uniform(-0.22, 0.22) * spread))),
        np.clip(rng.normal(243, 3) + rng.normal(0, 1, 3), 234, 250),
        float(rng.uniform(1.2, 2.2)),
    )


def slide_stain(rng: np.random.Generator, site: Stain) -> Stain:
    """Stain of one slide of a laboratory: batches differ less than laboratories."""
    factor = np.exp(rng.normal(0, 0.05, 2))
    strength = (site.strength[0] * float(factor[0]), site.strength[1] * float(factor[1]))
    haematoxylin, eosin = (_unit(vector + rng.normal(0, 0.01, 3)) for vector in (site.haematoxylin, site.eosin))
    return replace(site, haematoxylin=haematoxylin, eosin=eosin, strength=strength)


def transmitted(haematoxylin: np.ndarray, eosin: np.ndarray, stain: Stain, rng: np.random.Generator) -> np.ndarray:
    r"""Picture (h, w, 3), uint8, of concentrations (h, w).

    .. math:: I_k = W_k \, 10^{-(c_H v_{Hk} + c_E v_{Ek})}
    """
    out = np.empty((*haematoxylin.shape, 3), np.uint8)
    log10 = np.float32(np.log(10))
    of_h = (stain.haematoxylin * stain.strength[0] * -log10).astype(np.float32)
    of_e = (stain.eosin * stain.strength[1] * -log10).astype(np.float32)
    for rows in strips(out.shape[:2]):
        h, e = haematoxylin[rows], eosin[rows]
        grain = rng.standard_normal(h.shape, np.float32) * np.float32(stain.noise)
        for k in range(3):
            light = h * of_h[k]
            light += e * of_e[k]
            np.exp(light, out=light)
            light *= np.float32(stain.white[k])
            light += grain
            out[rows, :, k] = np.clip(light, 0, 255, out=light)
    return out


def concentrations(picture: np.ndarray, stain: Stain) -> tuple[np.ndarray, np.ndarray]:
    """Haematoxylin and eosin (h, w) of a picture, by least squares: the inverse of `transmitted`."""
    density = -np.log10(np.maximum(picture, 1) / stain.white)  # (h, w, 3)
    vectors = np.stack([stain.haematoxylin * stain.strength[0], stain.eosin * stain.strength[1]])
    amounts = np.maximum(density @ np.linalg.pinv(vectors), 0).astype(np.float32)
    return amounts[..., 0], amounts[..., 1]


def _unit(vector: np.ndarray) -> np.ndarray:
    vector = np.maximum(vector, 0.02)
    return vector / np.linalg.norm(vector)
