"""Text from outside as it is shown: nothing in it is obeyed, and no address tells a secret."""

import pickle
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairnepv import InputError
from fairnepv.display import shown, shown_uri


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("\x1b[31mred\x07", r"\x1b[31mred\x07"),
        ("a\nb\tc\rd\x00\x7f", r"a\nb\tc\rd\x00\x7f"),
        ("\x9b31m\x85", r"\x9b31m\x85"),
        ("\u202efdp.exe\u2066\u200f\u061c", r"\u202efdp.exe\u2066\u200f\u061c"),
        ("a\u200bb\u200cc\u200dd\ufeff\u2060\xad", r"a\u200bb\u200cc\u200dd\ufeff\u2060\xad"),
        ("\u2028\u2029\ud800", r"\u2028\u2029\ud800"),
        ("\U000e0041\u3164", r"\U000e0041\u3164"),
    ],
)
def test_controls_are_made_visible(text, seen):
    assert shown(text) == seen


@pytest.mark.parametrize(
    "text",
    [
        "",
        "plain",
        "Zürich, Ærø",
        "日本語　東京",
        "עברית",
        "हिन्दी",
        "👩🏽‍🔬 👨‍👩‍👧 🏳️‍🌈 🙂‍↔️ ❤️",
        "a\xa0b",
        r"C:\new",
    ],
)
def test_ordinary_text_stays_as_it_is(text):
    assert shown(text) == text


def test_no_control_of_unicode_is_left():
    kinds = {"Cc", "Cs", "Zl", "Zp"}
    turning = {"BN", "RLE", "LRE", "RLO", "LRO", "PDF", "RLI", "LRI", "FSI", "PDI"}
    for code in range(0x110000):
        letter = chr(code)
        if unicodedata.category(letter) in kinds or unicodedata.bidirectional(letter) in turning:
            assert shown(letter).isascii(), hex(code)


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("s3://bucket/a.npy", "s3://bucket/a.npy"),
        ("s3://SECRET@bucket/a.npy:key", "s3://bucket/a.npy:key"),
        ("s3://me:SECRET@bucket/a.npy", "s3://bucket/a.npy"),
        ("s3://me:SE/CRET@bucket/a.npy", "s3://bucket/a.npy"),
        ("s3://me:1/SECRET@bucket/a.npy", "s3://bucket/a.npy"),
        ("s3://me:SE?CRET@bucket/a.npy", "s3://..."),
        ("s3://me:SE#CRET@bucket/a.npy", "s3://..."),
        ("s3://me:SECRET%40bucket/a.npy", "s3://..."),
        ("s3://me:SE CRET@bucket/a.npy", "s3://bucket/a.npy"),
        ("https://host:80/a?sig=SECRET&x=1#SECRET", "https://host:80/a"),
        ("https://host/a?sig=SEC@RET", "https://..."),
        ("ray://me:SECRET@host:10001", "ray://host:10001"),
        ("ray://HOST:PORT", "ray://HOST:PORT"),
        ("hdfs://[::1]:8020/x", "hdfs://[::1]:8020/x"),
        ("s3:/me:SECRET@bucket/a.npy", "s3:/bucket/a.npy"),
        ("pool.npz:/a:b@c?d", "pool.npz:/a:b@c?d"),
        ("/data/a@b?c#d.npy", "/data/a@b?c#d.npy"),
    ],
)
def test_an_address_is_scheme_host_and_path(text, seen):
    assert shown_uri(text) == seen
    assert shown_uri(seen) == seen
    if " " not in text:
        assert shown(f"--view a={text}: '{text}', no") == f"--view a={seen}: '{seen}', no"


@settings(max_examples=30)
@given(st.text())
def test_showing_twice_changes_nothing(text):
    assert shown(shown(text)) == shown(text)


def test_long_texts_are_shown_in_no_time():
    """Patterns that try every way to match would take hours."""
    assert shown("a" * 10**5) == "a" * 10**5
    assert shown("s3://" + ":" * 10**5 + "x") == "s3://..."
    assert shown("s3://a@" * 10**4) == "s3://"


def test_errors_have_nothing_to_hide():
    error = InputError("s3://me:SECRET@bucket/a \x1b[2J")
    assert str(error) == r"s3://bucket/a \x1b[2J"
    assert "SECRET" not in repr(error)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
