"""`certify` and `verify_bound`: what no k items can exceed, and whether that is so."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Unpack

from fairnepv.api.calibration import check_calibration
from fairnepv.api.inputs import pool_of, pose, ridges_for, with_engine
from fairnepv.api.plan import pose_within_limit
from fairnepv.api.search import FLOORS, check_search, prove, warn_of_ranks
from fairnepv.api.selection import Selection
from fairnepv.api.tables import from_tables
from fairnepv.checks import brief
from fairnepv.compute.clock import apart
from fairnepv.concave import (
    Certificate,
    Proof,
    Terms,
    Verified,
    check_proof,
    refuse_unreachable_floors,
)
from fairnepv.errors import InputError
from fairnepv.loop import Context
from fairnepv.loop.bars import telling
from fairnepv.options import DIVERSE, CertifyOptions, ProblemOptions, SelectOptions
from fairnepv.problem import Problem
from fairnepv.signatures import checked, completed, part, takes
from fairnepv.views import Pool
from fairnepv.views.intake import named_views

# Of what poses a problem, what belongs to its data.
_READ = ("views", "quality", "missing", "ids", "align", "engine")


@takes(CertifyOptions)
@telling
@apart
@from_tables
def certify(data: Any, k: int | float, **options: Unpack[CertifyOptions]) -> Certificate:
    """What no k items can exceed: a proven bound on F_tau, and on every view alone.

    data, k: as for `select`; k is one size.
    """
    given = checked("certify", CertifyOptions, options)
    bounded = completed("certify", SelectOptions, part(SelectOptions, given))
    asked = with_engine(check_search(bounded))
    session = Context(time_limit=given["time_limit"], progress=given["progress"])
    problem = pose_within_limit(data, k, asked, (), session)
    certificate = certify_posed(problem, given, session)
    warn_of_ranks(problem, certificate)
    return certificate


def certify_posed(
    problem: Problem, options: CertifyOptions, session: Context | None = None
) -> Certificate:
    """`certify` for a problem that is posed already, by complete options; the session is that of
    the call that has posed it."""
    own = session or Context(time_limit=options["time_limit"], progress=options["progress"])

    def proven() -> Certificate:
        with own.share(FLOORS):
            refuse_unreachable_floors(problem, own)
        return prove(problem, options["gap"], own)

    certificate = own.despite_interruption(proven)
    return replace(certificate, notes=(*certificate.notes, *own.notes))


@takes(ProblemOptions)
@apart
@from_tables
def verify_bound(
    data: Any,
    certificate: Certificate | Proof | Selection,
    *,
    k: int | float | None = None,
    **options: Unpack[ProblemOptions],
) -> Verified:
    """What the dual variables of a certificate prove for this data, whoever made them.

    A certificate brings the terms of its problem along: k, tau, eps, center, calibration,
    constraints, priorities. Means and the numbers of a calibration are computed again from the data
    and its rule, and the latter refused where they differ, if it has a rule: explicit factors have
    none, nor has a calibration that was cut short. These and the other terms are the question,
    which only you can know: they are in the result (`claimed.terms`), and whatever of them you hand
    in is compared with them.

    Of the options give views, ids, quality and engine as they were, and any other term that the
    certificate should have; those that are left out are not compared.
    """
    completed("verify_bound", ProblemOptions, options)  # refuses what is no option
    if isinstance(certificate, Selection):
        certificate = certificate.certificate  # type: ignore[assignment]
    proof = certificate.proof if isinstance(certificate, Certificate) else certificate
    if not isinstance(proof, Proof):
        raise InputError(
            "verify_bound needs a certificate: the result of certify(), a selection that has one, "
            f"or what was read from a stored bound, not {brief(proof)}"
        )
    terms = proof.terms
    pool = _pool_of_terms(data, terms, options)
    _refuse_other_terms(terms, data, k, options)
    expected = options.get("calibration")
    check_calibration(pool, terms.calibration, expected, terms.k, terms.constraints)
    return check_proof(pool, proof)


def _pool_of_terms(data: Any, terms: Terms, options: Mapping[str, Any]) -> Pool:
    """The data under the ridges of the terms; views that bring one of their own keep it."""
    given = named_views(data, options.get("views"))
    terms.check_views(tuple(given))
    eps = ridges_for(given, terms.eps)
    posed = {"eps": eps, "center": terms.calibration.center, "calibration": None}
    pool = pool_of(data, {**options, **posed})
    terms.check_pool(pool)
    return pool


def _refuse_other_terms(terms: Terms, data: Any, k: Any, options: ProblemOptions) -> None:
    """Refuse terms that differ from those which the caller has named."""
    if other := sorted({"floors", "random_state"} & set(options)):
        raise InputError(f"a bound has no {other[0]}; leave it out")
    expected = set(options) - {*_READ, "calibration"}  # which is checked by itself
    expected -= {"center"} if options.get("center") is None else set()
    if k is None and not expected:
        return
    # Scales do not matter here, but of shares second moments are made, which ask for moderate ones.
    diverse = options.get("objective", DIVERSE) == DIVERSE
    plain: ProblemOptions = {**options, "calibration": "none" if diverse else "trace"}
    posed = Terms.of(pose(data, terms.k if k is None else k, **plain))
    expected |= {"k"} if k is not None else set()
    expected |= {"exclude"} if expected & {"deduplicate"} else set()
    expected |= {"quotas"} if "groups" in expected else set()
    terms.refuse_other(posed, names=expected)
