"""Rows by content: batches, the cache, kills at any moment; with an encoder that only counts."""

import hashlib
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairnepv.errors import FairnepvError, InputError
from fairnepv_studies import encoding
from fairnepv_studies.encoders import fingerprint
from fairnepv_studies.encoding import BATCH, Cache, encode, key_of
from fairnepv_studies.feature_files import checksum_of
from fairnepv_studies.files import appearing, write_whole

WIDTH = 5


@dataclass
class Counting:
    """Rows from the checksum of a text, and how many were asked for."""

    name: str = "hf:org/counting"
    version: str = "1"
    kind: str = "text"
    width: int = WIDTH
    preprocessing: dict = field(default_factory=lambda: {"none": True})
    runtime: dict = field(default_factory=dict)
    seen: list = field(default_factory=list)
    most: float = math.inf  # items, after which it waits to be killed
    at_once: int = 10**6

    def encode(self, batch):
        if len(self.seen) >= self.most:
            time.sleep(600)
        self.seen += batch
        return expected(batch)


def expected(texts) -> np.ndarray:
    digests = [hashlib.sha512(text.encode()).digest()[: 4 * WIDTH] for text in texts]
    integers = np.frombuffer(b"".join(digests), "<u4").reshape(-1, WIDTH)
    return (integers / 2**32).astype(np.float32)


def run(texts, encoder, folder: Path, **more):
    return encode(
        lambda places: (texts[i] for i in places),
        [key_of(text) for text in texts],
        encoder,
        cache=folder / "cache",
        out=folder / "rows.npy",
        **more,
    )


TEXTS = [f"text {i}" for i in range(3 * BATCH + 7)]


@given(numbers=st.lists(st.integers(0, 30), min_size=1, max_size=60), batch=st.integers(1, 9))
@settings(max_examples=25, deadline=None)
def test_rows_stand_in_the_order_of_contents_and_each_content_is_encoded_once(
    tmp_path_factory, numbers, batch
):
    folder = tmp_path_factory.mktemp("run")
    texts, encoder = [f"text {i}" for i in numbers], Counting()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encoding, "BATCH", batch)
        patch.setattr(encoding, "_JOINED", 7)
        made = run(texts, encoder, folder)
    rows = np.load(folder / "rows.npy")
    np.testing.assert_array_equal(rows, expected(texts))
    np.save(folder / "saved.npy", expected(texts))
    assert (folder / "rows.npy").read_bytes() == (folder / "saved.npy").read_bytes()
    assert sorted(encoder.seen) == sorted(set(texts))
    assert (made.encoded, made.reused) == (len(set(texts)), len(texts) - len(set(texts)))
    assert made.shape == rows.shape
    assert made.checksum == checksum_of(rows)


def test_what_was_seen_before_is_not_encoded_again(tmp_path):
    run(TEXTS[:200], Counting(), tmp_path)
    again = Counting()
    made = run(TEXTS[100:300], again, tmp_path)
    assert again.seen == TEXTS[200:300]
    assert (made.encoded, made.reused) == (100, 100)
    np.testing.assert_array_equal(np.load(tmp_path / "rows.npy"), expected(TEXTS[100:300]))


@pytest.mark.parametrize(
    "change",
    [{"version": "2"}, {"preprocessing": {"none": False}}, {"runtime": {"torch": "3"}}],
)
def test_another_version_preprocessing_or_runtime_shares_nothing(tmp_path, change):
    run(TEXTS[:50], Counting(), tmp_path)
    other = Counting(**change)
    assert fingerprint(other) != fingerprint(Counting())
    assert run(TEXTS[:50], other, tmp_path).encoded == 50


def test_a_damaged_file_of_the_cache_is_encoded_again(tmp_path):
    run(TEXTS, Counting(), tmp_path)
    files = sorted((tmp_path / "cache").rglob("*.npy"))
    broken = bytearray(files[0].read_bytes())
    broken[-1] ^= 1
    files[0].write_bytes(broken)
    files[1].write_bytes(b"")
    again = Counting()
    run(TEXTS, again, tmp_path)
    assert BATCH < len(again.seen) <= 2 * BATCH
    np.testing.assert_array_equal(np.load(tmp_path / "rows.npy"), expected(TEXTS))


def test_progress_begins_with_what_is_known_and_ends_with_all(tmp_path):
    run(TEXTS[:BATCH], Counting(), tmp_path)
    told = []
    run(TEXTS, Counting(), tmp_path, progress=lambda done, of: told.append((done, of)))
    n = len(TEXTS)
    assert told == [(BATCH, n), (2 * BATCH, n), (3 * BATCH, n), (n, n)]


def test_progress_moves_with_what_an_encoder_takes_at_once(tmp_path):
    told = []
    run(TEXTS[: BATCH + 2], Counting(at_once=50), tmp_path, progress=lambda *at: told.append(at[0]))
    assert told == [0, 50, 100, BATCH, BATCH + 2]
    assert len(list((tmp_path / "cache").rglob("*.npy"))) == 2


def test_what_the_bar_has_shown_is_kept_when_a_batch_is_interrupted(tmp_path):
    def listen(done: int, _: int) -> None:
        if done == 60:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(TEXTS[:100], Counting(at_once=20), tmp_path, progress=listen)
    again = Counting()
    run(TEXTS[:100], again, tmp_path)
    assert again.seen == TEXTS[60:100]
    np.testing.assert_array_equal(np.load(tmp_path / "rows.npy"), expected(TEXTS[:100]))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_said_with_the_name_of_the_file_and_nothing_is_left(tmp_path):
    part = tmp_path / ".rows.npy.part"
    part.symlink_to("/dev/full")
    with pytest.raises(FairnepvError, match=r"rows\.npy cannot be written \(No space left"):
        run(TEXTS, Counting(), tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["cache"]
    assert run(TEXTS, Counting(), tmp_path).reused == len(TEXTS)


def test_a_file_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(FairnepvError, match=r"none/a\.json cannot be written \(No such file"):
        write_whole(tmp_path / "none" / "a.json", b"")


def test_a_write_that_another_run_has_finished_is_no_failure(tmp_path):
    file = tmp_path / "a"
    with appearing(file) as part:
        part.write_bytes(b"same")
        part.rename(file)
    assert file.read_bytes() == b"same"
    file.unlink()
    with pytest.raises(FairnepvError, match="cannot be written"), appearing(file) as part:
        pass  # nobody wrote it


def test_a_file_of_the_cache_that_goes_away_is_named(tmp_path):
    run(TEXTS[:5], Counting(), tmp_path)
    known = Cache(tmp_path / "cache", Counting())
    (file,) = (tmp_path / "cache").rglob("*.npy")
    for damage in (lambda: file.write_bytes(b""), file.unlink):
        damage()
        with pytest.raises(InputError, match=rf"{file.name} cannot be read .*; start again"):
            known.rows([key_of(TEXTS[0])])


def test_a_content_that_is_not_what_its_checksum_says_is_refused(tmp_path):
    keys = [key_of(text) for text in TEXTS[:3]]
    changed = [*TEXTS[:2], "another"]
    with pytest.raises(InputError, match="row 2: the content does not have its checksum"):
        encode(
            lambda places: (changed[i] for i in places),
            keys,
            Counting(),
            cache=tmp_path / "cache",
            out=tmp_path / "rows.npy",
        )
    assert not (tmp_path / "rows.npy").exists()


def test_rows_that_are_no_numbers_are_refused_and_not_kept(tmp_path):
    class Broken(Counting):
        def encode(self, batch):
            rows = super().encode(batch)
            rows[1] = np.nan
            return rows

    with pytest.raises(FairnepvError, match="makes row 1 something that is not a number"):
        run(TEXTS[:3], Broken(), tmp_path)
    assert key_of(TEXTS[0]) not in Cache(tmp_path / "cache", Broken())


# --- Killed ---------------------------------------------------------------------------------------


def work(folder: Path, most: float = math.inf) -> None:
    """What the killed process does: its work, but no more than so many items of it."""
    encoding.BATCH = 8
    run(TEXTS, Counting(most=most), folder)


def everything(folder: Path) -> dict[str, bytes]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.mark.sample(1)
@pytest.mark.kill
@pytest.mark.parametrize("batches", [0, 1, 5, 20, 48])
def test_killed_at_any_moment_it_goes_on_and_gives_the_same_bytes(tmp_path, batches):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    whole.mkdir()
    killed.mkdir()
    work(whole)
    call = f"work(pathlib.Path({str(killed)!r}), {8 * batches})"
    code = f"import test_encoding, pathlib; test_encoding.{call}"
    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    process = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path})
    while len(list(killed.rglob("*.npy"))) < batches:
        assert process.poll() is None
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    done = len(Cache(killed / "cache", Counting())._places)
    assert 8 * batches <= done < len(TEXTS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encoding, "BATCH", 8)
        again = Counting()
        run(TEXTS, again, killed)
    assert len(again.seen) == len(TEXTS) - done
    assert everything(killed) == everything(whole)  # and nothing is left behind
