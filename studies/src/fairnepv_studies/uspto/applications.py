"""Case files of simulated applications as XML that is valid under the register's DTD."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib import resources
from xml.sax.saxutils import escape

from fairnepv_studies.uspto.records import ROOT, SIMULATED

DTD = "data/trademark-applications-daily-v2.0.dtd"
_CREATED = "202501010000"  # the same in every file: nothing here depends on a clock
_NO = (
    "principal-register-amended-in", "supplemental-register-amended-in", "trademark-in",
    "collective-trademark-in", "service-mark-in", "collective-service-mark-in",
    "collective-membership-mark-in", "certification-mark-in", "cancellation-pending-in",
    "published-concurrent-in", "concurrent-use-in", "concurrent-use-proceeding-in",
    "interference-pending-in", "opposition-pending-in", "section-12c-in", "section-2f-in",
    "section-2f-in-part-in", "renewal-filed-in", "section-8-filed-in",
    "section-8-partial-accept-in", "section-8-accepted-in", "section-15-acknowledged-in",
    "section-15-filed-in", "supplemental-register-in", "foreign-priority-in",
    "change-registration-in", "intent-to-use-in", "intent-to-use-current-in",
    "filed-as-use-application-in", "amended-to-use-application-in",
    "use-application-currently-in", "amended-to-itu-application-in",
    "filing-basis-filed-as-44d-in", "amended-to-44d-application-in",
    "filing-basis-current-44d-in", "filing-basis-filed-as-44e-in",
    "filing-basis-current-44e-in", "amended-to-44e-application-in",
    "without-basis-currently-in", "filing-current-no-basis-in", "color-drawing-filed-in",
    "color-drawing-current-in", "drawing-3d-filed-in", "drawing-3d-current-in",
    "standard-characters-claimed-in", "filing-basis-filed-as-66a-in",
    "filing-basis-current-66a-in",
)  # fmt: skip
_FLAGS = "".join(f"<{name}>F</{name}>" for name in _NO)


@dataclass(frozen=True)
class Case:
    """What a case file is made of; None leaves an element out."""

    serial: str
    transaction_date: int
    filing_date: str  # yyyymmdd
    mark: str | None
    drawing_code: str | None
    statements: list[tuple[str, list[str]]]  # type code and texts
    design_codes: list[str] = field(default_factory=list)


def case_xml(case: Case) -> str:
    statements = "".join(
        f"<case-file-statement><type-code>{code}</type-code>"
        + "".join(_element("text", text) for text in texts)
        + "</case-file-statement>"
        for code, texts in case.statements
    )
    searches = "".join(
        f"<design-search><code>{code}</code></design-search>" for code in case.design_codes
    )
    return (
        f"<case-file>{_element('serial-number', case.serial)}"
        "<registration-number>0000000</registration-number>"
        f"<transaction-date>{case.transaction_date}</transaction-date>"
        f"<case-file-header><filing-date>{case.filing_date}</filing-date>"
        f"<status-code>630</status-code><status-date>{case.filing_date}</status-date>"
        f"{_element('mark-identification', case.mark)}"
        f"{_element('mark-drawing-code', case.drawing_code)}"
        f"<attorney-name>SIMULATED</attorney-name>{_FLAGS}</case-file-header>"
        f"<case-file-statements>{statements}</case-file-statements>"
        "<case-file-event-statements><case-file-event-statement><code>NWAP</code><type>I</type>"
        "<description-text>NEW APPLICATION ENTERED</description-text>"
        f"<date>{case.filing_date}</date><number>1</number></case-file-event-statement>"
        "</case-file-event-statements><classifications><classification>"
        "<international-code>035</international-code><status-code>6</status-code>"
        "</classification></classifications><case-file-owners><case-file-owner>"
        "<party-name>SIMULATED</party-name><country>US</country></case-file-owner>"
        f"</case-file-owners><design-searches>{searches}</design-searches></case-file>\n"
    )


def document(cases: Iterable[str]) -> bytes:
    """A whole document with its DTD inside, as the register's are."""
    label = SIMULATED.decode()
    return "".join(
        [
            '<?xml version="1.0" encoding="utf-8"?>\n',
            f"<!-- {label}: procedurally made, no record of any trademark office -->\n",
            f"<!DOCTYPE {ROOT} [\n{dtd()}]>\n<{ROOT}><version><version-no>2.0</version-no>",
            "<version-date>20041108</version-date></version>",
            f"<creation-datetime>{_CREATED}</creation-datetime><application-information>",
            "<file-segments><file-segment>TRMK</file-segment><action-keys>",
            "<action-key>TX</action-key>\n",
            *cases,
            f"</action-keys></file-segments></application-information></{ROOT}>\n",
        ]
    ).encode()


@functools.cache
def dtd() -> str:
    return resources.files("fairnepv_studies.uspto").joinpath(DTD).read_text("utf-8")


def _element(name: str, text: str | None) -> str:
    """Line ends as references: a parser would make one of two."""
    if text is None:
        return ""
    return f"<{name}>{escape(text, {chr(13): '&#13;', chr(34): '&quot;'})}</{name}>"
