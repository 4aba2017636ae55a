"""Pictures as they came -> RGB, bounded: what a header promises is checked before any pixel is
decoded, and only formats that Pillow decodes itself are opened."""

from __future__ import annotations

import warnings
from io import BytesIO
from typing import TYPE_CHECKING

from fairnepv.errors import InputError

if TYPE_CHECKING:
    from PIL import Image

FORMATS = ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP")
ENDINGS = (".png", ".jpg", ".jpeg", ".gif", ".bmp", ".tif", ".tiff", ".webp")
MOST_PIXELS = 40_000_000  # 160 MB once they are decoded
LEAST_SIDE = 16  # pixels; below there is nothing to see
TRANSPARENCY = "on white"


def decode(content: bytes) -> Image.Image:
    """The picture in RGB, what is transparent on white; an `InputError` says what is wrong."""
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of damaged metadata, which nobody here reads
            picture = Image.open(BytesIO(content), formats=FORMATS)
            _check_size(*picture.size)
            picture.load()
            return _on_white(picture)
    except InputError:
        raise
    except Image.DecompressionBombError as error:
        raise InputError(f"it has more than {MOST_PIXELS:,} pixels") from error
    except Exception as error:  # Pillow's decoders raise many kinds on damaged bytes
        raise InputError("it cannot be read as a picture") from error


def fault_of(content: bytes) -> str | None:
    """Why this is no usable picture; None where it is one."""
    try:
        decode(content)
    except InputError as error:
        return str(error)
    return None


def _check_size(width: int, height: int) -> None:
    if min(width, height) < LEAST_SIDE:
        raise InputError(f"it has {width} x {height} pixels, fewer than {LEAST_SIDE} on a side")
    if width * height > MOST_PIXELS:
        raise InputError(f"it has {width:,} x {height:,} pixels, more than {MOST_PIXELS:,} in all")


def _on_white(picture: Image.Image) -> Image.Image:
    from PIL import Image

    if picture.mode.startswith("I"):  # 16 bits of grey, which Pillow would clip to white
        picture = picture.convert("I").point(lambda value: value * (1 / 256)).convert("L")
    if not picture.has_transparency_data:
        return picture.convert("RGB")
    picture = picture.convert("RGBA")
    white = Image.new("RGBA", picture.size, "white")
    return Image.alpha_composite(white, picture).convert("RGB")
