"""The embedded pools: whole, aligned, licensed and small."""

import hashlib
import io
import math
import re
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from PIL import Image

import cases
import fairnepv.data
import reference
from fairnepv import FairnepvError
from fairnepv.data import Pictograms, openmoji, paper_instance, paper_types, tf_idf

FOLDER = Path(fairnepv.data.__file__).parent
N = 2297


@pytest.fixture(scope="module")
def pool() -> Pictograms:
    return openmoji()


# --- OpenMoji -------------------------------------------------------------------------------------


def test_every_field_has_a_value_per_pictogram(pool):
    for field in (pool.ids, pool.titles, pool.groups, pool.keywords, pool.pictures, pool.text):
        assert len(field) == N
    assert len(set(pool.ids.tolist())) == N
    assert all(re.fullmatch(r"[0-9A-F]{4,6}(-[0-9A-F]{4,6})*", one) for one in pool.ids.tolist())
    assert all(pool.titles.tolist())
    assert len(pool.vision) == N
    assert len(set(pool.groups.tolist())) == 11


def test_texts_begin_with_the_title(pool):
    """So the two columns are aligned; where there are keywords, they follow."""
    longer = 0
    for title, text in zip(pool.titles.tolist(), pool.keywords, strict=True):
        assert text == title or text.startswith(f"{title}: ")
        longer += text != title
    assert longer > 0.9 * N


def test_pictures_are_small_squares(pool):
    assert len(set(pool.pictures)) > 0.99 * N
    for content in pool.pictures:
        picture = Image.open(io.BytesIO(content))
        assert picture.format == "PNG"
        assert picture.size == (96, 96)
    for content in pool.pictures[::100]:
        assert len(np.unique(np.asarray(Image.open(io.BytesIO(content)).convert("L")))) > 1


def test_vision_features_are_numbers(pool):
    assert pool.vision.shape == (N, 1280)
    assert pool.vision.dtype == np.float32
    assert np.isfinite(pool.vision).all()
    assert (np.linalg.norm(pool.vision, axis=1) > 0).all()
    np.testing.assert_array_equal(pool.vision, cases.openmoji()["vision"])


def test_text_features_have_unit_length(pool):
    assert pool.text.shape == (N, 384)
    assert pool.text.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(pool.text, axis=1), 1.0, atol=1e-3)
    np.testing.assert_array_equal(pool.text, cases.openmoji()["text"])


def mean_colours(pool: Pictograms) -> np.ndarray:
    pictures = [np.asarray(Image.open(io.BytesIO(p)).convert("RGB")) for p in pool.pictures]
    return np.array([picture.reshape(-1, 3).mean(axis=0) for picture in pictures])


def group_purity(features: np.ndarray, groups: np.ndarray) -> float:
    """How often the nearest other item is of the same group."""
    X = reference.unit_diagonal(features.astype(np.float64))
    cosines = X @ X.T
    np.fill_diagonal(cosines, -np.inf)
    return float((groups[cosines.argmax(axis=1)] == groups).mean())


def test_rows_of_different_columns_are_about_the_same_pictogram(pool):
    """Neighbours in one column share the group of another; in a rotated column they do not."""
    rows = slice(None, None, 2)
    groups = pool.groups[rows]
    text, vision = (cases.openmoji()[name][rows] for name in ("text", "vision"))
    for features in (text, vision, tf_idf(pool.keywords)[rows].toarray()):
        assert group_purity(features, groups) > 0.5
        assert group_purity(features, np.roll(groups, 300)) < 0.4


def test_colours_of_pictures_agree_with_their_features(pool):
    """Near neighbours of the vision features have like colours, nearer than chance."""
    colours = mean_colours(pool)
    X = reference.unit_diagonal(pool.vision[::4].astype(np.float64))
    cosines = X @ X.T
    np.fill_diagonal(cosines, -np.inf)
    nearest = cosines.argmax(axis=1)
    near = np.linalg.norm(colours[::4] - colours[::4][nearest], axis=1).mean()
    chance = np.linalg.norm(colours[::4] - np.roll(colours[::4], 111, axis=0), axis=1).mean()
    assert near < 0.8 * chance


def test_the_views_of_the_demo(pool):
    views = pool.views
    assert list(views) == ["text", "vision"]
    assert views["text"] is pool.text
    assert views["vision"] is pool.vision


@pytest.mark.parametrize("name", ["openmoji.parquet", "openmoji_minilm.npz"])
def test_a_damaged_file_is_said_to_be_damaged(monkeypatch, tmp_path, name):
    for file in ("openmoji.parquet", "openmoji_minilm.npz"):
        (tmp_path / file).write_bytes((FOLDER / file).read_bytes())
    monkeypatch.setattr("fairnepv.data.resources.files", lambda _: tmp_path)
    content = bytearray((FOLDER / name).read_bytes())
    content[len(content) // 2] ^= 1
    for damaged in (bytes(content), bytes(content[:1000]), b""):
        (tmp_path / name).write_bytes(damaged)
        with pytest.raises(FairnepvError, match=rf"{re.escape(name)} is damaged.*install"):
            openmoji()


# --- TF-IDF ---------------------------------------------------------------------------------------

TEXTS = ["red red apple", "Green apple, green", "sky: the blue sky", "a red sky"]


def test_tf_idf_by_hand():
    """Four texts; of the first, 'red' comes twice and is in two, 'apple' once and in two."""
    X = tf_idf(TEXTS).toarray()
    columns = ["apple", "blue", "green", "red", "sky", "the"]
    assert X.shape == (4, len(columns))
    red = (1 + math.log(2)) * (math.log(5 / 3) + 1)
    apple = math.log(5 / 3) + 1
    length = math.hypot(red, apple)
    expected = [apple / length, 0, 0, red / length, 0, 0]
    np.testing.assert_allclose(X[0], expected, atol=1e-14)
    # 'a' is too short to be a word, so 'red' and 'sky' share the last text evenly
    np.testing.assert_allclose(X[3], np.array([0, 0, 0, 1, 1, 0]) / math.sqrt(2), atol=1e-14)


@pytest.mark.parametrize("texts", [TEXTS, ["one word"], ["same same", "same"], TEXTS * 3], ids=len)
def test_tf_idf_is_the_literal_formula(texts):
    X = tf_idf(texts)
    assert isinstance(X, sp.csr_array)
    np.testing.assert_allclose(X.toarray(), reference.tf_idf(texts), atol=1e-14)


def test_tf_idf_of_the_pool(pool):
    X = tf_idf(pool.keywords)
    np.testing.assert_allclose(np.sqrt(X.multiply(X).sum(axis=1)), np.ones(N), atol=1e-12)
    some = pool.keywords[:40]
    np.testing.assert_allclose(tf_idf(some).toarray(), reference.tf_idf(some), atol=1e-14)


# --- The paper's instance -------------------------------------------------------------------------


def test_the_papers_instance():
    paper = cases.paper_instance()
    views = paper_instance()
    for name in ("text", "vision"):
        np.testing.assert_array_equal(views[name].values, paper[name])
        assert views[name].eps == 0
    assert [kind.split()[0] for kind in paper_types().tolist()] == paper["types"]


# --- Licences and size ----------------------------------------------------------------------------


def test_the_notice_names_sources_and_licences():
    notice = (FOLDER / "NOTICE.md").read_text()
    for words in ("OpenMoji", "CC BY-SA 4.0", "Unicode", "https://openmoji.org", "MIT"):
        assert words in notice


def test_the_notice_names_the_files_that_are_there():
    notice = (FOLDER / "NOTICE.md").read_text()
    files = [path for path in FOLDER.iterdir() if path.suffix not in (".py", ".md")]
    files = [path for path in files if path.is_file()]
    assert files
    for path in files:
        assert path.name in notice
        assert hashlib.sha256(path.read_bytes()).hexdigest()[:16] in notice
    assert set(re.findall(r"\w+\.(?:npz|parquet)", notice)) == {path.name for path in files}


def test_the_package_data_is_small():
    total = sum(path.stat().st_size for path in FOLDER.rglob("*") if path.suffix != ".pyc")
    assert total <= 8_000_000
