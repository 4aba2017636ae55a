"""Small pictures for tests, and some that lie about themselves."""

import io
import struct
import zlib
from typing import Any

import numpy as np
from PIL import Image


def png(seed: int = 0, side: int = 24, mode: str = "RGB") -> bytes:
    channels = {"RGB": 3, "RGBA": 4}[mode]
    pixels = np.random.default_rng(seed).integers(0, 256, (side, side, channels), np.uint8)
    return stored(Image.fromarray(pixels))


def stored(picture: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, kind, **options)
    return buffer.getvalue()


def promising(width: int, height: int) -> bytes:
    """A PNG whose header says so, with next to nothing behind it."""

    def chunk(name: bytes, content: bytes) -> bytes:
        checksum = zlib.crc32(name + content)
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", checksum)

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = zlib.compress(bytes(100))
    parts = chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts
