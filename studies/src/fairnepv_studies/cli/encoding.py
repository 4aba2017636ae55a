"""What commands that run an encoder have in common."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypedDict

import click

from fairnepv.cli.options import together

if TYPE_CHECKING:
    from fairnepv_studies.encoding import Encoded
    from fairnepv_studies.feature_files import Description


class Computing(TypedDict):
    """How an encoder runs, as `find` takes it."""

    device: str
    threads: int
    allow_network: bool


def encoder_options(command: Callable[..., None]) -> Any:
    """--device, --threads and --allow-network, handed on as one `computing`."""

    @functools.wraps(command)
    def wrapped(device: str, threads: int, allow_network: bool, **given: Any) -> None:
        computing = Computing(device=device, threads=threads, allow_network=allow_network)
        command(computing=computing, **given)

    return together(
        click.option(
            "--device",
            default="cpu",
            show_default=True,
            type=click.Choice(["cpu", "cuda"]),
            help="Where the encoder computes.",
        ),
        click.option(
            "--threads",
            default=1,
            show_default=True,
            type=click.IntRange(min=1),
            help="Threads of PyTorch; the last bits of features depend on their number.",
        ),
        click.option(
            "--allow-network", is_flag=True, help="Let a model be fetched from Hugging Face."
        ),
    )(wrapped)


@contextlib.contextmanager
def encoding(what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar with the time left; whoever interrupts is told that nothing is lost."""
    from fairnepv.cli.outputs import Interrupted
    from fairnepv.cli.progress import rows_bar

    at = (0, 0)
    try:
        with rows_bar(what) as bar:

            def listen(done: int, of: int) -> None:
                nonlocal at
                at = done, of
                bar(done, of)

            yield listen
    except KeyboardInterrupt as error:
        raise Interrupted(
            f"interrupted at {at[0]:,} of {at[1]:,} rows, which are kept; the same command goes on "
            "from there"
        ) from error


def said_of(description: Description, encoded: Encoded) -> str:
    n, p = description.shape
    return (
        f"{n:,} x {p:,} by {description.encoder} {description.version[:12]}; "
        f"{encoded.encoded:,} encoded, {encoded.reused:,} known before."
    )
