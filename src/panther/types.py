"""Values shared by all rooms: small, frozen, shapes in comments."""

import hashlib
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn

from panther.errors import InputError
from panther.patches import PatchSpec as PatchSpec
from panther.patches import Places as Places
from panther.patches import encoder_words, joined_places, places_of, same_encoder
from panther.rows import Alignment, as_centroids, as_coords, as_matrix, as_tensor
from panther.rows import Concatenated as Concatenated
from panther.rows import Projection as Projection
from panther.rows import Ragged as Ragged
from panther.rows import Rows as Rows
from panther.store import HashedRows, hash_of


@dataclass(frozen=True)
class Population:
    """All patches of a slide of which a sample was encoded."""

    total: int
    places: Callable[[], Tensor]  # coordinates (total, 2), in the order of the curve


@dataclass(frozen=True)
class Bag:
    """The patches of one slide (or of all slides of one patient), read lazily.

    Attributes
    ----------
    slide_id : str
        Name of the slide or patient.
    features : array, tensor, or what is read by slices
        Features (N, d), one row per patch.
    places : array, tensor or function, optional
        Upper left corners of the patches (N, 2), or a function that reads them when needed; `coords` has them as an array.
    spec : PatchSpec
        Size and resolution of the patches.
    encoder : str, optional
        Name of the encoder that made the features.
    format, path : str, path
        Reader and file of the bag; "memory" and None without a file.
    allow_mixed_resolution : bool
        Whether its patches may be combined with patches of another resolution.
    slides : tuple of Bag
        Slides of a patient, in the order of the rows.
    checkpoint : str, optional
        Digest of the encoder's weights and transform, if the file records it.
    population : Population, optional
        All patches of the slide, where these are an even sample of them, in the order of the curve.
    """

    slide_id: str
    features: Rows  # (N, d)
    places: Callable[[], Tensor] | None = None
    spec: PatchSpec = field(default_factory=PatchSpec)
    encoder: str | None = None
    format: str = "memory"
    path: Path | None = None
    allow_mixed_resolution: bool = False
    slides: tuple["Bag", ...] = ()
    checkpoint: str | None = None
    population: Population | None = None

    def __post_init__(self) -> None:
        """Convert arrays to tensors; lazily read rows are kept."""
        rows = self.features
        if rows.ndim != 2 if isinstance(rows, Tensor) else not isinstance(getattr(rows, "dtype", None), torch.dtype):
            object.__setattr__(self, "features", as_matrix(f"Bag {self.slide_id}", rows))
        if self.places is not None and not callable(self.places):
            object.__setattr__(self, "places", as_coords(f"Bag {self.slide_id}: coords", self.places, len(self)))

    def __len__(self) -> int:
        return int(self.features.shape[0])

    @property
    def dim(self) -> int:
        """Number of features d."""
        return int(self.features.shape[1])

    @cached_property
    def coords(self) -> np.ndarray | None:
        """Upper left corners of the patches (N, 2), read when first needed; None without coordinates."""
        return None if self.places is None else self.places().numpy()

    @property
    def lengths(self) -> tuple[int, ...]:
        """Number of patches of each slide, in the order of the rows; empty for a single slide."""
        return tuple(n for slide in self.slides for n in slide.lengths or (len(slide),))

    def layout(self) -> Places | None:
        """Positions of the patches, for methods that use their neighbourhood; None without coordinates."""
        if self.slides:
            parts = [slide.layout() for slide in self.slides]
            known = [part for part in parts if part is not None]
            return joined_places(known) if len(known) == len(parts) else None
        if self.coords is None:
            return None
        if self.population is not None:
            raise InputError(
                f"{self.source}: {len(self)} of {self.population.total} patches are encoded (a sample), and neighbours require all"
            )
        return places_of(self.coords, self.spec, self.source)

    @property
    def sample(self) -> str:
        """Name of the sample; with `open`, a bag in memory can replace a reference."""
        return self.slide_id

    def open(self) -> "Bag":
        """Return the bag itself."""
        return self

    @property
    def files(self) -> tuple[Path, ...]:
        """No files: the features in memory may differ from those at `path`."""
        return ()

    @property
    def source(self) -> str:
        """Name of this bag in messages."""
        return self.path.name if self.path else f"slide {self.slide_id}"

    def blocks(self, rows: int) -> Iterator[Tensor]:
        """Features block by block, each (<= rows, d), as stored."""
        for start in range(0, len(self), rows):
            yield self.features[start : start + rows]

    def fingerprint(self) -> str:
        """Hash of the shape, the type and all numbers; reads all features."""
        return HashedRows(self.features).digest()

    def places_fingerprint(self) -> str:
        """Hash of the positions of the patches."""
        slides = [(bag.coords, bag.spec) for bag in self.slides or (self,)]
        specs = [(str(spec), coords is not None) for coords, spec in slides]
        return hash_of(specs, *(coords.tobytes() for coords, _ in slides if coords is not None))


def check_resolution(bag: Bag, expected: PatchSpec, made_of: str) -> None:
    """Refuse patches of another resolution or size than ``expected``, unless the user allows it."""
    if not bag.allow_mixed_resolution and not bag.spec.agrees(expected):
        raise InputError(
            f"{bag.source}: its patches are {bag.spec.words()}, but {made_of} patches {expected.words()}. "
            "Extract the slide at that resolution, or allow it with `allow_mixed_resolution=True`."
        )


@runtime_checkable
class Openable(Protocol):
    """A slide or patient: a bag, or a reference to one that can be sent to another process."""

    @property
    def sample(self) -> str:
        """Name of the slide or patient."""

    @property
    def files(self) -> tuple[Path, ...]:
        """Files of the patches; empty for a bag in memory."""

    def open(self) -> Bag:
        """Patches, read lazily."""


class Mixture(NamedTuple):
    """Gaussian mixture of a slide; a leading batch dimension is allowed."""

    weights: Tensor  # (C,)
    means: Tensor  # (C, d)
    variances: Tensor  # (C, d)


@dataclass(frozen=True)
class SlideEmbedding:
    """Result of an aggregator; a leading batch dimension is allowed."""

    vector: Tensor  # (out_dim,)
    tokens: Tensor | None = None  # (C, t), per-prototype view for structured heads
    assignment: Tensor | None = None  # (N, C), only `with_assignment`
    aux: Mapping[str, Any] = field(default_factory=dict)  # e.g. mass per prototype, log-likelihood per step


@dataclass(frozen=True)
class Prototypes:
    """C centroids of the cohort's training patches, with settings, provenance and diagnostics."""

    centroids: Tensor  # (C, d), in the projected space
    within_variance: Tensor | None = None  # (d,), pooled within-cluster variance
    occupancy: Tensor | None = None  # (C,), training patches per prototype
    projection: Projection = field(default_factory=Projection)
    encoder: str | None = None
    slides: tuple[str, ...] = ()  # training slides the patches were sampled from
    settings: Mapping[str, Any] = field(default_factory=dict)
    diagnostics: Mapping[str, Any] = field(default_factory=dict)
    parents: str = ""  # hash over the training bags' contents
    version: str = ""  # of the package that wrote it
    spec: PatchSpec = field(default_factory=PatchSpec)  # resolution and size of the training patches
    alignment: Alignment | None = None  # centring of slides or sites, before the projection
    surprise: Tensor | None = None  # (3, 2), usual and rare levels of -log p, under each of STARTING_VARIANCES

    def __post_init__(self) -> None:
        """Convert arrays to tensors and check the centroids."""
        object.__setattr__(self, "centroids", as_centroids(self.centroids))
        for name in ("within_variance", "occupancy", "surprise"):
            if (value := getattr(self, name)) is not None:
                object.__setattr__(self, name, as_tensor(name, value, "expected an array of numbers"))

    def __len__(self) -> int:
        return int(self.centroids.shape[0])

    @classmethod
    def from_pretrained(cls, name: Path | str) -> "Prototypes":
        """Prototypes of a folder of `panther share`, or of ORG/NAME on the Hugging Face hub."""
        from panther.storage.prototypes import load_prototypes

        return load_prototypes(name)

    def push_to_hub(self, repository: str, **about: Any) -> str:
        """Upload them with a card to ORG/NAME on the Hugging Face hub; ``about`` as in `panther.share_prototypes`. Returns the address."""
        from panther.verbs.share import share_prototypes

        with tempfile.TemporaryDirectory() as folder:
            title = about.pop("title", repository.rpartition("/")[2])
            shared = share_prototypes(self, Path(folder), title=title, push_to=repository, **about)
            return str(shared.values["repository"])

    @property
    def dim(self) -> int:
        """Dimension of the embedding's statistics (after projection)."""
        return int(self.centroids.shape[1])

    @property
    def dim_in(self) -> int:
        """Expected dimension of features."""
        return self.dim if self.projection.basis is None else int(self.projection.basis.shape[0])

    def content_hash(self) -> str:
        """Hash of all that an embedding depends on."""
        digest = hashlib.blake2b(str(self.projection.normalise).encode(), digest_size=16)
        for tensor in (self.centroids, self.within_variance, self.projection.mean, self.projection.basis):
            digest.update(b"-" if tensor is None else tensor.detach().cpu().float().contiguous().numpy().tobytes())
        digest.update(b"" if self.alignment is None else self.alignment.digest())
        if self.surprise is not None:  # older files keep their hash
            digest.update(self.surprise.cpu().float().contiguous().numpy().tobytes())
        return digest.hexdigest()

    def check(self, bag: Bag) -> None:
        """Refuse a bag of another encoder, dimension or resolution."""
        names = f" (encoder {bag.encoder!r} against {self.encoder!r})" if bag.encoder or self.encoder else ""
        remedy = "Encode the slides with the same encoder, or refit the prototypes."
        if bag.dim != self.dim_in:
            raise InputError(
                f"{bag.source}: features are {bag.dim}-dimensional but the prototypes expect {self.dim_in}{names}. {remedy}"
            )
        if not same_encoder(bag.encoder, self.encoder):
            raise InputError(
                f"{bag.source}: features and prototypes come from different encoders{names}. {remedy} "
                "If they are one under two names, say so with `encoder_name=NAME`."
            )
        check_resolution(bag, self.spec, "the prototypes were fitted on")

    def to_lines(self) -> list[str]:
        """Lines for people; of fitted prototypes."""
        d = self.diagnostics
        rows = [
            f"  C{c:<3} {share:7.2%} of the patches"
            + (f", nearest C{neighbour} at {distance:.4g}" if len(self) > 1 else "")
            for c, (share, neighbour, distance) in enumerate(
                zip(d["occupancy_share"], d["nearest"], d["distance_to_nearest"], strict=True)
            )
        ]
        if self.alignment is not None:
            moved, sites = d["alignment"], d["alignment"].get("sites", {})
            each = ": " + ", ".join(f"{name} ({about['slides']})" for name, about in sites.items()) if sites else ""
            rows.append(
                f"every {self.alignment.kind} is moved to the mean of the {moved['slides']} training slides first{each}"
            )
        return [
            f"{len(self)} prototypes of {self.dim} dimensions from {self.settings['patches']:,} patches of {len(self.slides)} slides",
            *rows,
            f"inertia {d['inertia']:.6g}; restarts differ by {d['restart_spread']:.2%}; effective number {d['effective_number']:.1f} of {len(self)}; "
            f"within-cluster radius {d['within_radius']:.4g}; {len(d['dominated_slides'])} slides dominated by one prototype",
        ]

    def to_json(self) -> dict[str, Any]:
        """The same for programs."""
        return {
            "prototypes": len(self),
            "dim": self.dim,
            "encoder": self.encoder,
            "slides": len(self.slides),
            "settings": dict(self.settings),
            "diagnostics": dict(self.diagnostics),
        }

    def prepared(self, bag: Bag) -> Bag:
        """The bag, checked, with aligned and projected features."""
        self.check(bag)
        features = bag.features if self.alignment is None else self.alignment.view(bag)
        return replace(bag, features=self.projection.view(features))


class Aggregator(nn.Module):
    """Turns a bag into a slide embedding. Settings live here; the mathematics is in free functions."""

    out_dim: int
    needs_places: bool = False  # whether `forward` also takes `places=`, the positions of the patches

    def forward(self, x: Rows, mask: Tensor | None = None, *, with_assignment: bool = False) -> SlideEmbedding:
        """Embed ``x``: (N, d), lazily read or in memory, or (B, N, d) with a mask (B, N) that is True for a real patch."""
        raise NotImplementedError

    def columns(self) -> list[tuple[int, str, int]]:
        """(prototype, statistic, dimension) of each number of the vector, -1 if not applicable."""
        raise NotImplementedError

    def parts(self) -> list[int]:
        """Sizes of the parts of the vector that are scaled separately, from left to right."""
        return [self.out_dim]


@dataclass(frozen=True)
class FeatureSpace:
    """Dimension, encoder and resolution of features, for methods without prototypes."""

    dim: int
    encoder: str | None = None
    spec: PatchSpec = field(default_factory=PatchSpec)  # resolution and size of the patches

    @property
    def dim_in(self) -> int:
        """Expected dimension of features."""
        return self.dim

    def content_hash(self) -> str:
        """Hash of all that an embedding depends on."""
        return hash_of(["features", self.dim])

    def check(self, bag: Bag) -> None:
        """Refuse a bag of another encoder, dimension or resolution."""
        if bag.dim != self.dim or not same_encoder(bag.encoder, self.encoder):
            raise InputError(
                f"{bag.source}: found {bag.dim} features of {encoder_words(bag.encoder)}, expected {self.dim} of "
                f"{encoder_words(self.encoder)} as for the other slides"
            )
        check_resolution(bag, self.spec, "the others are")

    def prepared(self, bag: Bag) -> Bag:
        """The bag, checked."""
        self.check(bag)
        return bag


def space_of(bag: Bag) -> FeatureSpace:
    """Feature space of a bag, which all bags of its cohort should share."""
    return FeatureSpace(bag.dim, bag.encoder, bag.spec)


Basis = Prototypes | FeatureSpace
