"""Recipes: options of a command in TOML, and `init`, which writes one."""

import json
import tomllib
from pathlib import Path

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from fairnepv import FairnepvError, InputError
from fairnepv.cli import commands
from fairnepv.cli.init import init, recipe_text
from fairnepv.cli.recipe import options_by_key, read_recipe
from fairnepv.cli.select import select

N = 30


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for name, p in (("text", 12), ("vision", 9)):
        np.save(f"{name}.npy", rng.standard_normal((N, p)))
    Path("ids.txt").write_text("".join(f"i{row}\n" for row in range(N)))
    Path("groups.csv").write_text("group\n" + "a\nb\nc\n" * (N // 3))
    return tmp_path


def run(line):
    """A command that ends well, and what it printed."""
    ended = CliRunner().invoke(commands, line.split(), catch_exceptions=False)
    assert ended.exit_code == 0, ended.output
    return ended.stdout


def refused(line):
    with pytest.raises((FairnepvError, click.ClickException)) as caught:
        CliRunner().invoke(commands, line.split(), standalone_mode=False, catch_exceptions=False)
    if isinstance(caught.value, click.ClickException):
        return caught.value.format_message()
    return str(caught.value)


WHOLE = """
k = 6
objective = "representative"
tau = 0.03
center = true
ids = "ids.txt"
exclude = "ids_out.txt"
groups = "groups.csv:group"
time-limit = 600
effort = "fast"
certify = false
seed = 3
json = true
[view]
text = "text.npy"
vision = "vision.npy"
[eps]
text = 0.5
vision = 1
[quota]
a = [1, 3]
b = 2
c = "..4"
[priority]
text = 0.7
vision = 0.3
"""
TYPED = (
    "select --view text=text.npy --view vision=vision.npy -k 6 --objective representative "
    "--tau 0.03 --center --ids ids.txt --exclude ids_out.txt --groups groups.csv:group "
    "--time-limit 600 --effort fast --no-certify --seed 3 --json --eps text=0.5 --eps vision=1 "
    "--quota a=1..3 --quota b=2 --quota c=..4 --priority text=0.7 --priority vision=0.3"
)


def plain(printed):
    return {name: value for name, value in json.loads(printed).items() if name != "seconds"}


@pytest.mark.parametrize("form", ["select r.toml", "select --recipe r.toml"])
def test_a_recipe_is_what_somebody_would_have_typed(folder, form):
    Path("ids_out.txt").write_text("i4\ni5\n")
    Path("r.toml").write_text(WHOLE)
    assert plain(run(form)) == plain(run(TYPED))


def test_what_is_typed_wins(folder):
    Path("ids_out.txt").write_text("i4\n")
    Path("r.toml").write_text(WHOLE)
    told = plain(run("select r.toml -k 7 --tau 0.2 --eps 0.4 --no-center"))
    assert told["settings"]["k"] == 7
    assert told["settings"]["tau"] == 0.2
    assert told["settings"]["eps"] == {"text": 0.4, "vision": 0.4}
    assert told["settings"]["center"] is False
    assert told["settings"]["random_state"] == 3  # as the recipe has it


def test_several_sizes_and_underscores(folder):
    Path("r.toml").write_text(
        'k = [3, 0.2]\nview = ["text=text.npy"]\ntime_limit = 600\njson = true\neffort = "fast"\n'
    )
    assert [row["settings"]["k"] for row in json.loads(run("select r.toml"))] == [3, 6]


def typed_value(option):
    """Something of the right form for an option, in TOML."""
    if option.is_flag:
        return True
    if isinstance(option.type, click.Choice):
        return option.type.choices[0]
    if isinstance(option.type, click.types.IntParamType):
        return 3
    if isinstance(option.type, click.types.FloatParamType):
        return 1.5 if option.name == "oversampling" else 0.5
    return {"k": 5, "hierarchical": 2}.get(option.name, {"a": 1} if option.multiple else "x")


def test_every_option_can_be_said_in_a_recipe(tmp_path):
    known = options_by_key(select)
    flags = {f"--{key}" if len(key) > 1 else f"-{key}" for key in known}
    every = {o for p in select.params if isinstance(p, click.Option) for o in p.opts}
    assert every - flags == {"--debug", "--recipe"}
    for key, option in known.items():
        path = tmp_path / "r.toml"
        value = typed_value(option)
        text = (
            "{" + ", ".join(f"{k} = {v}" for k, v in value.items()) + "}"
            if isinstance(value, dict)
            else json.dumps(value)
        )
        path.write_text(f"{key} = {text}\n")
        words = read_recipe(str(path), select)
        assert list(words) == [option.name]
        context = click.Context(select)
        option.type_cast_value(context, words[option.name])  # Click takes it


@pytest.mark.parametrize(
    ("recipe", "words"),
    [
        ("taw = 3", "'taw' is no option of select; did you mean 'tau'?"),
        ("time-limits = 3", "did you mean 'time-limit'?"),
        ("views = 3", "did you mean 'view'?"),
        ("qwxyz = 3", "`fairnepv select --help` has all"),
        ("recipe = 'other.toml'", "'recipe' is no option"),
        ("[tau]\na = 3", "tau must be a text or a number, not a table"),
        ("tau = [1, 2]", "tau must be a text or a number, not a list"),
        ("tau = true", "tau must be a text or a number, not true or false"),
        ("tau = 2020-01-01", "tau must be a text or a number, not a date"),
        ("center = 1", "center must be true or false, not 1"),
        ("json = 'yes'", "json must be true or false"),
        ("eps = {a = [1, 2, 3]}", "eps must be a text or a number"),
        ("time-limit = 1\ntime_limit = 2", "stands there twice"),
        ("tau = ", "cannot be read as a recipe in TOML"),
        ("\0", "cannot be read"),
        ("tau = 1\ntau = 2", "cannot be read"),
        ('"\\u001b[2J" = 1', "is no option"),
    ],
)
def test_what_is_no_recipe_is_refused(folder, recipe, words):
    Path("r.toml").write_text(recipe)
    told = refused("select r.toml --view text=text.npy -k 3")
    assert words in told
    assert "r.toml" in told
    assert "\x1b" not in told


def test_files_that_are_none_are_refused(folder):
    assert "no.toml does not exist; check the path" in refused("select no.toml")
    assert "must end in .toml" in refused("select text.npy -k 3")
    Path("r.toml").write_bytes(b"\xff\xfe")
    assert "cannot be read" in refused("select r.toml")
    Path("r.toml").write_text("k = 3\n" + "#" * (1 << 20))
    assert "more than 1 MiB" in refused("select r.toml")
    Path("r.toml").write_text("tau = 'high'\n")
    assert "--tau" in refused("select r.toml --view text=text.npy -k 3")
    Path("r.toml").write_text("tau = 1\n")
    assert "give one" in refused("select r.toml --recipe r.toml")


# --- init -----------------------------------------------------------------------------------------


def test_init_writes_a_recipe_that_runs(folder):
    np.save("other.npy", np.zeros((5, 3)))
    printed = run("init")
    assert "Wrote recipe.toml." in printed
    assert f"2 views of {N} rows, ids of ids.txt" in printed
    recipe = tomllib.loads(Path("recipe.toml").read_text())
    assert recipe["view"] == {"text": "text.npy", "vision": "vision.npy"}
    assert recipe["ids"] == "ids.txt"
    assert recipe["k"] == 3
    assert "other.npy" in Path("recipe.toml").read_text()  # in a comment, with its rows
    run("select recipe.toml --effort fast")
    assert len(pq.read_table("picks.parquet")) == 3
    assert Path("report.html").stat().st_size > 10_000
    assert "exists already" in refused("init")
    run("init --force")


def test_init_finds_columns_keys_and_folders(folder):
    rows = np.random.default_rng(1).standard_normal((N, 4))
    lists = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), 4)
    table = {
        "id": [f"p{i}" for i in range(N)],
        "text_emb": lists,
        "img_emb": lists,
        "name": ["x"] * N,
        "label": list(range(N)),
    }
    sub = folder / "photos"
    sub.mkdir()
    pq.write_table(pa.table(table), sub / "t.parquet")
    np.savez(sub / "z.npz", a=rows, b=rows[:5])
    (sub / "shards").mkdir()
    np.save(sub / "shards/part_0.npy", rows[:20])
    np.save(sub / "shards/part_1.npy", rows[20:])
    (sub / "broken.npy").write_bytes(b"\x93NUMPY")
    (sub / "readme.md").write_text("x")
    run("init photos --out r.toml")
    recipe = tomllib.loads(Path("r.toml").read_text())
    assert recipe["view"] == {
        "shards": "photos/shards",
        "text_emb": "photos/t.parquet:text_emb",
        "img_emb": "photos/t.parquet:img_emb",
        "a": "photos/z.npz:a",
    }
    assert recipe["ids"] == "photos/t.parquet:id"
    assert f'# "label" = "photos/t.parquet:label"  # {N} x 1' in Path("r.toml").read_text()
    run("select r.toml --effort fast")


def test_init_says_what_it_cannot_do(folder):
    (folder / "empty").mkdir()
    assert "no file of rows and columns" in refused("init empty")
    assert "is no folder" in refused("init nowhere")
    assert ".toml" in refused("init --out recipe.txt")


def test_every_option_stands_in_what_init_writes():
    """As a comment that is TOML once the mark is taken off, with a value that is taken."""
    from fairnepv.cli.init import Found

    views = [Found('a"b\\', "x\u00e9\U0001f600.npy", 50, 3), Found("b", "b.npy", 50, 4)]
    text = recipe_text(views, [], None)
    assert tomllib.loads(text)["view"] == {'a"b\\': "x\u00e9\U0001f600.npy", "b": "b.npy"}
    for key in options_by_key(select):
        lines = [line.removeprefix("# ") for line in text.splitlines()]
        assert any(line.startswith((f"{key} = ", f"[{key}]")) for line in lines), key
        for line in lines:
            if line.startswith(f"{key} = "):
                tomllib.loads(line)


def test_names_that_occur_twice_are_told_apart(folder):
    for name in ("a", "b"):
        np.savez(f"{name}.npz", x=np.eye(N), y=np.eye(N))
    for name in ("text.npy", "vision.npy"):
        Path(name).unlink()
    run("init")
    assert set(tomllib.loads(Path("recipe.toml").read_text())["view"]) == {"x", "y", "x-2", "y-2"}
    with pytest.raises(InputError):
        read_recipe("recipe.toml", init)


def test_shells_complete_options_and_commands(monkeypatch):
    """As docs/recipes.md says."""
    for words, expected in (("fairnepv sel", "select"), ("fairnepv select --obj", "--objective")):
        environment = {
            "_FAIRNEPV_COMPLETE": "bash_complete",
            "COMP_WORDS": words,
            "COMP_CWORD": str(len(words.split()) - 1),
        }
        ended = CliRunner().invoke(commands, [], env=environment, prog_name="fairnepv")
        assert f"plain,{expected}" in ended.output
