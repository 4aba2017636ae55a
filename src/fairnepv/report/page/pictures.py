"""Thumbnails: pictures of users, decoded and encoded anew, so that nothing else of a file gets into
a page, each below a cap on its pixels and all of them below one on their bytes."""

from __future__ import annotations

import base64
import io
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

_SIDE = 144  # pixels of a thumbnail, twice what it is shown at on the usual screen
_LARGEST = 64_000_000  # pixels of a picture that is decoded
_QUALITY = 78
_AROUND = 16  # letters that an address takes besides its own
_FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF")  # of Pillow's decoders; none runs code


def thumbnails(
    pictures: Iterable[tuple[int, Any]], budget: int
) -> tuple[dict[int, str], list[int], int]:
    """Addresses of thumbnails by item, the items whose picture cannot be read, and how many were
    left out, as all addresses together may have so many letters."""
    made: dict[int, str] = {}
    broken: list[int] = []
    left_out = 0
    for item, picture in pictures:
        if budget <= 0:
            left_out += 1
            continue
        address = thumbnail(picture)
        if address is None:
            broken.append(item)
            continue
        budget -= len(address) + _AROUND
        if budget > 0:
            made[item] = address
        else:
            left_out += 1
    return made, broken, left_out


def thumbnail(picture: Any) -> str | None:
    """A data address of what Pillow makes of bytes, a path, an array or an image; None of what it
    cannot read, or of a picture with too many pixels."""
    from PIL import Image, ImageOps

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of damaged metadata, which is not kept
            image = _opened(picture)
            if image.width * image.height > _LARGEST:
                return None
            if image.format == "JPEG":
                image.draft("RGB", (_SIDE, _SIDE))  # decodes no more than is needed
            image.thumbnail((_SIDE, _SIDE), Image.Resampling.LANCZOS)
            return _encoded(ImageOps.exif_transpose(image))
    except (OSError, ValueError, TypeError, SyntaxError, OverflowError, MemoryError):
        return None
    except Image.DecompressionBombError:
        return None


def _opened(picture: Any) -> Any:
    from PIL import Image

    if isinstance(picture, Mapping):
        picture = picture.get("bytes")
    if isinstance(picture, Image.Image):
        return picture.copy()
    if isinstance(picture, np.ndarray):
        return Image.fromarray(picture)
    if isinstance(picture, bytes | bytearray | memoryview):
        picture = io.BytesIO(bytes(picture))
    elif not isinstance(picture, str | Path):
        raise TypeError(f"{type(picture).__name__} is no picture")
    return Image.open(picture, formats=_FORMATS)


def _encoded(image: Any) -> str:
    """The pixels alone: a new image has no metadata of the old one."""
    from PIL import Image, features

    clear = image.has_transparency_data
    plain = image.convert("RGBA" if clear else "RGB")
    kept = Image.new(plain.mode, plain.size)
    kept.paste(plain)
    buffer = io.BytesIO()
    if features.check("webp"):
        kind = "webp"
        kept.save(buffer, "WEBP", quality=_QUALITY, method=4)
    else:
        kind = "png" if clear else "jpeg"
        kept.save(buffer, kind.upper(), **({} if clear else {"quality": _QUALITY}))
    return f"data:image/{kind};base64,{base64.b64encode(buffer.getvalue()).decode()}"
