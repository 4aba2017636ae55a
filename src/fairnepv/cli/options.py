"""Options of the commands, made from those of the library, and the records they become."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import click

from fairnepv.cli import log
from fairnepv.cli.files import problem_of
from fairnepv.cli.outputs import Report
from fairnepv.cli.words import SHARDS_OF_THE_POOL, Shards
from fairnepv.cli.words import Size as Size
from fairnepv.cli.words import Sizes as Sizes
from fairnepv.options import ALIGNED, ALL, EFFORTS, MISSING, OBJECTIVES, STARTS

Command = Callable[..., None]
Decorator = Callable[[Any], Any]

_POSITIVE = click.FloatRange(min=0, min_open=True)
_FILE = "FILE[:COLUMN]"


def library_option(name: str, *flags: str, note: str = "", **settings: Any) -> Decorator:
    """An option of the library for a command, with a note on how it is written there."""
    knob = ALL[name]
    text = f"{knob.help} {note}".strip()
    if settings.get("multiple"):
        text += "" if knob.default is None else f"  [default: {knob.default}]"
    else:
        settings = {"default": knob.default, "show_default": knob.default is not None} | settings
    return click.option(*(flags or (f"--{name.replace('_', '-')}",)), help=text, **settings)


def together(*decorators: Decorator) -> Decorator:
    """Several decorators as one, in the order in which a command would have them."""

    def decorate(command: Any) -> Any:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return decorate


def handed_on(
    name: str, make: Callable[[dict[str, Any]], Any], options: Mapping[str, Decorator]
) -> Callable[[Command], Command]:
    """Options of a command by their names, handed on under one name as what is made of them."""

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def wrapped(**given: Any) -> None:
            own = {option: given.pop(option) for option in options}
            command(**{name: make(own)}, **given)

        return together(*options.values())(wrapped)  # type: ignore[no-any-return]

    return decorate


# --- the problem ----------------------------------------------------------------------------------


_POSING = {
    "view": click.option(
        "--view",
        multiple=True,
        required=True,
        metavar="NAME=FILE",
        help="A view: .npy, .npz[:key] (SciPy sparse too), .parquet[:column], .arrow[:column], "
        ".safetensors[:tensor], or a folder of shards, a Hugging Face data set or one that "
        "`convert` wrote. Repeat it.",
    ),
    "ids": library_option(
        "ids",
        multiple=True,
        metavar=_FILE,
        note="NAME=FILE for each view aligns the views by them. A folder that `convert` wrote "
        "brings its own.",
    ),
    "objective": library_option("objective", type=click.Choice(list(OBJECTIVES))),
    "tau": library_option("tau", type=float),
    "eps": library_option("eps", multiple=True, metavar="VALUE|NAME=VALUE"),
    "center": library_option("center", "--center/--no-center"),
    "calibration": library_option("calibration", multiple=True, metavar="RULE|NAME=FACTOR"),
    "quality": library_option(
        "quality", multiple=True, metavar=_FILE, note="NAME=FILE for one view alone."
    ),
    "missing": library_option("missing", type=click.Choice(MISSING)),
    "align": library_option("align", type=click.Choice(ALIGNED)),
    "priority": library_option("priorities", "--priority", multiple=True, metavar="NAME=WEIGHT"),
    "engine": library_option("engine", metavar="NAME", note=" [default: local]"),
    "workers": click.option(
        "--workers",
        type=click.IntRange(min=1),
        help="How many processes --engine local-ray starts.  [default: one for each core]",
    ),
    "device": click.option(
        "--device",
        type=click.Choice(["cuda", "cpu"]),
        help="Workers of Ray compute with PyTorch, on a GPU each or on their core.  [default: "
        "with NumPy]",
    ),
}
_RULES = {
    "include": library_option("include", metavar=_FILE),
    "k_more": click.option(
        "--k-more", is_flag=True, help="Choose k items besides those of --include."
    ),
    "exclude": library_option("exclude", metavar=_FILE),
    "deduplicate": library_option(
        "deduplicate", type=click.FloatRange(0, 1, min_open=True), metavar="COSINE"
    ),
    "groups": library_option("groups", metavar=_FILE),
    "quota": library_option(
        "quotas",
        "--quota",
        multiple=True,
        metavar="LABEL=N|LABEL=L..M",
        note="Write 5, 2..5, 2.. or ..5.  [default: proportional]",
    ),
    "floor": library_option("floors", "--floor", multiple=True, metavar="NAME=VALUE"),
}


_ROWS = {n: _POSING[n] for n in ("view", "ids", "engine", "workers", "device")}
rows = handed_on("problem", problem_of, _ROWS)  # views alone, for what is asked of no problem
posing = handed_on("problem", problem_of, _POSING)
posing_with_rules = handed_on("problem", problem_of, _POSING | _RULES)

# --- the report -----------------------------------------------------------------------------------

# `main` looks for it among the arguments, since it matters even where these cannot be parsed.
debug_option = click.option(
    "--debug", is_flag=True, expose_value=False, help="Show the traceback of an error."
)
# Eager, so that the log has begun before any other option is looked at.
log_option = click.option(
    "--log-file",
    metavar="FILE",
    is_eager=True,
    expose_value=False,
    callback=log.begin,
    help="Append the story of this run: a JSON object per line.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for machines.")
force_option = click.option("--force", is_flag=True, help="Replace files that exist.")
strict_option = click.option(
    "--strict", is_flag=True, help="Exit with 1 unless the run ended well."
)


def reporting(
    *, strict: bool = False, force: bool = False, **files: str
) -> Callable[[Command], Command]:
    """Files that a command may write, with their help, --force, --json and perhaps --strict, handed
    on as one `Report`; --log-file and --debug. With `force` it writes where another option says."""
    options = {
        name: click.option(f"--{name}", metavar="FILE", help=help) for name, help in files.items()
    }
    options |= {"force": force_option} if files or force else {}
    options |= {"as_json": json_option}
    options |= {"strict": strict_option} if strict else {}

    def report_of(given: dict[str, Any]) -> Report:
        return Report({name: given.pop(name) for name in files}, **given)

    return together(handed_on("report", report_of, options), log_option, debug_option)


# --- single options -------------------------------------------------------------------------------

size_option = click.option(
    "-k", "k", type=Size(), required=True, help="How many items, or a fraction of them."
)
sizes_option = click.option(
    "-k",
    "k",
    type=Sizes(),
    required=True,
    help="How many items, or a fraction of them; several sizes as 100,500,1000.",
)
plan_option = click.option(
    "--plan", is_flag=True, help="Print what this would take, and run nothing."
)
seed_option = library_option("random_state", "--seed", "seed", type=click.IntRange(min=0))
random_state_option = library_option(
    "random_state", "--seed", "random_state", type=click.IntRange(min=0)
)
effort_option = library_option("effort", type=click.Choice(EFFORTS))
relaxing_options = together(
    library_option("solver"),
    library_option("alpha", type=float),
    library_option("sigma", type=float),
    library_option("start", type=click.Choice(STARTS)),
    library_option("tol", type=float),
    library_option("max_steps", type=click.IntRange(min=1)),
)
rounding_options = together(
    relaxing_options,
    library_option("oversampling", type=click.FloatRange(min=1)),
    library_option("passes", type=click.IntRange(min=0)),
)
gap_option = library_option("gap", type=_POSITIVE)
time_limit_option = library_option("time_limit", type=_POSITIVE, metavar="SECONDS")
memory_limit_option = library_option("memory_limit", metavar="SIZE")
search_options = together(
    library_option("method"),
    effort_option,
    rounding_options,
    library_option("certify", "--certify/--no-certify", show_default=False, note=" [default: yes]"),
    gap_option,
    library_option("target_efficiency", type=click.FloatRange(0, 1, min_open=True)),
    library_option("node_limit", type=click.IntRange(min=1)),
    library_option(
        "hierarchical",
        type=Shards(),
        is_flag=False,
        flag_value=SHARDS_OF_THE_POOL,
        show_default=False,
        metavar="[SHARDS]",
    ),
    time_limit_option,
    memory_limit_option,
    library_option("checkpoint", metavar="FILE"),
)
