"""Rows that are not on a local disk: the same rows, only those, and one sentence where there is
trouble."""

import json
import pickle
import re
import socket
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fairnepv
from fairnepv import InputError
from fairnepv.cli import commands
from fairnepv.io import manifest, places, ranges, table_rows
from fairnepv.io.conversion import convert
from fairnepv.io.manifest import verify
from fairnepv.io.places import RemotePath
from fairnepv.io.read import converted_ids, id_column, read_features, read_ids
from fairnepv.io.rows import MappedRows
from fairnepv.io.source import Source, split_source
from object_store import PAGE, Bucket
from row_files import FORMATS, fixed_lists, table, write_parquet, write_shards

N, P = 11, 3
ROWS = np.random.default_rng(0).standard_normal((N, P))
REMOTE = [name for name in FORMATS if not name.startswith("arrow") and name != "data set"]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def server():
    with Bucket() as bucket:
        yield bucket


@pytest.fixture
def bucket(server):
    server.objects.clear()
    server.requests.clear()
    yield server
    server.refusing = None


def put(bucket: Bucket, text: str) -> str:
    """The URI of PATH[:PART], uploaded."""
    source = split_source(text)
    bucket.upload(source.path)
    return bucket.uri(source.path.name, source.part)


def gets(bucket: Bucket) -> list[tuple[int, int]]:
    """The ranges that were fetched since this was asked last."""
    spans = [span for verb, _, span, _ in bucket.requests if verb == "GET" and span]
    bucket.requests.clear()
    ends = (re.findall(r"\d+", span) for span in spans)
    return sorted((int(first), int(last)) for first, last in ends)


# --- URIs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "root", "inner", "part", "options"),
    [
        ("s3://b/a.npy", "s3://b", "a.npy", None, ""),
        ("s3://b", "s3://b", "", None, ""),
        ("S3://B/A.npy", "s3://B", "A.npy", None, ""),
        ("s3://b/x/y/", "s3://b", "x/y", None, ""),
        ("s3://b/x:img_emb", "s3://b", "x", "img_emb", ""),
        ("s3://b/t.parquet:e/f:g", "s3://b", "t.parquet", "e/f:g", ""),
        ("s3://b/8%3A30/a%20b.npy", "s3://b", "8:30/a b.npy", None, ""),
        ("s3://b/t.parquet:e?region=x", "s3://b", "t.parquet", "e", "region=x"),
        ("s3://b/what%3F%23.npy", "s3://b", "what?#.npy", None, ""),
        ("gs://me@b/a.npy?scheme=http", "gs://me@b", "a.npy", None, "scheme=http"),
        ("hdfs://host:8020/x:e", "hdfs://host:8020", "x", "e", ""),
        ("hdfs://[::1]:8020/x", "hdfs://[::1]:8020", "x", None, ""),
        ("hdfs://[::1]/x@y:e", "hdfs://[::1]", "x@y", "e", ""),
        (
            "abfs://c@a.net/x?credential_kind=cli",
            "abfs://c@a.net",
            "x",
            None,
            "credential_kind=cli",
        ),
    ],
)
def test_a_uri_has_a_place_a_part_and_options(text, root, inner, part, options):
    assert split_source(text) == Source(RemotePath(root, inner, options), part)


def test_file_uris_are_local_files(folder):
    np.save("a b.npy", ROWS)
    write_parquet("t.parquet", table(fixed_lists(ROWS)))
    read = fairnepv.open_rows(f"file://{folder}/a%20b.npy")
    assert isinstance(read, MappedRows)
    np.testing.assert_array_equal(read[2:5], ROWS[2:5])
    np.testing.assert_array_equal(fairnepv.open_rows(f"FILE://{folder}/t.parquet:rows"), ROWS)
    with pytest.raises(InputError, match="write the whole path behind file://"):
        fairnepv.open_rows("file://a.npy")


def test_a_local_path_with_a_colon_is_a_local_path(folder):
    (folder / "s3:").mkdir()
    np.save("s3:/a:b.npy", ROWS)
    for text in ("s3:/a:b.npy", "./s3:/a:b.npy", Path("s3://a:b.npy")):
        np.testing.assert_array_equal(fairnepv.open_rows(text), ROWS)


# --- the same rows --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", REMOTE)
@pytest.mark.parametrize("budget", [0, 1 << 20])
def test_every_format_gives_the_rows_that_were_written(name, budget, bucket, monkeypatch):
    monkeypatch.setattr(table_rows, "KEPT_BYTES", budget)
    read = fairnepv.open_rows(put(bucket, FORMATS[name](ROWS)))
    assert (read.shape, read.dtype) == (ROWS.shape, ROWS.dtype)
    np.testing.assert_array_equal(np.asarray(read), ROWS)
    for start, stop in [(0, 0), (0, 1), (2, 9), (10, 11), (5, 5)]:
        np.testing.assert_array_equal(read[start:stop], ROWS[start:stop])
    for indices in ([], [0], [-1, 0], [10, 3, 3, 7, 0]):
        np.testing.assert_array_equal(read[np.array(indices, dtype=np.int64)], ROWS[indices])
    travelling = pickle.dumps(read)
    again = pickle.loads(travelling)
    np.testing.assert_array_equal(again[2:9], ROWS[2:9])


def test_bfloat16_is_widened(bucket):
    from row_files import write_safetensors

    halves = (ROWS.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    write_safetensors("b.safetensors", {"x": ("BF16", halves.shape, halves.tobytes())})
    read = fairnepv.open_rows(put(bucket, "b.safetensors:x"))
    expected = (halves.astype(np.uint32) << 16).view(np.float32)
    np.testing.assert_array_equal(read[1:7], expected[1:7])
    np.testing.assert_array_equal(read[[9, 1]], expected[[9, 1]])


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    n=st.integers(0, 30),
    p=st.integers(1, 4),
    fortran=st.booleans(),
    kind=st.sampled_from(["f2", "f4", ">f8", "u1"]),
    largest=st.integers(1, 64),
    hole=st.integers(0, 40),
    data=st.data(),
)
def test_any_slice_and_any_rows(n, p, fortran, kind, largest, hole, data, bucket, monkeypatch):
    """However requests are cut and joined."""
    rows = np.arange(n * p, dtype=np.float32).reshape(n, p).astype(kind)
    np.save("any.npy", np.asfortranarray(rows) if fortran else rows)
    monkeypatch.setattr(ranges, "_LARGEST", largest)
    monkeypatch.setattr(ranges, "_HOLE", hole)
    read = fairnepv.open_rows(put(bucket, "any.npy"))
    start, stop = data.draw(st.integers(-n, n)), data.draw(st.integers(-n, n))
    np.testing.assert_array_equal(read[start:stop], rows[start:stop])
    if n:
        chosen = data.draw(st.lists(st.integers(-n, n - 1), max_size=12))
        np.testing.assert_array_equal(read[np.array(chosen, dtype=np.int64)], rows[chosen])


def test_listings_of_several_pages_and_folders_without_rows(bucket):
    write_shards("shards", ROWS, size=1)
    uri = put(bucket, "shards")
    np.testing.assert_array_equal(fairnepv.open_rows(uri), ROWS)
    bucket.put("empty/readme.md", b"nothing")
    with pytest.raises(InputError, match=r"s3://pool/empty is a folder without rows"):
        fairnepv.open_rows(bucket.uri("empty"))
    del bucket.objects["shards/img_emb_4.npy"]
    with pytest.raises(InputError, match=r"shards/img_emb_4.npy is missing between"):
        fairnepv.open_rows(uri)


# --- only the rows that are asked for -------------------------------------------------------------


def test_rows_come_by_ranges_and_those_close_together_in_one(bucket, monkeypatch):
    rows = np.arange(4000.0).reshape(1000, 4)  # 32 bytes each, behind a header of 128
    np.save("a.npy", rows)
    read = fairnepv.open_rows(put(bucket, "a.npy"))
    monkeypatch.setattr(ranges, "_HOLE", 320)
    gets(bucket)
    read[10:20]
    assert gets(bucket) == [(128 + 320, 128 + 640 - 1)]
    read[[500, 3, 9, 505, 3]]
    assert gets(bucket) == [(128 + 96, 128 + 320 - 1), (128 + 16000, 128 + 16192 - 1)]
    monkeypatch.setattr(ranges, "_LARGEST", 1000)  # 125 numbers
    read[0:100]
    assert gets(bucket) == [(a, min(a + 1000, 3328) - 1) for a in range(128, 3328, 1000)]


def test_opening_a_folder_reads_headers_alone(bucket):
    rows = np.random.default_rng(1).standard_normal((40_000, 32))
    write_shards("shards", rows, size=10_000)  # 2.5 MB each
    uri = put(bucket, "shards")
    read = fairnepv.open_rows(uri)
    fetched = gets(bucket)
    assert len(fetched) == 4
    assert sum(last - first + 1 for first, last in fetched) <= 4 * places._BUFFER
    np.testing.assert_array_equal(read[[25_000]], rows[[25_000]])
    assert sum(last - first + 1 for first, last in gets(bucket)) == 32 * 8


def test_parquet_is_read_by_row_groups(bucket, monkeypatch):
    monkeypatch.setattr(table_rows, "KEPT_BYTES", 0)
    rows = np.random.default_rng(1).standard_normal((4000, 64))
    write_parquet("t.parquet", table(fixed_lists(rows)), 1000)
    read = fairnepv.open_rows(put(bucket, "t.parquet:rows"))
    gets(bucket)
    np.testing.assert_array_equal(read[1200:1300], rows[1200:1300])
    fetched = sum(last - first + 1 for first, last in gets(bucket))
    assert fetched < 1.5 * rows[:1000].nbytes


def test_what_travels_is_the_uri(bucket):
    rows = np.random.default_rng(1).standard_normal((5000, 16))
    np.save("a.npy", rows)
    read = fairnepv.open_rows(put(bucket, "a.npy"))
    read[0:10]
    content = pickle.dumps(read)
    assert len(content) < 2000
    assert b"endpoint_override" in content
    np.testing.assert_array_equal(pickle.loads(content)[4000:], rows[4000:])


COMMANDS = ("npy", "npz", "safetensors", "shards", "parquet, lists", "tables", "converted")


def _remote(name: str, bucket: Bucket) -> str:
    """A view of any kind; tables have a column id."""
    if name == "converted":
        np.save("a.npy", ROWS)
        Path("ids.txt").write_text("".join(f"n{i}\n" for i in range(N)))
        convert(["a.npy"], "rows", ids="ids.txt", rows_per_shard=4)
        return put(bucket, "rows")
    if name == "tables":
        Path("tables").mkdir()
        for part in (0, 1):
            write_parquet(f"tables/part_{part}.parquet", table(fixed_lists(ROWS)))
        return put(bucket, "tables:rows")
    return put(bucket, FORMATS[name](ROWS))


@pytest.mark.parametrize("name", COMMANDS)
def test_nothing_that_a_source_says_of_itself_is_asked_for_twice(name, bucket):
    """What a command asks of a view before it looks at rows."""
    source = split_source(_remote(name, bucket))
    bucket.requests.clear()
    read_features(source)
    if converted_ids(source) is None:
        id_column(source)
    asked = [(key, span) for verb, key, span, _ in bucket.requests if verb == "GET" and key]
    assert len(set(asked)) == len(asked)
    listings = sum(verb == "GET" and not key for verb, key, *_ in bucket.requests)
    assert listings <= 1 + -(-len(bucket.objects) // PAGE)  # whether it is a folder; its pages
    kinds = [key for verb, key, *_ in bucket.requests if verb == "HEAD"]
    most = 5 if "parquet" in name or name == "tables" else 3  # it is opened for every purpose
    assert max(map(kinds.count, kinds)) <= most
    assert kinds.count(source.path.name) == 1 or not source.path.is_dir()


@pytest.mark.parametrize("name", ["a.npy", "t.parquet:rows", "rows"])
def test_a_selection_asks_for_a_header_once(name, bucket):
    many = np.random.default_rng(0).standard_normal((3000, 8))
    np.save("a.npy", many)
    write_parquet("t.parquet", table(fixed_lists(many)), 1000)
    if name == "rows":
        convert(["a.npy"], "rows", rows_per_shard=1000)
    uri = put(bucket, name)
    bucket.requests.clear()
    _select("--view", f"a={uri}", "-k", "2", "--effort=fast")
    headers = []
    for verb, key, span, _ in bucket.requests:
        if verb == "GET" and key:
            first, last = map(int, re.findall(r"\d+", span))
            size = len(bucket.objects[key][0])
            if last == size - 1 if key.endswith(".parquet") else first == 0:
                headers.append(key)
    assert sorted(headers) == sorted(bucket.objects)


# --- trouble --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["npy", "npz", "shards", "parquet, lists", "safetensors"])
@pytest.mark.parametrize("change", ["truncate", "rewrite", "remove"])
def test_a_file_that_changes_while_it_is_read_is_refused(name, change, bucket, monkeypatch):
    monkeypatch.setattr(table_rows, "KEPT_BYTES", 0)
    read = fairnepv.open_rows(put(bucket, FORMATS[name](ROWS)))
    np.testing.assert_array_equal(read[0:2], ROWS[0:2])
    for key, (content, changed) in list(bucket.objects.items()):
        if change == "truncate":
            bucket.put(key, content[:10])
        elif change == "rewrite":
            bucket.put(key, content, changed + 1)
        else:
            del bucket.objects[key]
    for action in (lambda: read[8:10], lambda: read[[9, 8]]):
        with pytest.raises(InputError, match="was changed or removed while it was being read"):
            action()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ftp://host/a.npy", r"ftp://host/a.npy cannot be opened \(Unrecognized .* one of s3://"),
        ("s3:/pool/a.npy", "s3:/pool/a.npy is no local file, and a URI has two slashes"),
        ("s3:/pool/folder", "s3:/pool/folder is no local file, and a URI has two slashes"),
        ("s3://pool/a.npy#word", "^(?!.*word).*s3://pool/a.npy is followed by what is no option"),
        ("s3://pool/a.npy?word", "^(?!.*word).*s3://pool/a.npy is followed by what is no option"),
        (
            "s3://pool/a.npy?endpoint_override=http://key:word@host",
            "^(?!.*word).*with the option 'endpoint_override', which would",
        ),
        ("s3://pool/a.npy?colour=red", "s3://pool has no option 'colour'; there are region"),
        ("s3://key@pool/a.npy", "s3://pool was given with a user; put credentials into"),
        ("s3://key:word@pool/a.npy", "^(?!.*key).*s3://pool/a.npy was given with a password"),
        ("gs://key%3Aword@pool/a.npy", "^(?!.*key).*gs://pool/a.npy was given with a password"),
        ("s3://key:x1/y2@pool/a.npy", "^(?!.*(x1|y2)).*s3://pool/a.npy was given with a password"),
        (
            "abfs://c@me.dfs/a.npy?sv=1&sig=word",
            "^(?!.*word).*me.dfs/a.npy was given with the option 'sig'",
        ),
        ("abfs://c@me.dfs/a?client_secret=word", "^(?!.*word,).*the option 'client_secret', which"),
        ("s3://pool/a.npy?secret_key=word", "^(?!.*=word).*the option 'secret_key', which would"),
        ("https://pool/a.npy?X-Amz-Date=1&X-Amz-Signature=word", "^(?!.*=word).*'X-Amz-Signature'"),
    ],
)
def test_addresses_that_cannot_be_are_refused(text, words):
    with pytest.raises(InputError, match=words):
        read_features(text)


def test_what_is_not_there_is_refused(bucket):
    bucket.put("a.npy", b"")
    with pytest.raises(InputError, match=r"a \.npy file has no parts"):
        read_features(bucket.uri("a.npy", "x"))
    for key, words in [
        ("no.npy", "s3://pool/no.npy does not exist; check the path"),
        ("no", "s3://pool/no has no ending and is no folder that exists"),
    ]:
        with pytest.raises(InputError, match=words):
            read_features(bucket.uri(key))
        other = bucket.uri(key).replace("pool", "elsewhere")
        with pytest.raises(InputError, match=words.replace("pool", "elsewhere")):
            read_features(other)


def test_who_may_not_read_is_told_where_credentials_come_from(bucket, monkeypatch):
    np.save("a.npy", ROWS)
    uri = put(bucket, "a.npy").replace("anonymous@", "") + "&region=there"
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "somebody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    read = fairnepv.open_rows(uri)
    assert all("Credential=somebody/" in signature for *_, signature in bucket.requests)
    bucket.refusing = 403
    for action in (lambda: read_features(uri), lambda: read[2:4]):
        with pytest.raises(InputError, match=r"may not be read .* put credentials into the env"):
            action()


def test_the_usual_variables_name_an_endpoint(bucket, monkeypatch):
    np.save("a.npy", ROWS)
    uri = put(bucket, "a.npy").partition("?")[0]
    endpoint = re.search(r"endpoint_override=([^&]*)", bucket.options)[1]
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{endpoint}")
    places._filesystem.cache_clear()
    np.testing.assert_array_equal(fairnepv.open_rows(uri), ROWS)
    places._filesystem.cache_clear()


def test_nobody_at_an_address_is_said(monkeypatch):
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # and does not listen
        options = f"endpoint_override=127.0.0.1:{silent.getsockname()[1]}&scheme=http&region=x"
        with pytest.raises(InputError, match=r"s3://b/a.npy cannot be reached .* network"):
            read_features(f"s3://anonymous@b/a.npy?{options}")
    monkeypatch.setattr(places, "_ANSWERS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as mute:  # listens, and says nothing
        options = f"endpoint_override=127.0.0.1:{mute.getsockname()[1]}&scheme=http&region=x"
        with pytest.raises(InputError, match=r"s3://b/a.npy gives no answer in 0 s"):
            read_features(f"s3://anonymous@b/a.npy?{options}")


def test_requests_to_s3_end_before_patience_does():
    """Or the process would wait for them when it ends."""
    assert places._ATTEMPTS * max(places._CONNECTS, places._RESPONDS) < places._ANSWERS < 30


@pytest.mark.parametrize("name", ["arrow, lists", "arrow stream", "data set"])
def test_arrow_files_are_for_local_disks(name, bucket):
    with pytest.raises(InputError, match="read from a local disk alone; copy it there, or write"):
        read_features(put(bucket, FORMATS[name](ROWS)))


def test_results_are_written_to_local_disks(bucket):
    np.save("a.npy", ROWS)
    line = ["select", "--view", "a=a.npy", "-k", "2", "--out", bucket.uri("picks.csv")]
    done = CliRunner().invoke(commands, line, standalone_mode=False)
    assert "is not on a local disk, where results are written" in str(done.exception)
    with pytest.raises(InputError, match="is not on a local disk"):
        fairnepv.select({"a": ROWS}, 2, checkpoint="s3://pool/state")


# --- selections -----------------------------------------------------------------------------------


def _select(*line: str) -> dict:
    done = CliRunner().invoke(commands, ["select", *line, "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_a_command_selects_the_same(bucket):
    rng = np.random.default_rng(4)
    text, vision = rng.standard_normal((60, 5)), rng.standard_normal((60, 4))
    write_shards("text", text, size=17)
    write_parquet("vision.parquet", table(fixed_lists(vision)), 16)
    Path("ids.txt").write_text("".join(f"n{i}\n" for i in range(60)))
    views = ["text", "vision.parquet:rows"]
    found = []
    for where in (str, lambda name: put(bucket, name)):
        line = [f"--view={name[:4]}={where(name)}" for name in views]
        found.append(_select(*line, "--ids", where("ids.txt"), "-k", "3", "--effort=fast"))
    assert found[0]["picks"] == found[1]["picks"]
    assert found[0]["picks"][0]["id"].startswith("n")


def test_converted_folders_are_read_and_verified(bucket):
    write_parquet("t.parquet", table(fixed_lists(ROWS)))
    uri = put(bucket, "t.parquet:rows")
    CliRunner().invoke(
        commands, ["convert", uri, "--out", "rows", "--rows-per-shard", "4"], catch_exceptions=False
    )
    assert "endpoint_override" not in Path("rows", manifest.NAME).read_text()
    there = put(bucket, "rows")
    np.testing.assert_array_equal(fairnepv.open_rows(there), ROWS.astype(np.float32))
    assert read_ids(there).tolist() == [f"i{i}" for i in range(N)]
    assert _select("--view", f"a={there}", "-k", "2")["picks"][0]["id"].startswith("i")
    assert verify(split_source(there).path).n == N
    content, changed = bucket.objects["rows/part_00001.npy"]
    bucket.put("rows/part_00001.npy", content[:-1] + b"?", changed)
    with pytest.raises(InputError, match=r"part_00001.npy \(rows 4-7\) differ"):
        verify(split_source(there).path)


@pytest.mark.parametrize("ending", ["csv", "json", "txt", "npy", "parquet"])
def test_ids_may_lie_elsewhere(ending, bucket):
    ids = np.array([f"n{i}" for i in range(5)])
    if ending == "npy":
        np.save("ids.npy", ids)
    elif ending == "parquet":
        import pyarrow as pa

        write_parquet("ids.parquet", pa.table({"id": ids, "other": np.arange(5)}))
    else:
        lines = {"csv": "id\n" + "\n".join(ids), "json": json.dumps(list(ids))}
        Path(f"ids.{ending}").write_text(lines.get(ending, "\n".join(ids)))
    assert read_ids(put(bucket, f"ids.{ending}")).tolist() == ids.tolist()
