"""What tests of commands have in common."""

import shlex
import sys

import pytest
from hypothesis import settings

from fairnepv.cli import main

settings.register_profile("busy", deadline=None)  # tests pass on a busy machine, too
settings.load_profile("busy")


def pytest_collection_modifyitems(items):
    """The longest first, or one worker would end with it while the others have nothing to do."""
    items.sort(key=lambda item: item.path.stem != "test_uspto_chain")


@pytest.fixture(scope="session", autouse=True)
def own_state(tmp_path_factory):
    """Keys of checkpoints are not the user's, nor are they left in the user's folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture
def command(monkeypatch, capsys):
    """A command line through the entry point: exit code, stdout and stderr."""

    def run(line: str, *arguments: object) -> tuple[int, str, str]:
        words = [*shlex.split(line), *map(str, arguments)]
        monkeypatch.setattr(sys, "argv", ["fairnepv", *words])
        code = 0
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
        return code, *capsys.readouterr()

    return run
