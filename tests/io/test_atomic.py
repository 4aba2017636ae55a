"""Files and folders appear whole or not at all."""

import os
from pathlib import Path

import pytest

from fairnepv import FairnepvError
from fairnepv.io.atomic import whole_file, whole_folder, write_errors


def content(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("same_name", [False, True])
def test_a_file_replaces_another_with_its_mode(same_name, tmp_path):
    file = tmp_path / "a"
    with whole_file(file, same_name=same_name) as part:
        part.write_text("one")
    assert file.stat().st_mode & 0o777 == 0o666 & ~_mask()
    file.chmod(0o640)
    with whole_file(file, same_name=same_name) as part:
        part.write_text("two")
    assert content(tmp_path) == {"a": "two"}
    assert file.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("same_name", [False, True])
def test_what_fails_leaves_the_old_file(same_name, tmp_path):
    file = tmp_path / "a"
    file.write_text("old")
    with pytest.raises(FileNotFoundError), whole_file(file, same_name=same_name) as part:
        part.write_text(Path("no such file").read_text())
    assert content(tmp_path) == {"a": "old"}


def test_a_body_that_misses_a_file_fails(tmp_path):
    (tmp_path / "a").write_text("old")
    with pytest.raises(FileNotFoundError), whole_file(tmp_path / "a", same_name=True):
        (tmp_path / "nowhere").read_text()


def test_of_two_runs_with_the_same_name_one_may_be_faster(tmp_path):
    file = tmp_path / "a"
    with whole_file(file, same_name=True) as part:
        part.write_text("mine")
        os.replace(part, file)
    assert content(tmp_path) == {"a": "mine"}
    with pytest.raises(FileNotFoundError), whole_file(tmp_path / "b", same_name=True):
        pass


def test_without_replacing_the_first_one_stays(tmp_path):
    file = tmp_path / "key"
    for text in ("first", "second"):
        with whole_file(file, mode=0o600, replace=False) as part:
            part.write_text(text)
    assert content(tmp_path) == {"key": "first"}
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_folder_replaces_another_or_leaves_it(tmp_path):
    folder = tmp_path / ("long" * 40)
    for text in ("one", "two"):
        with whole_folder(folder) as part:
            (part / "a").write_text(text)
    assert content(tmp_path) == {"a": "two"}
    assert folder.stat().st_mode & 0o777 == 0o777 & ~_mask()
    with pytest.raises(IsADirectoryError), whole_folder(folder) as part:
        part.write_text("three")
    assert content(tmp_path) == {"a": "two"}
    assert list(tmp_path.iterdir()) == [folder]


def test_errors_of_the_system_become_a_sentence(tmp_path):
    missing = tmp_path / "no" / "a"
    with (
        pytest.raises(FairnepvError, match=r"a cannot be written \(No such file.*\); make room"),
        write_errors(missing, "; make room"),
        whole_file(missing),
    ):
        pass


def _mask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@pytest.mark.parametrize("kind", [whole_file, whole_folder])
def test_what_a_kill_has_left_goes_with_the_next_whole_one(kind, tmp_path):
    """And nothing else: neither what somebody is writing, nor what is called nearly so."""
    target = tmp_path / "picks.csv"
    ours = [f".picks.csv.abcd_123{ending}" for ending in (".part", ".part.old")]
    others = [".picks.csv.original", ".picks.csv.part", ".other.csv.abcd1234.part"]
    for name in ours[: 1 if kind is whole_file else 2]:
        path = tmp_path / name
        path.write_text("torn") if kind is whole_file else (path / "a").mkdir(parents=True)
    for name in others:
        (tmp_path / name).write_text("kept")
    with kind(target) as part:
        part.write_text("one") if kind is whole_file else (part / "a").write_text("one")
        with kind(target) as faster:
            faster.write_text("two") if kind is whole_file else (faster / "a").write_text("two")
        assert part.exists()
    assert {path.name for path in tmp_path.iterdir()} == {"picks.csv", *others}
