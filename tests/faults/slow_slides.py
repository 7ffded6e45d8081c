"""Slides that take their time: an encoder that waits, so that a run can be met in the middle of its work."""

import os
from pathlib import Path
from typing import Any

from faults.lab import SOURCE, Command, Lab
from slides.phantoms import tissue_slide, write_pyramid

ENCODER = """
import os, time, torch

class Colours(torch.nn.Module):
    size = 32

    def forward(self, images):
        time.sleep(float(os.environ.get("PAUSE", "0.2")))
        return torch.nn.functional.adaptive_avg_pool2d(images, 2).flatten(1)
"""
SLIDES = ("slides", "slides", "--encoder", "slowly:Colours", "--patch-size", 64, "--mpp", 4, "--batch", 4, "-j", 1)
SLIDES += ("--device", "cpu")


def write_slow_slides(folder: Path, count: int = 4) -> None:
    """Put `slides` and their encoder, `slowly.py`, into a folder."""
    (folder / "slides").mkdir(parents=True)
    image, _ = tissue_slide()
    for number in range(count):
        write_pyramid(folder / "slides" / f"S{number}.tif", image[:, : 900 - 20 * number], 4.0)
    (folder / "slowly.py").write_text(ENCODER)


def path_to_encoder(folder: Path) -> dict[str, str]:
    """Environment in which the package and the encoder of that folder are found."""
    return {"PYTHONPATH": f"{SOURCE}{os.pathsep}{folder}"}


def start_slides(lab: Lab, job: str, *words: object, env: dict[str, str] | None = None, **options: Any) -> Command:
    """Start `panther slides` over them."""
    environment = {**path_to_encoder(lab.folder), **(env or {})}
    return lab.start(*SLIDES, "-o", job, *words, env=environment, **options)


def features(lab: Lab, job: str, slides: int = 4) -> dict[str, bytes]:
    """Bytes of all features and patches of a job."""
    actual = {path.name: path.read_bytes() for path in (lab.folder / job).rglob("*.h5")}
    assert len(actual) == 2 * slides
    return actual
