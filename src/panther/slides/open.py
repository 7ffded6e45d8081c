"""`panther.open_slide`: errors name its own parameters."""

from pathlib import Path

from panther.errors import InputError
from panther.slides import slide
from panther.slides.resolution import OVERRIDE
from panther.slides.slide import Slide


def open_slide(path: Path | str, mpp: float | None = None) -> Slide:
    """Open a slide by trying the readers in turn.

    Parameters
    ----------
    path : path
        Slide file of any scanner, a TIFF or a plain image, or a folder of DICOM files, which is one slide.
    mpp : float, optional
        Micrometres per pixel at level 0, where the file does not say it or is wrong.

    Returns
    -------
    Slide
        Sizes, levels, a resolution that was checked, and `read_region`.

    Examples
    --------
    >>> import numpy as np, panther
    >>> from PIL import Image
    >>> Image.fromarray(np.full((300, 400, 3), 240, np.uint8)).save("slide.png")
    >>> panther.open_slide("slide.png", mpp=0.5).dimensions
    (400, 300)
    """
    try:
        return slide.open_slide(path, mpp)
    except InputError as error:
        raise InputError(str(error).replace(OVERRIDE, "give the true value, e.g. `mpp=0.25`")) from error
