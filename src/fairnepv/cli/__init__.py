"""The command `fairnepv`: arguments, one library call, a report."""

import contextlib
import errno
import io
import os
import sys
import traceback
import warnings
from collections.abc import Iterator
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import click

from fairnepv import __version__
from fairnepv.cli import log
from fairnepv.cli.certify import certify, verify_bound
from fairnepv.cli.compare import compare
from fairnepv.cli.convert import convert
from fairnepv.cli.demo import demo
from fairnepv.cli.init import init
from fairnepv.cli.local_features import local_features
from fairnepv.cli.outputs import Interrupted
from fairnepv.cli.relax import relax
from fairnepv.cli.sayings import in_our_words, is_of_ours
from fairnepv.cli.score import score
from fairnepv.cli.select import select
from fairnepv.display import shown
from fairnepv.errors import FairnepvError, NumericalError, RankWarning

_READER_LEFT = 141  # what a shell reports of a process that SIGPIPE ended
_JOINING = "fairnepv.commands"  # the entry points by which other distributions add commands
_OURS = [select, certify, verify_bound, score, compare, relax, convert, local_features, init, demo]
_STUDIES = ("downstream", "embed", "synthetic", "uspto")  # the commands of fairnepv-studies


def _joined(point: EntryPoint) -> click.Command:
    """The command of another distribution; where that is broken, one that says so: help and the
    other commands do not depend on it."""
    try:
        command = point.load()
        if isinstance(command, click.Command):
            return command
        reason = f"{point.value} is no command"
    except Exception as error:  # of whatever is imported there
        reason = f"{type(error).__name__}: {error}"

    def refuse(**_: Any) -> None:
        distribution = point.dist.name if point.dist else point.value
        raise FairnepvError(
            f"`fairnepv {point.name}` cannot be loaded ({reason}); install {distribution} again"
        )

    rest = click.Argument(["rest"], nargs=-1, type=click.UNPROCESSED)
    anything = {"ignore_unknown_options": True}
    return click.Command(
        point.name, anything, refuse, [rest], short_help="(broken)", add_help_option=False
    )


class Commands(click.Group):
    """Commands of this package, and those that other distributions add by entry point.

    Click has its own words for Ctrl-C and for a closed pipe; ours come first.
    """

    def list_commands(self, context: click.Context) -> list[str]:
        joined = (point.name for point in entry_points(group=_JOINING))
        return sorted({*super().list_commands(context), *joined})

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        own = super().get_command(context, name)
        if own is not None:
            return own
        for point in entry_points(group=_JOINING, name=name):
            return _joined(point)
        if name in _STUDIES:
            raise FairnepvError(
                f"`fairnepv {name}` belongs to the studies, which are not installed; install them "
                "with `pip install fairnepv-studies`, or from a clone with `pip install ./studies`"
            )
        return None

    def make_context(
        self, info_name: str | None, args: list[str], *others: Any, **more: Any
    ) -> click.Context:
        typed = [*args]
        with _readers_may_leave():  # --help and --version are printed here
            context = super().make_context(info_name, args, *others, **more)
        context.meta[log.ARGUMENTS] = typed
        return context

    def invoke(self, context: click.Context) -> Any:
        try:
            result = self._invoke(context)
        except BaseException as error:
            code, message = ending_of(error) or (None, f"{type(error).__name__}: {error}")
            log.tell_end(code, message)
            raise
        log.tell_end(0)
        return result

    def _invoke(self, context: click.Context) -> Any:
        try:
            with _readers_may_leave():
                result = super().invoke(context)
                sys.stdout.flush()
                return result
        except KeyboardInterrupt as error:
            raise Interrupted("interrupted") from error
        except FairnepvError as error:
            if is_of_ours(context):
                error.args = (in_our_words(str(error), sys.argv[2:]),)
            raise
        except EOFError as error:  # to click it is a person who closes the terminal
            raise FairnepvError(
                "a file ends too early, so it is damaged; --debug shows which one was read"
            ) from error


@contextlib.contextmanager
def _readers_may_leave() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:  # the reader, `head` perhaps, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(_READER_LEFT)


@click.group(
    cls=Commands,
    commands=_OURS,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__)
@click.pass_context
def commands(context: click.Context) -> None:
    """Choose k items out of n so that no view of the data is left behind."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def main() -> None:
    """Entry point. Exit code 0; 1 numerical; 2 bad input, one line on stderr; 130 interrupted."""
    warnings.simplefilter("ignore", RankWarning)  # results carry the same words as notes
    warnings.showwarning = _show_warning
    _open_streams()
    try:
        commands(standalone_mode=False)
    except Exception as error:
        ending = ending_of(error)
        if ending is None:
            raise
        _leave(*ending)


def ending_of(error: BaseException) -> tuple[int, str] | None:
    """The exit code and the sentence of an error; None of one that was not foreseen."""
    if isinstance(error, Interrupted):
        return 130, str(error)
    if isinstance(error, FairnepvError):
        return (1 if isinstance(error, NumericalError) else 2), str(error)
    if isinstance(error, click.ClickException):
        return 2, error.format_message()
    if isinstance(error, click.Abort):
        return 130, "interrupted"
    if isinstance(error, OSError):
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        remedy = "make room on the disk" if full else "check the path and its rights"
        return 2, f"{error.filename or 'a file'}: {error.strerror or error}; {remedy}"
    if isinstance(error, MemoryError):
        return 2, "there is not enough memory for this; try fewer rows, or float32 views"
    if isinstance(error, click.exceptions.Exit):  # of --help
        return error.exit_code, ""
    if isinstance(error, SystemExit) and isinstance(error.code, int):
        return error.code, ""
    return None


def _leave(code: int, message: str) -> None:
    with contextlib.suppress(OSError):  # nobody reads it, and the exit code says enough
        if "--debug" in sys.argv:
            _say(*traceback.format_exc().splitlines())
        _say(f"fairnepv: {' '.join(message.split())}")
    sys.exit(code)


def _show_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    log.tell("warning", kind=category.__name__, text=str(message))
    _say(f"fairnepv: {category.__name__}: {message}")


def _say(*lines: str) -> None:
    for line in lines:
        click.echo(shown(line), err=True)


def _open_streams() -> None:
    """Streams that were closed (`>&-`) lead nowhere; those of few letters have all as \\xe9."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115  # until the process ends
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
