"""How text from outside is shown: ids, names, addresses and what other libraries say of them.

Every error and every line of a command goes through `shown`, so that no caller has to think of it:
nothing in a file moves the cursor of a terminal, and no address tells its password.
"""

import re
from collections.abc import Sequence

# C0, DEL, C1, what has no width or turns the direction of text, breaks of lines, half characters.
# A joiner between two pictures stays, as it makes one emoji of them.
_EMOJI = "\u2190-\u2bff\U0001f000-\U0001faff"
_HIDDEN = re.compile(
    rf"(?!(?<=[{_EMOJI}\ufe0f])\u200d[{_EMOJI}])"
    "[\\x00-\\x1f\\x7f-\\x9f\\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f"
    "\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0000-\U000e00ff\ud800-\udfff]"
)
_SCHEME = re.compile(  # `Path` drops a slash
    r"(?:[a-z][a-z0-9+.-]{1,30}:/|(?:s3|gc?s|abfss?|hdfs|https?|ray|file):)/+", re.I
)
_ADDRESS = re.compile(_SCHEME.pattern + r"\S*", re.I)
_CLOSING = ")'\",;:."  # what follows an address within a sentence
_HOST = re.compile(r"(\[[^]]*\]|[^:@\[\]]*)(:(\d*|PORT))?")  # or the word in our own advice


def shown(text: object) -> str:
    """A line as a person may see it: addresses without secrets, controls as \\x1b and the like."""
    return visible(_ADDRESS.sub(lambda found: shown_uri(found[0]), str(text)))


def visible(text: object) -> str:
    """Without the controls alone: ids that are the answer, be they addresses, are whole."""
    return _HIDDEN.sub(_escape, str(text))


def listed(names: Sequence[object], most: int = 12) -> str:
    """Names with commas between them; of many the first."""
    return ", ".join(map(str, names[:most])) + (", ..." if len(names) > most else "")


def shown_uri(text: str) -> str:
    """Scheme, host and path of an address; never a user, a password, options or a fragment.

    Of an address that cannot be taken apart with certainty, since a password may hold any
    character, less is shown. A path that is no address stays as it is.
    """
    scheme = _SCHEME.search(text)
    if scheme is None:
        return text
    before, rest = text[: scheme.end()], text[scheme.end() :]
    bare = rest.rstrip(_CLOSING)
    place, *options = re.split("[?#]", bare, maxsplit=1)
    host, slash, path = place.rpartition("@")[2].partition("/")
    if not _HOST.fullmatch(host) or "@" in "".join(options):  # "?" may be part of a password
        host, slash, path = "...", "", ""
    return f"{before}{host}{slash}{path}{rest[len(bare) :]}"


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode("ascii")
