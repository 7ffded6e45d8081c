"""An encoder, its input, and the registry of encoders."""

import copy
import logging
import os
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from panther.errors import InputError
from panther.machine import cores
from panther.registry import Registry
from panther.store import hash_of

logger = logging.getLogger(__name__)
_COMPILING = threading.Lock()

PER_CORE = 2  # patches that a core encodes at once: what fits its caches
# patches times parameters: 200,000 patches of a ViT-L, 55,000 of a ViT-g (benchmarks/encode.py --device cuda)
WORTH_COMPILING = 6e13
COMPILED = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "panther" / "compiled"
RESAMPLING = {"bicubic": Image.Resampling.BICUBIC, "bilinear": Image.Resampling.BILINEAR}
IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}

Tensors = Mapping[str, Tensor]
# published weights, expected ones (perhaps on the meta device) -> published weights, renamed
Clean = Callable[[Tensors, Tensors], dict[str, Tensor]]


@dataclass(frozen=True)
class EncoderInfo:
    """Facts about an encoder."""

    name: str
    dim: int  # numbers per patch
    size: int  # pixels a side of its input
    mpp: float | None  # resolution it was made for, None: any (natural images)
    mean: tuple[float, float, float]  # of the normalisation, for pixels in 0 to 1
    std: tuple[float, float, float]
    licence: str
    gated: str | None = None  # page that grants access to the weights
    hub: str | None = None  # repository on the Hugging Face hub
    page: str | None = None  # page of the weights, if they are not on the hub
    resize: int | None = None  # the patch is resized to this side before the centre of `size` is cut out; None: `size`
    interpolation: str = "bicubic"

    def public(self) -> dict[str, Any]:
        """Facts for a table or JSON."""
        return {field.name: getattr(self, field.name) for field in fields(EncoderInfo)}

    def transform(self) -> str:
        """Digest of how pixels become the network's input."""
        return hash_of([self.size, self.resize or self.size, self.interpolation, self.mean, self.std])


@dataclass(frozen=True)
class EncoderEntry(EncoderInfo):
    """Metadata of a registered encoder: its facts, and how its published weights are renamed."""

    clean: Clean | None = None
    drop: tuple[str, ...] = ()  # weights of these prefixes are not needed
    under: str = ""  # prefix of the network's names that the published ones lack
    file: Callable[[], str] | None = None  # weights that come with a package
    package: str = ""


# the value builds the architecture without weights (also on the meta device): images (B, 3, size, size) -> (B, dim)
encoders: Registry[Callable[[], nn.Module], EncoderEntry] = Registry("encoder", EncoderEntry)


@dataclass(frozen=True)
class Preprocess:
    """The shorter side is resized to ``resize``, then the centre of ``size`` is cut out: Resize, CenterCrop of model cards."""

    size: int
    resize: int
    interpolation: str = "bicubic"

    def __call__(self, pixels: np.ndarray) -> np.ndarray:
        """Pixels (h, w, 3) uint8 -> (size, size, 3); Pillow averages when it makes an image smaller."""
        height, width = pixels.shape[:2]
        short = min(height, width)
        if short != self.resize:
            width, height = (max(round(side * self.resize / short), self.resize) for side in (width, height))
            pixels = np.asarray(Image.fromarray(pixels).resize((width, height), RESAMPLING[self.interpolation]))
        top, left = (height - self.size) // 2, (width - self.size) // 2
        return pixels[top : top + self.size, left : left + self.size]


@dataclass(frozen=True)
class Encoder:
    """A network with its weights, on its device."""

    about: EncoderInfo
    model: nn.Module
    weights: str  # fingerprint of the weights
    device: torch.device
    precision: str = (
        "float32"  # type of the weights: float32, bfloat16, float16, or float8 (of products; else bfloat16)
    )
    falls_back: bool = False  # bfloat16 is used where float16 overflows
    compiled: Callable[[Tensor], Tensor] | None = None  # the network for batches of `batch` patches
    batch: int = 0
    reference: "Encoder | None" = None  # the same in float16, which features of float8 are compared with

    def public(self) -> dict[str, str]:
        """Attributes of a file of its features."""
        precision = self.precision if self.compiled is None else f"{self.precision} compiled"
        transform = self.about.transform()
        return {"encoder": self.about.name, "weights": self.weights, "transform": transform, "precision": precision}

    def in_bfloat16(self) -> "Encoder":
        """The same network with the range of float32, an eighth of float16's digits."""
        model = copy.deepcopy(self.model).to(torch.bfloat16)
        return replace(self, model=model, precision="bfloat16", falls_back=False, compiled=None)

    def compile(self, batch: int) -> "Encoder":
        """The same network compiled for batches of this size; unchanged where compiling fails (no C compiler, for example)."""
        with suppress(OSError):  # in the temporary folder a restart of the machine would lose what was compiled
            COMPILED.mkdir(parents=True, exist_ok=True)
            os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(COMPILED))
        network = torch.compile(self.model, dynamic=False)

        def one_at_a_time(x: Tensor) -> Tensor:
            with _COMPILING:  # torch fails where one thread calls a compiled network while another one compiles
                return network(x)

        faster = replace(self, compiled=one_at_a_time, batch=batch)
        try:
            faster(np.zeros((batch, self.about.size, self.about.size, 3), np.uint8))
        except Exception as error:  # the network works without the compiler
            logger.info("The encoder is not compiled: %s", error)
            return self
        return faster

    def pays_to_compile(self, patches: int) -> bool:
        """Whether compiling saves more time than it takes: 9 to 26 s on a GPU, 2 to 6 s from torch's cache; float8 is slow without."""
        if self.compiled is not None or self.device.type != "cuda" or self.precision == "float32":
            return False
        return (
            self.precision == "float8" or patches * sum(p.numel() for p in self.model.parameters()) >= WORTH_COMPILING
        )

    @torch.inference_mode()
    def __call__(self, patches: np.ndarray | Tensor) -> Tensor:
        """Features (B, dim), float32 on the CPU, of patches (B, size, size, 3) uint8."""
        return self.start(patches)()

    @torch.inference_mode()
    def start(self, patches: np.ndarray | Tensor) -> Callable[[], Tensor]:
        """Begin to encode, and return a function that waits for the features; a GPU copies the next patches meanwhile."""
        pixels = _copied(torch.as_tensor(patches), self.device)
        if self.device.type == "cpu":
            # a few patches on every core: cores that share one batch wait for each other after every layer
            features = torch.cat(list(_threads(os.getpid()).map(self._encode, pixels.split(PER_CORE))))
        else:
            features = self._encode(pixels)
        if features.shape != (len(pixels), self.about.dim):
            shape = f"{tuple(features.shape)}, expected ({len(pixels)}, {self.about.dim})"
            raise InputError(f"encoder {self.about.name!r}: found features of shape {shape}")
        return fetch(features)

    @torch.inference_mode()
    def _encode(self, pixels: Tensor) -> Tensor:
        dtype = torch.bfloat16 if self.precision == "float8" else getattr(torch, self.precision)
        count, network = len(pixels), cast(Callable[[Tensor], Tensor], self.model)
        if self.compiled is not None and count <= self.batch:
            network = self.compiled
            # the last batch of a slide is filled up: another shape, or layout in memory, would be compiled again
            pixels = torch.cat([pixels, pixels[:1].expand(self.batch - count, -1, -1, -1)])
        features: Tensor = network(normalise(pixels, self.about.mean, self.about.std).to(dtype))
        return features[:count]


def fetch(features: Tensor) -> Callable[[], Tensor]:
    """Begin to copy features (B, dim) to the CPU, before the next batch is encoded, and return a function that waits for them."""
    if features.device.type != "cuda":
        return lambda: features.float().cpu()
    rows = torch.empty(features.shape, pin_memory=True).copy_(features.float(), non_blocking=True)
    copied = torch.cuda.Event()
    copied.record(torch.cuda.current_stream(features.device))

    def wait() -> Tensor:
        copied.synchronize()
        return rows

    return wait


def _copied(pixels: Tensor, device: torch.device) -> Tensor:
    """Pixels on the device, copied while it computes."""
    if device.type != "cuda" or pixels.is_cuda:
        return pixels.to(device, non_blocking=True)
    copying, computing = _copy_stream(device), torch.cuda.current_stream(device)
    with torch.cuda.stream(copying):
        copy = pixels.to(device, non_blocking=True)
    computing.wait_stream(copying)
    copy.record_stream(computing)
    return copy


@cache
def _copy_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)


def normalise(pixels: Tensor, mean: tuple[float, ...], std: tuple[float, ...]) -> Tensor:
    r"""Pixels (B, H, W, 3) uint8 to the network's input (B, 3, H, W), in channels-last memory.

    .. math:: x = (p / 255 - \text{mean}) / \text{std}
    """
    scale = torch.tensor([1 / (255 * s) for s in std], device=pixels.device)
    shift = torch.tensor([-m / s for m, s in zip(mean, std, strict=True)], device=pixels.device)
    return torch.addcmul(shift, pixels.float(), scale).permute(0, 3, 1, 2)


def about(name: str) -> EncoderInfo:
    """Metadata of a registered encoder."""
    return encoders.entry(name).metadata


@cache
def _threads(process: int) -> ThreadPoolExecutor:
    """One thread per core for each process; new threads for every batch would allocate their memory again."""
    return ThreadPoolExecutor(cores(), "encoder", initializer=torch.set_num_threads, initargs=(1,))
