"""What tests of commands have in common."""

import shlex
import sys

import pytest

from fairnepv.cli import main


def pytest_collection_modifyitems(items):
    """The longest first, or one worker would end with it while the others have nothing to do."""
    items.sort(key=lambda item: item.path.stem != "test_uspto_chain")


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
