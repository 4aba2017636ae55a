"""JSON that was stored: what every reader of it refuses."""

import json
import os

import pytest

from fairnepv.errors import InputError
from fairnepv.io.documents import DEEPEST, parse_document, read_document

REFUSED = {
    "nothing": b"",
    "NaN": b'{"n": NaN}',
    "Infinity": b"[-Infinity]",
    "a number without bounds": b"[1e999]",
    "a whole number without bounds": b"[" + b"9" * 5000 + b"]",
    "more than anything counts": b"[" + b"1" * 41 + b"]",
    "a name twice": b'{"n": 1, "n": 2}',
    "a name twice inside": b'[{"a": {"n": 1, "n": 1}}]',
    "too deep": b"[" * 100_000,
    "a little too deep": b"[" * (DEEPEST + 1) + b"1" + b"]" * (DEEPEST + 1),
    "too deep in objects": b'{"a":' * 500 + b"1" + b"}" * 500,
    "half a letter": b'{"name": "\\ud800"}',
    "half a letter in a name": b'{"\\udfff": 1}',
    "no text": b"\xff\xfe\xff",
}


@pytest.mark.parametrize("content", REFUSED.values(), ids=REFUSED)
def test_what_no_document_has_is_one_sentence(tmp_path, content):
    file = tmp_path / "a.json"
    file.write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_document(file, "make it again")
    said = str(caught.value)
    assert said.startswith(f"{file} cannot be read (")
    assert said.endswith("make it again")
    assert len(said) < len(str(file)) + 120


def test_what_python_writes_is_read_back():
    deep: object = 1
    for _ in range(DEEPEST):
        deep = [deep]
    document = {
        "a": [1, -2.5e-300, None, True, "\u00e9\U0001f600"],
        "b": {},
        "c": [2**63, -(2**63)],
    }
    assert parse_document(json.dumps(document).encode()) == document
    assert parse_document(json.dumps(deep).encode()) == deep


def test_a_document_has_a_size(tmp_path):
    file = tmp_path / "a.json"
    file.write_bytes(b"{" + b" " * 1024)
    with pytest.raises(InputError, match=r"has more than .* which is not read; make it again"):
        read_document(file, "make it again", most=1024)


def test_a_pipe_is_no_document(tmp_path):
    os.mkfifo(tmp_path / "a.json")
    with pytest.raises(InputError, match="is a pipe"):
        read_document(tmp_path / "a.json", "make it again")
