"""A folder is one run's, until that ends."""

import subprocess
import sys

import pytest

from fairnepv.errors import InputError
from fairnepv.io import locks
from fairnepv.io.locks import held, is_held, locked

HOLDER = """
import sys, time
from pathlib import Path
from fairnepv.io.locks import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_second_run_is_refused_until_the_first_is_gone(holder, tmp_path):
    with pytest.raises(InputError, match=r"another run is at work in .*"), locked(tmp_path):
        pass
    assert is_held(tmp_path)
    holder.kill()
    holder.wait()
    with locked(tmp_path):
        assert is_held(tmp_path)
    assert not is_held(tmp_path)


def test_those_who_share_refuse_whoever_does_not(tmp_path):
    with locked(tmp_path, shared=True), locked(tmp_path, shared=True), held(tmp_path) as is_ours:
        assert not is_ours


def test_a_system_without_locks_gives_them_to_everybody_and_knows_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "fcntl", None)
    with locked(tmp_path), locked(tmp_path):
        assert is_held(tmp_path)
    assert is_held(tmp_path)
