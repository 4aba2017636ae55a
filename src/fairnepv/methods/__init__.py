"""Methods by name: ours and the baselines, what each refuses, and the search in two tiers."""

from fairnepv.methods.nepv import Nepv as Nepv
from fairnepv.methods.nepv import check_nepv as check_nepv
from fairnepv.methods.nepv import round_by_leverage as round_by_leverage
from fairnepv.methods.selectors import APART as APART
from fairnepv.methods.selectors import OWN_METHODS as OWN_METHODS
from fairnepv.methods.selectors import check_method as check_method
from fairnepv.methods.selectors import find as find
from fairnepv.methods.selectors import known_method as known_method
from fairnepv.methods.selectors import refusal as refusal
from fairnepv.methods.selectors import set_apart as set_apart
