"""Pictures as they came -> RGB, bounded: what a header promises is checked before any pixel is
decoded, and only formats that Pillow decodes itself are opened."""

from __future__ import annotations

import hashlib
import warnings
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING

from fairnepv.errors import InputError

if TYPE_CHECKING:
    from PIL import Image

FORMATS = ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP")
ENDINGS = (".png", ".jpg", ".jpeg", ".gif", ".bmp", ".tif", ".tiff", ".webp")
MOST_PIXELS = 40_000_000  # 160 MB once they are decoded
MOST_BYTES = 64 << 20  # as it is stored
LEAST_SIDE = 16  # pixels; below there is nothing to see
TRANSPARENCY = "on white"
RULE = (
    f"{', '.join(FORMATS)} of at least {LEAST_SIDE} x {LEAST_SIDE} and at most {MOST_PIXELS:,} "
    f"pixels and {MOST_BYTES >> 20} MiB that decode whole"
)


@dataclass(frozen=True)
class Picture:
    """What is known of a picture that can be used."""

    image_sha256: str
    width: int
    height: int
    pixels_sha256: str | None  # where it was asked for


def check(content: bytes, *, pixels: bool = False) -> Picture | str:
    """What the picture is, or why it cannot be used."""
    try:
        picture = _opened(content)
    except InputError as error:
        return str(error)
    seen = _pixels_sha256(picture) if pixels else None
    return Picture(hashlib.sha256(content).hexdigest(), *picture.size, seen)


def pixels_sha256(content: bytes) -> str:
    """SHA-256 of size and pixels, which are the same whoever compressed the picture."""
    return _pixels_sha256(_opened(content))


def _pixels_sha256(picture: Image.Image) -> str:
    found = hashlib.sha256("{} x {} RGBA\n".format(*picture.size).encode())
    found.update(picture.convert("RGBA").tobytes())
    return found.hexdigest()


def decode(content: bytes) -> Image.Image:
    """The picture in RGB, what is transparent on white; an `InputError` says what is wrong."""
    return _on_white(_opened(content))


def _opened(content: bytes) -> Image.Image:
    """With its pixels."""
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of damaged metadata, which nobody here reads
            picture = Image.open(BytesIO(content), formats=FORMATS)
            _check_size(*picture.size)
            picture.load()
            return picture
    except InputError:
        raise
    except Image.DecompressionBombError as error:
        raise InputError(f"it has more than {MOST_PIXELS:,} pixels") from error
    except Exception as error:  # Pillow's decoders raise many kinds on damaged bytes
        raise InputError(f"it cannot be read as a picture ({_said(error)})") from error


def _said(error: Exception) -> str:
    """Some messages hold the address of an object, and no two runs would write the same."""
    said = " ".join(str(error).split())
    return said[:100] if said and " at 0x" not in said else type(error).__name__


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
