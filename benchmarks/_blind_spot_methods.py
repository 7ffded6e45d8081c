"""The methods of blind_spots.py: rows of a study with the product's scaling and probe, and networks trained on bags.

Everybody has the same 120 labelled patients: a probe chooses its penalty inside them, a network learns from three quarters and keeps the epoch
and the rate with the smallest loss on the fourth.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from _blind_spot_worlds import STEP, Cohort
from _mil_claim import BagsOnDevice
from _mil_worlds import Part
from panther.aggregators import build
from panther.cohort.targets import Classes
from panther.mil import build_model
from panther.models.blocks import Block, columns_of
from panther.models.probes import fit_suitable
from panther.models.scaling import fit_scaler
from panther.models.settings import Named, TrainSettings
from panther.models.tasks import fit_task
from panther.models.trainer import fit, predict_logits
from panther.prototypes import KMeansSettings, fit_bags
from panther.prototypes.centre import Sites, add_sites
from panther.types import Bag, Places, Prototypes

C = 16
RATES = (3e-4, 1e-3)
EPOCHS = 40
CLASSES = ("0", "1")


@dataclass(frozen=True)
class Row:
    """A method on embeddings."""

    method: str
    options: Mapping[str, Any] = field(default_factory=dict)
    prototypes: Mapping[str, Any] = field(default_factory=dict)  # settings of K-means
    kinds: tuple[str, ...] = ("space", "needle", "panoramic", "site")  # of questions that it is asked


ROWS = {
    "PANTHER": Row("panther"),
    "PANTHER + space": Row("panther", {"blocks": ["space"]}),
    "PANTHER + tail": Row("panther", {"blocks": ["tail"]}),
    "PANTHER + space + tail": Row("panther", {"blocks": ["space", "tail"]}),
    "DeepSets": Row("deepsets"),
    "ProtoCounts": Row("protocounts"),
    "max": Row("max"),
    "PANTHER, centred by slide": Row("panther", {}, {"centre": "slide"}, ("site",)),
    "PANTHER, centred by site": Row("panther", {}, {"centre": "site"}, ("site",)),
}
NETWORKS = {
    "ABMIL": ("abmil", {"hidden": 256, "attention": 128}),
    "TransMIL": ("transmil", {"hidden": 256, "heads": 8, "landmarks": 128}),
}
NETWORK_KINDS = ("space", "needle", "panoramic")


def bags_of(cohort: Cohort) -> list[Bag]:
    """Slides as the product sees them."""
    return [Bag(f"slide-{number:03d}", slide.x) for number, slide in enumerate(cohort.slides)]


def answers(rows: Mapping[str, Row], cohort: Cohort, seed: int) -> Iterator[tuple[str, np.ndarray]]:
    """Each row's logits of the test patients."""
    bags = bags_of(cohort)
    known: dict[str, Prototypes] = {}
    for name, row in rows.items():
        key = repr(row.prototypes)
        if key not in known:
            known[key] = fitted_prototypes(cohort, bags, row, seed)
        yield name, answer(row, cohort, bags, known[key])


def fitted_prototypes(cohort: Cohort, bags: list[Bag], row: Row, seed: int) -> Prototypes:
    """Prototypes of the training patients; test patients' laboratories are estimated from their own slides, without labels."""
    settings = KMeansSettings(C, seed=seed, **row.prototypes)
    sites = Sites({bag.slide_id: slide.site for bag, slide in zip(bags, cohort.slides, strict=True)})
    found = fit_bags([bags[i] for i in cohort.train], settings, sites=sites).prototypes
    return add_sites(found, [bags[i] for i in cohort.test], sites)[0]


def answer(row: Row, cohort: Cohort, bags: list[Bag], prototypes: Prototypes) -> np.ndarray:
    """Embed, scale and probe as a study does."""
    module = build(row.method, prototypes, row.options)
    vectors = []
    with torch.no_grad():
        for bag, slide in zip(bags, cohort.slides, strict=True):
            where = {"places": Places(slide.coords, STEP, (len(bag),))} if module.needs_places else {}
            vectors.append(module(prototypes.prepared(bag).features[:], **where).vector)
    x = torch.stack(vectors)
    train = cohort.train
    block = Block(Named(name=row.method, options=dict(row.options)), prototypes)
    scaler = fit_scaler(Named(name="share-weighted"), x[train], [block])
    z = scaler(x).numpy()
    probe = fit_suitable(z[train], Classes(CLASSES, cohort.labels[train]), blocks=scaler.blocks(columns_of([block])))
    logits = probe.logits(z[cohort.test])
    return np.asarray(logits[:, 1] - logits[:, 0])


def network_answer(name: str, cohort: Cohort, seed: int, device: str, quick: bool = False) -> np.ndarray:
    """Logits of the rate whose validation loss is smallest."""
    method, options = NETWORKS[name]
    parts = network_parts(cohort)
    task = fit_task("cross-entropy", Classes(CLASSES, parts["train"].labels.numpy()))
    sources = {n: BagsOnDevice.of(p, 8 if n == "train" else 60, device, n == "train") for n, p in parts.items()}
    found = []
    for rate in RATES[:1] if quick else RATES:
        model = build_model(method, cohort.slides[0].x.shape[1], 2, None, options, seed=seed)
        epochs = 2 if quick else EPOCHS
        settings = TrainSettings(epochs, 8, learning_rate=rate, keep="best", seed=seed, device=device)
        trained = fit(model, sources["train"], task, settings, val=sources["val"])
        logits, _ = predict_logits(trained.model, sources["test"], settings)
        found.append((trained.history[trained.epoch]["val_loss"], (logits[:, 1] - logits[:, 0]).numpy()))
    grouped = torch.cat([numbers for _, numbers in sources["test"].groups]).cpu().numpy()  # as batches come: by length
    back = np.empty(len(grouped))
    back[grouped] = min(found, key=lambda one: one[0])[1]
    return back


def network_parts(cohort: Cohort) -> dict[str, Part]:
    """Three quarters of the training patients, the fourth, and the test patients, features of unit variance."""
    cut = len(cohort.train) * 3 // 4
    rows = {"train": cohort.train[:cut], "val": cohort.train[cut:], "test": cohort.test}
    seen = torch.cat([cohort.slides[i].x for i in rows["train"]])
    mean, deviation = seen.mean(0), seen.std()
    labels = torch.as_tensor(cohort.labels)
    nobody = torch.empty(0)
    return {
        name: Part([(cohort.slides[i].x - mean) / deviation for i in own], labels[own], nobody)
        for name, own in rows.items()
    }
