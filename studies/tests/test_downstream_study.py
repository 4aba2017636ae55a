"""study.toml: what it may say, and what is refused before any work."""

from __future__ import annotations

import copy
import re
import tomllib
from dataclasses import asdict
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from downstream_studies import DOCUMENT, make_study

from fairnepv.errors import InputError
from fairnepv_studies.downstream.cells import Cell, cells_to_test, tuning_cells
from fairnepv_studies.downstream.recipe import (
    Lora,
    ModelSource,
    Recipe,
    read_recipe,
    recipe_document,
)
from fairnepv_studies.downstream.study import (
    BertScore,
    Data,
    Scoring,
    read_study,
    study_document,
    study_of,
)


def changed(*path: Any, to: Any) -> dict[str, Any]:
    """The study with another value at this place."""
    document = copy.deepcopy(DOCUMENT)
    place: Any = document
    for name in path[:-1]:
        place = place.setdefault(name, {}) if isinstance(place, dict) else place[name]
    place[path[-1]] = to
    return document


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in DOCUMENT.items() if key != name}


REFUSED = [
    (changed("sises", to=[3]), "unknown key 'sises'; did you mean sizes?"),
    (changed("recipe", "step", to=3), "[recipe] has an unknown key 'step'"),
    (changed("recipe", "lora", to={"ranks": 3}), "[recipe.lora] has an unknown key 'ranks'"),
    (changed("recipe", "epochs", to=3), "exactly one of epochs and steps"),
    (changed("recipe", to={}), "exactly one of epochs and steps must be given, and neither is"),
    (changed("recipe", "image_pixels", to=[9, 3]), "image_pixels must be [least, most]"),
    (changed("recipe", "learning_rate", to=0), "learning_rate must be a finite positive number"),
    (changed("recipe", "warmup", to=1), "warmup must be a number from 0 to below 1"),
    (changed("recipe", "precision", to="fp8"), "precision must be one of bf16, float32"),
    (changed("model", "nam", to="x"), "[model] has an unknown key 'nam'; did you mean name?"),
    (changed("data", "test", to=0), "[data]: test must be at least 1"),
    (changed("data", "pretrain", to=1), "pretrain must be a number from 0 to below 1"),
    (changed("scoring", "level", to=2), "level must be between 0 and 1"),
    (changed("scoring", "bertscore", to={"layer": 3}), "[scoring.bertscore] has an unknown key"),
    (changed("sizes", to=[]), "sizes must be a list, each once"),
    (changed("sizes", to=[4, 4]), "sizes must be a list, each once"),
    (changed("sizes", to=["4"]), "one of sizes must be a whole number"),
    (changed("seeds", to=0), "seeds must be at least 1"),
    (changed("seeds", to=4), "'random' has 3 seeds and the study 4: seeds are matched"),
    (changed("baselines", to=["rendom"]), "baseline 'rendom' is none of the selectors"),
    (changed("baselines", to=["ours", "k-medoids", "random"]), "every selector is a baseline"),
    (changed("selectors", to=[]), "needs at least one [[selectors]]"),
    (changed("selectors", 0, "taus", to=1), "selector 1 has an unknown key 'taus'"),
    (changed("selectors", 0, "name", to="../x"), "name must be letters, digits"),
    (changed("selectors", 0, "name", to="random"), "names of selectors must be a list, each once"),
    (changed("selectors", 0, "picks", to="p-{k}.csv"), "means nothing with picks"),
    (changed("selectors", 1, "eps", to=0.3), "eps means nothing with k-medoids"),
    (changed("selectors", 2, "picks", to="p.csv"), "picks must have {k} in its name"),
    (changed("tuning", "knob", to="prompt"), "knob must be one of"),
    (changed("tuning", "values", to=[1e-4]), "values must be two or more"),
    (changed("tuning", "values", to=[1e-4, -1]), "[tuning], one of values: learning_rate"),
    (changed("tuning", "selector", to="nobody"), "there is no selector 'nobody'"),
    (changed("tuning", "k", to=5), "k = 5 is none of sizes"),
    (changed("tuning", "seeds", to=9), "has fewer than 9 seeds"),
    (without("corpus"), "must say corpus"),
    (without("sizes"), "must say sizes"),
]


@pytest.mark.parametrize(("document", "said"), REFUSED, ids=[said for _, said in REFUSED])
def test_mistakes_are_refused_by_name(document, said):
    with pytest.raises(InputError) as refused:
        study_of(document, "study.toml")
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_study_is_written_and_read_again():
    study = make_study(model={"name": "folder", "revision": "abc"}, views=["text"])
    again = study_of(study_document(study), "again")
    assert {**asdict(again), "corpus": ""} == {**asdict(study), "corpus": ""}
    assert study_document(again) == study_document(study)


def test_places_of_this_machine_are_not_told(tmp_path):
    selectors = [
        {"name": "ours"},
        {"name": "given", "picks": str(tmp_path / "mine-{k}.csv")},
    ]
    study = make_study(
        selectors=selectors,
        model={"name": str(tmp_path / "model")},
        baselines=["given"],
        **{
            "corpus": str(tmp_path / "corpus"),
            "tuning": {**DOCUMENT["tuning"], "selector": "ours"},
        },
    )
    assert str(tmp_path) not in str(study_document(study))


def test_the_file_of_init_is_a_study_and_its_comments_are_the_defaults(tmp_path):
    text = resources.files("fairnepv_studies.downstream").joinpath("study.toml").read_text("utf-8")
    file = tmp_path / "study.toml"
    file.write_text(text)
    study = read_study(file)
    assert study.recipe == Recipe(epochs=3)
    assert study.model == ModelSource()
    usual = {
        "data": Data(),
        "scoring": Scoring(),
        "recipe": Recipe(epochs=3),
        "recipe.lora": Lora(),
    }
    seen = 0
    for table, record in usual.items():
        body = text.partition(f"\n[{table}]\n")[2].partition("\n\n")[0]
        for line in re.findall(r"^(?:# )?(\w+ = [^#\n]+)", body, re.MULTILINE):
            if "..." not in line and not line.startswith("image_pixels"):
                ((key, value),) = tomllib.loads(line).items()
                default = asdict(record)[key]
                assert value == (list(default) if isinstance(default, tuple) else default), key
                seen += 1
    assert seen == 24  # data 2, scoring 4, recipe 14, lora 4


def test_a_recipe_is_written_and_read_again():
    recipe = Recipe(steps=5, lora=Lora(4, 8.0, 0.1, "q_proj|v_proj"), image_pixels=(10, 20))
    assert read_recipe(recipe_document(recipe)) == recipe


@pytest.mark.parametrize(
    ("recipe", "items", "steps"),
    [
        (Recipe(steps=7), 100, 7),
        (Recipe(epochs=2, batch_size=8), 17, 6),
        (Recipe(epochs=3, batch_size=4, accumulation=2), 16, 6),
    ],
)
def test_steps_of_a_recipe(recipe, items, steps):
    assert recipe.steps_for(items) == steps


def test_every_seed_comes_in_turn_and_only_random_has_more():
    study = make_study()
    cells = cells_to_test(study)
    assert len(cells) == len(set(cells)) == 2 * (2 + 2 + 3)
    assert [cell.seed for cell in cells] == sorted(cell.seed for cell in cells)
    assert {cell.selector for cell in cells if cell.seed == 2} == {"random"}
    assert tuning_cells(study) == [Cell("random", 4, 0, 0), Cell("random", 4, 0, 1)]
    assert study.against == ("random", "k-medoids")
    assert make_study(baselines=None).against == ("k-medoids", "random")


def test_bertscore_may_be_left_out_in_two_ways():
    assert make_study(scoring={"bertscore": False}).scoring.bertscore is None
    assert make_study(scoring={"bertscore": {}}).scoring.bertscore == BertScore()


@pytest.mark.parametrize("content", [b"a = ", b"\xff", b"x = 1\n" * 200_000])
def test_what_is_no_toml_is_one_sentence(tmp_path, content):
    file = tmp_path / "study.toml"
    file.write_bytes(content)
    with pytest.raises(InputError, match=r"study\.toml"):
        read_study(file)
    with pytest.raises(InputError, match=r"nothing\.toml does not exist; check the path"):
        read_study(Path(tmp_path / "nothing.toml"))
