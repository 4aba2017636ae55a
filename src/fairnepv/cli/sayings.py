"""What the library says, in the words of the command line: `--time-limit`, and not time_limit.

The library names options as Python has them. A command says the same sentence with the names that
its user has typed, or could type.
"""

import re
from collections.abc import Collection, Sequence

import click

from fairnepv.options import ALL

# Options that a command calls otherwise than the library; all others are --NAME with hyphens.
_CALLED = {"random_state": "--seed", "views": "--view", "methods": "--method", "k": "-k"}
_CALLED |= {"priorities": "--priority", "quotas": "--quota", "floors": "--floor"}
_CALLED |= {"include_counts": "--k-more"}
# What is no name and a value: remedies that a command has in another form.
_REMEDIES = {
    "include_counts=False": "--k-more",
    "certify=False": "--no-certify",
    "leave certify on": "leave --no-certify out",
    "center=False": "--no-center",
    "center=True": "--center",
    "ids={view: row ids}": "--ids NAME=FILE for each view",
    "quality=typicality(data)": "--quality, such as those of fairnepv.typicality",
    "quality=None": "no --quality",
    "k=[100, 500]": "-k 100,500",
    "TorchEngine(memory=BYTES)": "an engine of Python with less memory",
}
_NAMES = "|".join(sorted({*ALL, "k"}, key=len, reverse=True))
_ALONE = rf"(?<![-\w./])({_NAMES})"  # and no part of a word, an option or a path
_VALUE = re.compile(rf"{_ALONE}=('?)([\w.:/-]+)\2")
_EQUALS = re.compile(rf"{_ALONE} = (?=\S)")
_VERBS = "must|is|are|has|have|name|names|needs|need|brings|repeat|ran|reach|ask|allow|makes"
_SUBJECT = re.compile(rf"(^|: |; |, but |and )({_NAMES}) ({_VERBS})\b")
# What is many in Python, as ids are, is one option here.
_OF_ONE = {"are": "is", "have": "has", "name": "names", "need": "needs", "repeat": "repeats"}
_OF_ONE |= {"reach": "reaches", "ask": "asks", "allow": "allows"}
_REMEDY = re.compile(rf"\b(raise|lower|loosen|drop|pass|give a|positive|least) ({_NAMES})\b(?! of)")
_LONG = re.compile(rf"(?<![-\w./])({'|'.join(name for name in ALL if '_' in name)})(?!\w|[/.]\w)")
_QUOTED = re.compile(r"('[^']*')")


def is_of_ours(context: click.Context | None = None) -> bool:
    """Whether the command that runs is one of this package: those of others, which join it, have
    options of their own."""
    context = context or click.get_current_context(silent=True)
    if context is None:
        return False
    root = context.find_root()
    ours = root.command.commands if isinstance(root.command, click.Group) else {}
    return root.invoked_subcommand in ours


def flag_of(name: str) -> str:
    """What a command calls an option of the library."""
    return _CALLED.get(name, f"--{name.replace('_', '-')}")


def in_our_words(text: str, typed: Sequence[str] = ()) -> str:
    """A sentence of the library as a command says it; what is quoted stays as it is, and so does
    the name of a file that is called like an option, where it is among the words `typed`."""
    names = {name for word in typed for name in re.split("[=:,]", word)}
    for theirs, ours in _REMEDIES.items():
        text = text.replace(theirs, ours)
    text = _VALUE.sub(lambda found: f"{flag_of(found[1])} {found[3]}", text)
    parts = _QUOTED.split(text)
    parts[::2] = (_outside_quotes(part, names) for part in parts[::2])
    return "".join(parts)


def _outside_quotes(text: str, names: Collection[str]) -> str:
    def subject(found: re.Match[str]) -> str:
        if found[2] in names:
            return found[0]
        verb = found[3] if found[1] == "and " else _OF_ONE.get(found[3], found[3])
        return f"{found[1]}{flag_of(found[2])} {verb}"

    text = _EQUALS.sub(lambda found: f"{flag_of(found[1])} ", text)
    text = _SUBJECT.sub(subject, text)
    text = _REMEDY.sub(lambda found: f"{found[1]} {flag_of(found[2])}", text)
    return _LONG.sub(lambda found: flag_of(found[1]), text)
