"""PNG files whose bytes are the same on every machine.

Compression libraries differ between machines, and their output with them. Runs of equal bytes under
the fixed code of DEFLATE [RFC 1951, section 3.2.6] are enough for drawings, and need no library.
"""

from __future__ import annotations

import functools
import struct
import zlib

import numpy as np
from numpy.typing import NDArray

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_LONGEST = 258  # bytes that one copy can make
_SHORTEST = 3
# Length codes 257 to 285: the first length of each and its number of extra bits.
_EXTRA = [0] * 8 + [bits for bits in range(1, 6) for _ in range(4)] + [0]


def encode_png(pixels: NDArray[np.uint8], palette: list[tuple[int, int, int]]) -> bytes:
    """An indexed image: pixels (height, width) are positions in the palette."""
    height, width = pixels.shape
    above = np.vstack([np.zeros((1, width), np.uint8), pixels[:-1]])
    filtered = np.empty((height, width + 1), np.uint8)
    filtered[:, 0] = 2  # each row as its difference from the one above
    filtered[:, 1:] = pixels - above
    colours = bytes(value for colour in palette for value in colour)
    return b"".join(
        [
            _SIGNATURE,
            png_header(width, height),
            _chunk(b"PLTE", colours),
            _chunk(b"IDAT", _compress(filtered.ravel())),
            _chunk(b"IEND", b""),
        ]
    )


def png_header(width: int, height: int) -> bytes:
    """The chunk that says how large an indexed image is."""
    return _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0))


def only_header(width: int, height: int) -> bytes:
    """A file that claims a size and has no pixels."""
    empty = _chunk(b"PLTE", b"\x00\x00\x00") + _chunk(b"IDAT", b"") + _chunk(b"IEND", b"")
    return _SIGNATURE + png_header(width, height) + empty


def _chunk(kind: bytes, content: bytes) -> bytes:
    check = zlib.crc32(kind + content)
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", check)


def _compress(data: NDArray[np.uint8]) -> bytes:
    """One block with the fixed code; a run is its first byte and copies from one byte back."""
    starts = np.flatnonzero(np.concatenate([[True], data[1:] != data[:-1]]))
    lengths = np.diff(np.concatenate([starts, [len(data)]])) - 1  # besides the first byte
    whole, rest = lengths // _LONGEST, lengths % _LONGEST
    copied = rest >= _SHORTEST
    tokens = 1 + whole + np.where(copied, 1, rest)
    run = np.repeat(np.arange(len(starts)), tokens)
    place = np.arange(len(run)) - np.repeat(np.cumsum(tokens) - tokens, tokens)
    symbol = data[starts][run].astype(np.int64)  # a literal, unless it is a copy
    long = (place >= 1) & (place <= whole[run])
    last = (place > whole[run]) & copied[run]
    symbol[long] = 256 + _LONGEST
    symbol[last] = 256 + rest[run][last]
    codes, sizes = _fixed_code()
    header, end = (3, 3), (0, 7)  # last block, fixed code; and the end of the block
    values = np.concatenate([[header[0]], codes[symbol], [end[0]]])
    bits = np.concatenate([[header[1]], sizes[symbol], [end[1]]])
    within = np.arange(bits.sum()) - np.repeat(np.cumsum(bits) - bits, bits)
    stream = (np.repeat(values, bits) >> within) & 1
    packed = np.packbits(stream.astype(np.uint8), bitorder="little").tobytes()
    return b"\x78\x01" + packed + struct.pack(">I", zlib.adler32(data.tobytes()))


@functools.cache
def _fixed_code() -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Bits, first one lowest, and their number: of a literal v at v, of a copy of l bytes from one
    byte back at 256 + l."""
    codes, sizes = np.zeros(256 + _LONGEST + 1, np.int64), np.zeros(256 + _LONGEST + 1, np.int64)
    for literal in range(256):
        codes[literal], sizes[literal] = _huffman(literal)
    length = _SHORTEST
    for number, extra in enumerate(_EXTRA):
        if number == len(_EXTRA) - 1:
            length = _LONGEST  # has a code of its own
        code, size = _huffman(257 + number)
        for more in range(1 << extra):
            if length + more <= _LONGEST:
                codes[256 + length + more] = code | more << size
                sizes[256 + length + more] = size + extra + 5  # the distance one is five zeros
        length += 1 << extra
    return codes, sizes


def _huffman(symbol: int) -> tuple[int, int]:
    """Code and size of a symbol in the fixed code, first bit lowest."""
    if symbol < 144:
        code, size = 0x30 + symbol, 8
    elif symbol < 256:
        code, size = 0x190 + symbol - 144, 9
    elif symbol < 280:
        code, size = symbol - 256, 7
    else:
        code, size = 0xC0 + symbol - 280, 8
    return int(f"{code:0{size}b}"[::-1], 2), size
