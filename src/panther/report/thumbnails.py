"""Pictures inside the page: small enough to be mailed."""

import base64
import io
from pathlib import Path

from panther.errors import InputError
from panther.report.html import Html, tag

QUALITY = 82


def data_uri(path: Path, longest: int) -> str:
    """The picture, at most ``longest`` pixels a side, on white, as text that a page holds."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as found:
            found.draft("RGB", (longest, longest))  # JPEG: decode at the size that is needed
            image = found.convert("RGBA")
    except (OSError, UnidentifiedImageError, Image.DecompressionBombError) as error:
        raise InputError(f"{path}: the picture cannot be read ({error}); it is left out of the report.") from error
    image.thumbnail((longest, longest))
    page = Image.new("RGB", image.size, "white")
    page.paste(image, mask=image.getchannel("A"))
    buffer = io.BytesIO()
    page.save(buffer, "WEBP", quality=QUALITY, method=4)
    return f"data:image/webp;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def picture(path: Path, alt: str, caption: object, longest: int) -> Html:
    """A figure with its caption."""
    image = tag("img", src=data_uri(path, longest), alt=alt, loading="lazy")
    return tag("figure", image, tag("figcaption", caption) if caption else None, class_="picture")
