"""Rules by which a description is cleaned: few, stated, and only of what is surely no wording.

`RULES` is what corpus.json quotes; the original always stays beside the cleaned text.
"""

from __future__ import annotations

import re
import unicodedata

VERSION = 1  # of the rules: parts that were made under others are made again
RULES = {
    "characters": "Unicode NFC; control and zero-width characters removed",
    "quotes": "curly, low and doubled single quotes become \" or '",
    "spaces": "every run of white space becomes one space, none at the ends",
    "lead-ins": "of 'The mark consists of The design consists of' the first lead-in stays",
    "full stops": "two full stops become one; three or more stay",
    "design codes": "a list of design codes at the end, introduced as such, is dropped",
    "words": "pieces between spaces, counted in the cleaned text",
}

_QUOTES = str.maketrans({**dict.fromkeys("“”„‟«»″", '"'), **dict.fromkeys("‘’‚‛′`", "'")})
_INVISIBLE = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\u00ad\u200b-\u200f\u2060\ufeff]")
_LEAD_IN = r"the (?:mark|design|logo|drawing|trademark) consists (?:of|in)\b[:,]? ?"
_LEAD_INS = re.compile(rf"^({_LEAD_IN})(?:{_LEAD_IN})+", re.IGNORECASE)
_STOPS = re.compile(r"(?<!\.)(?<!\. )\. ?\.(?! ?\.)")
_CODE = r"\d{2}[.\- ]?\d{2}[.\- ]?\d{2}"
# Every blank can be matched in one way only, so that no text takes long.
_CODES = re.compile(
    rf"(?<![\s;,(\[])[\s;,(\[]*\b(?:uspto )?design (?:search )?codes?\s*(?:[:=-]\s*)?{_CODE}"
    rf"(?:\s*(?:[,;&]\s*)?(?:and )?{_CODE})*[)\].\s]*$",
    re.IGNORECASE,
)


def clean(original: str) -> str:
    """The text by which an item is known, after `RULES`."""
    text = unicodedata.normalize("NFC", original).translate(_QUOTES).replace("''", '"')
    text = " ".join(_INVISIBLE.sub("", text).split())
    text = _LEAD_INS.sub(r"\1", text)
    text = _CODES.sub("", text)
    return _STOPS.sub(".", text).strip()


def count_words(text: str) -> int:
    return len(text.split())
