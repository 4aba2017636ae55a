"""Thumbnails are pixels and nothing else, below a cap, or nothing."""

import base64
import io

import numpy as np
import pytest
from PIL import Image

from fairnepv.report.page import pictures
from fairnepv.report.page.pictures import thumbnail, thumbnails


def encoded(image, kind="PNG", **more):
    buffer = io.BytesIO()
    image.save(buffer, kind, **more)
    return buffer.getvalue()


def decoded(address):
    head, _, content = address.partition(";base64,")
    assert head.startswith("data:image/")
    return Image.open(io.BytesIO(base64.b64decode(content)))


RED = Image.new("RGB", (400, 200), (200, 10, 10))


def test_every_kind_of_picture(tmp_path):
    (tmp_path / "r.png").write_bytes(encoded(RED))
    given = [
        encoded(RED),
        encoded(RED, "JPEG"),
        bytearray(encoded(RED)),
        tmp_path / "r.png",
        str(tmp_path / "r.png"),
        RED,
        np.asarray(RED),
        {"bytes": encoded(RED), "path": None},
        encoded(RED.convert("P"), "GIF"),
        encoded(RED.convert("CMYK"), "TIFF"),
    ]
    for picture in given:
        small = decoded(thumbnail(picture))
        assert small.size == (144, 72)
        assert np.abs(np.asarray(small.convert("RGB")).mean(axis=(0, 1)) - [200, 10, 10]).max() < 6


def test_what_is_no_picture_is_none():
    svg = b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>"
    cut = encoded(RED)[:100]
    for wrong in (svg, b"", b"text", cut, 3, None, {"path": "x"}, "/nowhere/x.png"):
        assert thumbnail(wrong) is None


def test_nothing_of_the_file_but_its_pixels():
    comment = b"<script>alert(1)</script>"
    exif = Image.Exif()
    exif[0x010E] = comment.decode()
    for kind in ("JPEG", "PNG", "WEBP"):
        content = encoded(RED, kind, exif=exif)
        assert comment in content
        made = thumbnail(content)
        assert comment not in base64.b64decode(made.partition(",")[2])
        assert not decoded(made).getexif()


def test_a_picture_that_lies_on_its_side_is_turned():
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by a quarter
    assert decoded(thumbnail(encoded(RED, "JPEG", exif=exif))).size == (72, 144)


def test_too_many_pixels_are_not_decoded(monkeypatch):
    monkeypatch.setattr(pictures, "_LARGEST", 400 * 200 - 1)
    assert thumbnail(encoded(RED)) is None
    monkeypatch.setattr(pictures, "_LARGEST", 400 * 200)
    assert thumbnail(encoded(RED)) is not None


@pytest.mark.parametrize("has_webp", [True, False])
def test_what_is_clear_stays_clear(monkeypatch, has_webp):
    monkeypatch.setattr("PIL.features.check", lambda name: has_webp)
    clear = Image.new("RGBA", (20, 20), (0, 0, 0, 0))
    assert decoded(thumbnail(encoded(clear))).convert("RGBA").getpixel((5, 5))[3] == 0
    assert decoded(thumbnail(encoded(RED))).mode == "RGB"


def test_a_budget_is_kept_in_the_order_of_the_items():
    noise = np.random.default_rng(0).integers(0, 256, (144, 144, 3), dtype=np.uint8)
    one = len(thumbnail(noise))
    made, broken, left_out = thumbnails(
        [(4, noise), (2, b"x"), (9, noise), (1, noise)], 2 * one + 100
    )
    assert (list(made), broken, left_out) == ([4, 9], [2], 1)
