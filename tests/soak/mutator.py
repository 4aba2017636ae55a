"""Files that are damaged or forged at random, by a generator of random numbers and nothing else."""

import io
import re
import zipfile
from collections.abc import Callable

import numpy as np

Rng = np.random.Generator
_BYTES = (0x00, 0x01, 0x7F, 0x80, 0xFE, 0xFF)
_NUMBERS = (-1, 0, 1, 2**15, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**63 - 1, -(2**63))
_DIGITS = (b"-1", b"0", b"1", b"99999999", b"9223372036854775808", b"1e999", b"NaN", b"007")
_TOKENS = (
    *(
        b'"',
        b"{",
        b"}",
        b"[" * 40,
        b"]",
        b",",
        b"\n",
        b"\x00",
        b"\xff\xfe",
        b"\xed\xa0\x80",
        b"null",
    ),
    *(b"-", b"=", b"'''", b"\\ud800", b"<f8", b"|O8", b"True", b"..", b"/", b"%00"),
)


def _place(rng: Rng, content: bytes) -> int:
    """Half of the time near one of the ends, where headers and directories are."""
    size = len(content)
    if size and rng.random() < 0.5:
        near = int(rng.integers(min(size, 256)))
        return near if rng.random() < 0.5 else size - 1 - near
    return int(rng.integers(max(size, 1)))


def _span(rng: Rng, content: bytes) -> tuple[int, int]:
    start = _place(rng, content)
    return start, min(len(content), start + int(2.0 ** rng.uniform(0, 8)))


def flip(rng: Rng, content: bytes) -> bytes:
    at = _place(rng, content)
    return content[:at] + bytes([content[at] ^ (1 << int(rng.integers(8)))]) + content[at + 1 :]


def overwrite(rng: Rng, content: bytes) -> bytes:
    at = _place(rng, content)
    return content[:at] + bytes([_BYTES[rng.integers(len(_BYTES))]]) + content[at + 1 :]


def number(rng: Rng, content: bytes) -> bytes:
    at, width = _place(rng, content), int(rng.choice([2, 4, 8]))
    value = _NUMBERS[rng.integers(len(_NUMBERS))] % (1 << 8 * width)
    return content[:at] + value.to_bytes(width, "little") + content[at + width :]


def cut(rng: Rng, content: bytes) -> bytes:
    return content[: _place(rng, content)]


def extend(rng: Rng, content: bytes) -> bytes:
    return content + rng.bytes(int(2.0 ** rng.uniform(0, 10)))


def drop(rng: Rng, content: bytes) -> bytes:
    start, stop = _span(rng, content)
    return content[:start] + content[stop:]


def repeat(rng: Rng, content: bytes) -> bytes:
    start, stop = _span(rng, content)
    return content[:stop] + content[start:]


def scramble(rng: Rng, content: bytes) -> bytes:
    start, stop = _span(rng, content)
    return content[:start] + rng.bytes(stop - start) + content[stop:]


def digits(rng: Rng, content: bytes) -> bytes:
    runs = list(re.finditer(rb"\d+", content[: 1 << 16]))
    if not runs:
        return token(rng, content)
    run = runs[rng.integers(len(runs))]
    return content[: run.start()] + _DIGITS[rng.integers(len(_DIGITS))] + content[run.end() :]


def token(rng: Rng, content: bytes) -> bytes:
    at = _place(rng, content)
    return content[:at] + _TOKENS[rng.integers(len(_TOKENS))] + content[at:]


def member(rng: Rng, content: bytes) -> bytes:
    """What lies within an archive, whose sums are made to fit; of no archive, the bytes."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            held = {name: archive.read(name) for name in archive.namelist()}
    except Exception:
        held = {}
    if not held:
        return token(rng, content)
    name = sorted(held)[rng.integers(len(held))]
    held[name] = PLAIN[rng.integers(len(PLAIN))](rng, held[name] or b"\0")
    if rng.random() < 0.1:
        held[name + ("" if rng.random() < 0.5 else "\u00e9")] = held.pop(name)
    made = io.BytesIO()
    packed = zipfile.ZIP_DEFLATED if rng.random() < 0.5 else zipfile.ZIP_STORED
    with zipfile.ZipFile(made, "w", packed) as archive:
        for own, inner in held.items():
            archive.writestr(own, inner)
    return made.getvalue()


Mutation = Callable[[Rng, bytes], bytes]
PLAIN: tuple[Mutation, ...] = (
    *(flip, flip, flip, overwrite, overwrite, number, number, number, scramble, digits, digits),
    *(token, cut, extend, drop, repeat),
)


def mutated(rng: Rng, content: bytes) -> bytes:
    """One to four changes, most often one."""
    inside = content[:2] == b"PK"
    for _ in range(int(rng.choice([1, 1, 1, 1, 2, 4]))):
        content = content or b"\0"
        choices = (member,) if inside and rng.random() < 0.7 else PLAIN
        content = choices[rng.integers(len(choices))](rng, content)
    return content
