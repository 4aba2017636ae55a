"""Runs the command `fairnepv` and ends it by SIGKILL at a moment of a phase, as a power cut would.

python -m soak.dying PHASE CALL HOW arguments of fairnepv

The functions of a phase (`WATCHED`) are counted. At call number CALL of them the process kills
itself before it or after it, or says so on its standard input, a pipe, and goes on until who reads
that kills it. A call that is never reached lets the command end; the last line of standard error is
then how many calls there were.
"""

import importlib
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

BEFORE, AFTER, LATER = "before", "after", "later"
SAID = b"!"
FILES = (
    *("os:replace", "os:rename", "os:link", "os:chmod", "os:unlink", "os:mkdir", "shutil:rmtree"),
    *("pathlib:Path.write_bytes", "pathlib:Path.write_text", "pathlib:Path.mkdir"),
    *("tempfile:mkstemp", "tempfile:mkdtemp", "numpy:save", "pathlib:Path.rename"),
    "pyarrow.parquet:ParquetWriter.write_table",
)
WATCHED: dict[str, tuple[str, ...]] = {
    "reading": ("fairnepv.io.rows:FileVersion.check", "fairnepv.io.source:Source.once"),
    "greedy": ("fairnepv.search.greedy:Greedy.step",),
    "swaps": ("fairnepv.search.local:LocalSearch.step", "fairnepv.search.subset:Subset.confirm"),
    "tabu": ("fairnepv.search.tabu:TabuSearch.step",),
    "bound": ("fairnepv.concave.concave:Concave.step", "fairnepv.concave.topk:TopK.at"),
    "relaxation": ("fairnepv.stiefel.lbfgs:Lbfgs.step",),
    "exact": ("fairnepv.search.exact:Exact.step",),
    "shards": ("fairnepv.methods.tiers:FirstTier.step",),
    "checkpoint": ("fairnepv.loop.journal:Journal.keep", "fairnepv.loop.journal:_make_key", *FILES),
    "tables": FILES,
    "page": FILES,
    "convert": FILES,
    "ingest": FILES,
    "features": FILES,
    "run": FILES,
}


class Watch:
    """Counts calls, and ends the process at one of them."""

    def __init__(self, number: int, how: str) -> None:
        self.number, self.how, self.calls = number, how, 0

    def over(self, place: str) -> None:
        """Calls of the function MODULE:NAME, wherever it is called by its module or class."""
        module, _, path = place.partition(":")
        *outer, name = path.split(".")
        owner: Any = importlib.import_module(module)
        for part in outer:
            owner = getattr(owner, part)
        setattr(owner, name, self._counted(getattr(owner, name)))

    def _counted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **options: Any) -> Any:
            self.calls += 1
            is_now = self.calls == self.number
            if is_now and self.how == LATER:
                os.write(0, SAID)
            if is_now and self.how == BEFORE:
                _half_written(call, arguments)
                os.kill(os.getpid(), signal.SIGKILL)
            result = call(*arguments, **options)
            if is_now and self.how == AFTER:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return counted


def _half_written(call: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    if call.__name__ == "write_bytes":
        path, content = arguments
        call(path, content[: len(content) // 2])


def _make_small() -> None:
    """Many moments in small corpora, and an encoder that needs no weights."""
    from fairnepv_studies import encoders, encoding, making
    from fairnepv_studies.uspto import parts
    from soak.stand_in import StandIn

    for module in (parts, making):
        setattr(module, "ROWS", 32)  # noqa: B010 (which one of them has from the other)
    encoding.BATCH = 8
    encoders.find = lambda *_, **__: StandIn()  # type: ignore[assignment]


def main() -> None:
    phase, number, how, *arguments = sys.argv[1:]
    watch = Watch(int(number), how)
    if arguments[0] == "uspto":
        _make_small()
    for place in WATCHED[phase]:
        watch.over(place)
    from fairnepv.cli import main as command

    sys.argv = ["fairnepv", *arguments]
    try:
        command()
    finally:
        print(watch.calls, file=sys.stderr)


if __name__ == "__main__":
    main()
