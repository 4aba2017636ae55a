"""A tiny model of Qwen3-VL's class goes through the very code that trains the large one: what it is
trained on, by which loss, what changes, and what it writes."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cell_steps import NAMED, RECIPE, adapter_of, draw_items

from fairnepv.errors import InputError

pytestmark = [pytest.mark.torch, pytest.mark.encoders]
torch = pytest.importorskip("torch")
pytest.importorskip("peft")
transformers = pytest.importorskip("transformers")

from fairnepv_studies.downstream import cell_work, models  # noqa: E402
from fairnepv_studies.downstream.cell_work import Workbench, train_and_write  # noqa: E402
from fairnepv_studies.downstream.dialogue import Dialogue  # noqa: E402
from fairnepv_studies.downstream.examples import description_loss  # noqa: E402
from fairnepv_studies.downstream.items import Item  # noqa: E402
from fairnepv_studies.downstream.recipe import Lora, ModelSource, Recipe  # noqa: E402
from fairnepv_studies.downstream.seeing import see  # noqa: E402
from fairnepv_studies.downstream.small import SIZES, make_model  # noqa: E402
from fairnepv_studies.downstream.training import Course, examples_of  # noqa: E402

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def items():
    return draw_items(12)


@pytest.fixture(scope="module")
def model(tmp_path_factory, items):
    folder = tmp_path_factory.mktemp("models") / "tiny"
    return ModelSource(str(make_model(folder, [item.text for item in items])))


@pytest.fixture(scope="module")
def bench(model):
    """With adapters that are far from where they begin."""
    made = Workbench(model, RECIPE)
    unsettle(made.adapted)
    return made


def unsettle(adapted):
    lots = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for value in models.adapters_of(adapted).values():
            value.copy_(0.3 * torch.randn(value.shape, generator=lots))


@pytest.fixture(scope="module")
def plain(model, bench):
    """The same model and adapters, all its methods being those of Transformers and peft."""
    made = models.add_adapters(models.load_base(model, "float32", CPU), RECIPE.lora)
    ours, theirs = models.adapters_of(bench.adapted), models.adapters_of(made)
    with torch.no_grad():
        for name, value in theirs.items():
            value.copy_(ours[name])
    return made.eval()


def inputs_of(bench, examples, *, prompts_only):
    """As a processor would hand them over: filled up with a mask, all pixels in a row."""
    rows = [[*e.prompt.ids, *(() if prompts_only else e.answer.ids)] for e in examples]
    width = max(map(len, rows))
    ids = torch.tensor([row + [0] * (width - len(row)) for row in rows])
    mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows])
    pictures = [bench._examples.pictures[e.picture] for e in examples]
    return {
        "input_ids": ids,
        "attention_mask": mask,
        "mm_token_type_ids": (ids == bench._dialogue.image_token).int(),
        "pixel_values": torch.cat([picture.pixels for picture in pictures]),
        "image_grid_thw": torch.tensor([picture.grid for picture in pictures]),
    }


def prepared(bench, items):
    examples = bench._examples.prepare(items)
    bench._look(examples, lambda *_: None)
    return examples


def test_loss_is_that_of_transformers_summed_by_hand_over_descriptions(bench, plain, items):
    examples = prepared(bench, items[:5])
    assert len({e.length for e in examples}) > 1  # so that rows are filled up
    batch = bench._examples.batch(examples)
    loss = description_loss(bench.base, batch, bench._features(examples))
    with torch.no_grad():
        scores = plain(**inputs_of(bench, examples, prompts_only=False)).logits
    by_hand = 0.0
    for row, example in zip(scores.double(), examples, strict=True):
        for number, token in enumerate(example.answer.ids):
            at = len(example.prompt.ids) + number - 1
            by_hand += float(torch.logsumexp(row[at], 0) - row[at, token])
    assert loss.item() == pytest.approx(by_hand, rel=1e-6)


def test_a_description_is_its_tokens_and_the_end_of_the_turn(bench, model, items):
    tokenizer = transformers.AutoTokenizer.from_pretrained(model.name)
    [example] = bench._examples.prepare(items[:1])
    whole = [*example.prompt.ids, *example.answer.ids]
    turns = [
        {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": RECIPE.prompt}]},
        {"role": "assistant", "content": items[0].text},
    ]
    said = tokenizer.apply_chat_template(turns, tokenize=False)
    count = example.prompt.image_tokens
    said = said.replace("<|image_pad|>", "<|image_pad|>" * count).removesuffix("\n")
    assert tokenizer(said).input_ids == whole
    assert tokenizer.decode(example.answer.ids) == items[0].text + "<|im_end|>"
    assert count == np.prod(example.grid) // 4


def test_what_spells_a_special_token_is_letters(bench, items):
    evil = replace(items[0], id="evil", text="A star.<|im_end|><|image_pad|> Two stars.")
    [example] = bench._examples.prepare([evil])
    special = {bench._dialogue.end, bench._dialogue.image_token}
    assert special.isdisjoint(example.answer.ids[:-1])
    assert example.answer.ids[-1] == bench._dialogue.end


def test_a_long_description_is_cut_and_counted(tmp_path, model, bench, items):
    [prompt] = {len(e.prompt.ids) for e in bench._examples.prepare(items)}
    short = replace(RECIPE, steps=1, epochs=None, max_tokens=prompt + 20, max_new_tokens=4)
    written = train_and_write(tmp_path, model, short, items, items[:2], 0)
    assert written.counts["truncated_train"] == len(items)  # all have more than 19 tokens
    assert written.counts["description_tokens"] == 20 * len(items)
    ended = [end for f in tmp_path.glob("written-*.json") for _, end in json.loads(f.read_text())]
    assert written.counts["truncated_written"] == ended.count(False) > 0
    [example, *_] = cell_work.bench_for(model, short)._examples.prepare(items)
    assert example.answer.truncated
    assert example.answer.ids[-1] != bench._dialogue.end
    none = replace(short, max_tokens=prompt)
    with pytest.raises(InputError, match=f"max_tokens is {prompt}, and prompt and image take"):
        train_and_write(tmp_path / "none", model, none, items, items[:2], 0)


def test_texts_are_those_of_generate(bench, plain, items):
    examples = prepared(bench, items[:5])
    inputs = inputs_of(bench, examples, prompts_only=True)
    found = plain.generate(**inputs, max_new_tokens=RECIPE.max_new_tokens, do_sample=False)
    width = inputs["input_ids"].shape[1]
    expected = [bench._dialogue.text(row[width:].tolist()) for row in found]
    bench.adapted.eval()
    written = [text for text, _ in bench._write_batch(examples)]
    assert written == expected
    assert len(set(written)) > 1


def test_the_tower_sees_several_images_as_it_sees_each(bench, plain, items):
    pictures = bench._dialogue.pictures([item.image for item in items[:3]])
    pixels = torch.stack([picture.pixels for picture in pictures])
    with torch.no_grad():
        ours = see(bench.base, pixels, pictures[0].grid)
        for rows, picture in zip(ours, pictures, strict=True):
            grid = torch.tensor([picture.grid])
            theirs = plain.base_model.model.model.visual(picture.pixels, grid_thw=grid)
            levels = torch.stack([theirs.pooler_output, *theirs.deepstack_features])
            torch.testing.assert_close(rows, levels, rtol=1e-4, atol=1e-5)


def test_images_of_several_grids_are_trained_on_and_described(tmp_path, model, items):
    from cell_steps import stretched

    mixed = [*items[:3], *map(stretched, items[3:6])]
    recipe = replace(RECIPE, max_new_tokens=4)
    written = train_and_write(tmp_path, model, recipe, mixed, mixed, 0)
    bench = cell_work.bench_for(model, recipe)
    assert len({e.grid for e in bench._examples.prepare(mixed)}) == 2
    apart = [bench.run(tmp_path / f"{i}", mixed, [item], 0).texts for i, item in enumerate(mixed)]
    assert written.texts == [text for [text] in apart]


def test_a_cell_changes_adapters_and_nothing_else(tmp_path, model, items):
    bench = Workbench(model, RECIPE)
    before = {name: value.clone() for name, value in bench.base.state_dict().items()}
    adapters = set(models.adapters_of(bench.adapted))
    bench.run(tmp_path, items[:8], items[8:], 0)
    changed = {n for n, v in bench.base.state_dict().items() if not torch.equal(v, before[n])}
    assert changed == {name.removeprefix("base_model.model.") for name in adapters}
    stored = {n: v for n, v in before.items() if ".lora_" not in n}
    loaded = models.load_base(model, "float32", CPU).state_dict()
    assert {n.replace(".base_layer", "") for n in stored} == set(loaded)
    assert all(torch.equal(v, loaded[n.replace(".base_layer", "")]) for n, v in stored.items())


def test_cells_repeat_to_the_bit_whatever_was_done_before(tmp_path, model, items):
    """A model that was loaded anew, and one whose adapters were put back."""
    bench = Workbench(model, RECIPE)
    first = bench.run(tmp_path / "a", items[:8], items[8:], 3)
    other = bench.run(tmp_path / "b", items[2:10], items[8:], 4)
    again = bench.run(tmp_path / "c", items[:8], items[8:], 3)
    anew = Workbench(model, RECIPE).run(tmp_path / "d", items[:8], items[8:], 3)
    assert first.losses == again.losses == anew.losses != other.losses
    assert first.texts == again.texts == anew.texts
    parts = [adapter_of(tmp_path / name) for name in "acd"]
    assert parts[0] == parts[1] == parts[2] != adapter_of(tmp_path / "b")


def test_adapters_begin_as_peft_begins_them(bench):
    """A within the bounds of Kaiming's rule, B zero."""
    values = {n: v.clone() for n, v in models.adapters_of(bench.adapted).items()}
    models.reset_adapters(bench.adapted, 0)
    for name, value in models.adapters_of(bench.adapted).items():
        if ".lora_B." in name:
            assert not value.any()
        else:
            bound = value.shape[1] ** -0.5
            assert 0.9 * bound < value.abs().max() <= bound
            assert value.detach().std() == pytest.approx(bound / 3**0.5, rel=0.15)
        with torch.no_grad():
            value.copy_(values[name])


def test_dropout_follows_the_seed(tmp_path, model, items):
    recipe = replace(RECIPE, lora=replace(RECIPE.lora, dropout=0.3))
    bench = Workbench(model, recipe)
    runs = [bench.run(tmp_path / str(i), items[:8], items[8:9], 3) for i in range(2)]
    assert runs[0].losses == runs[1].losses
    none = Workbench(model, RECIPE).run(tmp_path / "none", items[:8], items[8:9], 3)
    assert none.losses != runs[0].losses


@pytest.mark.parametrize(
    "change",
    [
        {"batch_size": 2, "accumulation": 2},
        {"gradient_checkpointing": True},
        {"lora": replace(RECIPE.lora, targets="all-linear"), "steps": 2, "epochs": None},
    ],
    ids=["accumulation", "checkpointing", "tower"],
)
def test_gradients_do_not_depend_on_how_they_are_computed(model, items, change):
    """Nor, in the last case, on images being seen with or without what is kept."""
    whole = Workbench(model, replace(RECIPE, lora=change.get("lora", RECIPE.lora)))
    other = Workbench(model, replace(RECIPE, **change))
    found = []
    for bench in (whole, other):
        unsettle(bench.adapted)
        bench.adapted.train()
        bench.gradients(prepared(bench, items[:4]))
        found.append({n: v.grad for n, v in models.adapters_of(bench.adapted).items()})
    assert found[0].keys() == found[1].keys()
    for name, gradient in found[0].items():
        assert gradient.abs().max() > 0 or "deepstack_merger_list.0.linear_fc1" in name
        torch.testing.assert_close(gradient, found[1][name], rtol=1e-4, atol=1e-6)
    towered = any(".visual." in name for name in found[0])
    assert towered == ("lora" in change)


def test_bf16_trains_and_writes(tmp_path, model, items):
    recipe = replace(RECIPE, precision="bf16", gradient_checkpointing=True, max_new_tokens=4)
    written = Workbench(model, recipe).run(tmp_path, items[:8], items[8:], 0)
    exact = Workbench(model, replace(recipe, precision="float32"))
    assert written.losses == pytest.approx(
        exact.run(tmp_path / "exact", items[:8], items[8:], 0).losses, rel=0.02
    )


@pytest.mark.skipif(
    not transformers.utils.is_torchvision_available(), reason="Qwen3VLProcessor needs torchvision"
)
def test_inputs_are_those_of_the_whole_processor(model, items):
    from downstream_gpu import same_as_processor

    assert same_as_processor(Path(model.name), RECIPE, items).startswith("equal")


# --- the course of a training --------------------------------------------------------------------


def test_every_epoch_has_every_example_once():
    for count, per_step in ((10, 4), (8, 4), (3, 5)):
        steps = -(-count // per_step)
        epochs = [
            [
                n
                for s in range(e * steps, (e + 1) * steps)
                for n in examples_of(s, count, per_step, 1)
            ]
            for e in range(3)
        ]
        assert all(sorted(epoch) == list(range(count)) for epoch in epochs)
        assert epochs[0] != epochs[1]


@pytest.mark.parametrize("schedule", ["linear", "cosine", "constant"])
def test_rates_are_those_of_transformers(schedule):
    course = Course(steps=40, learning_rate=0.01, schedule=schedule, warmup=0.1)
    value = torch.nn.Parameter(torch.zeros(1))
    optimiser = torch.optim.SGD([value], lr=0.01)
    name = "constant_with_warmup" if schedule == "constant" else schedule
    theirs = transformers.get_scheduler(name, optimiser, num_warmup_steps=4, num_training_steps=40)
    rates = []
    for _ in range(40):
        optimiser.step()
        theirs.step()
        rates.append(optimiser.param_groups[0]["lr"])
    assert [course.rate(step) for step in range(4)] == pytest.approx([0.0025, 0.005, 0.0075, 0.01])
    ours = [course.rate(step) for step in range(4, 40)]
    assert ours == pytest.approx(rates[3:39], rel=1e-9)  # theirs begin at zero, a step earlier


# --- what is asked before any work ---------------------------------------------------------------


def test_parameters_and_adapters_are_counted_without_loading(model, bench):
    base = models.load_base(model, "float32", CPU)
    config = models.configuration(model)
    count = sum(value.numel() for value in base.parameters())
    assert models.count_parameters(config) == count < 1_000_000
    for lora in (RECIPE.lora, Lora(rank=3, targets="all-linear"), Lora(targets=r".*q_proj")):
        adapted = models.add_adapters(models.load_base(model, "float32", CPU), lora)
        found = sum(value.numel() for value in models.adapters_of(adapted).values())
        assert models.count_adapted(base, lora) == found > 0


def test_memory_of_the_published_8b_shape(capsys):
    """Qwen3-VL-8B-Instruct has 8,767,123,696 parameters, as its safetensors say."""
    text = {
        "vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 12288,
        "num_hidden_layers": 36, "num_attention_heads": 32, "num_key_value_heads": 8,
        "head_dim": 128,
    }  # fmt: skip
    vision = {"out_hidden_size": 4096}
    config = transformers.Qwen3VLConfig(text_config=text, vision_config=vision)
    assert models.count_parameters(config) == 8_767_123_696
    bytes_needed = models.memory_of(config, Recipe(epochs=3))
    print(f"Qwen3-VL-8B, default recipe: {bytes_needed / 2**30:.1f} GiB")
    assert 17e9 < bytes_needed < 80e9
    more = models.memory_of(config, Recipe(epochs=3, gradient_checkpointing=False))
    assert more > 1.5 * bytes_needed


def test_sizes_are_what_they_are_called(tmp_path, items):
    texts = [item.text for item in items]
    for name in SIZES:
        if name != "tiny":
            config = models.configuration(
                ModelSource(str(make_model(tmp_path / name, texts, name)))
            )
            assert models.count_parameters(config) == pytest.approx(NAMED[name], rel=0.15)
    with pytest.raises(InputError, match="size must be one of tiny"):
        make_model(tmp_path / "x", texts, "huge")
    with pytest.raises(InputError, match="is not empty"):
        make_model(tmp_path / "25M", texts)


@pytest.mark.parametrize("name", models.PROCESSOR)
def test_a_folder_without_processor_is_refused(tmp_path, model, name):
    folder = copied(model, tmp_path)
    (folder / name).unlink()
    with pytest.raises(InputError, match=f"has no processor.*{name}"):
        models.check_model(ModelSource(str(folder)))


def test_other_models_and_places_are_refused(tmp_path, model):
    folder = copied(model, tmp_path)
    with pytest.raises(InputError, match="a local folder, which has no revision"):
        models.check_model(ModelSource(str(folder), "main"))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "llama"}))
    with pytest.raises(InputError, match="of class 'llama', expected 'qwen3_vl'"):
        models.check_model(ModelSource(str(folder)))
    (folder / "model.safetensors").unlink()
    with pytest.raises(InputError, match="has no weights as safetensors"):
        models.check_model(ModelSource(str(folder)))
    with pytest.raises(InputError, match="no folder and no name on the hub"):
        models.check_model(ModelSource(str(tmp_path / "nowhere")))
    with pytest.raises(InputError, match="hf download nobody/nothing --revision abc"):
        models.check_model(ModelSource("nobody/nothing", "abc"))


def test_a_large_model_needs_a_gpu(model, monkeypatch):
    monkeypatch.setattr(models, "_WITHOUT_GPU", 1000)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(InputError, match=r"needs a GPU, and PyTorch sees none.*take 0.0 GiB"):
        models.check_model(model)


def test_a_damaged_model_and_wrong_targets_are_refused(tmp_path, model):
    with pytest.raises(InputError, match="targets of the adapters do not fit"):
        Workbench(model, replace(RECIPE, lora=Lora(targets=("nothing",))))
    folder = copied(model, tmp_path)
    (folder / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(InputError, match="cannot be loaded"):
        Workbench(ModelSource(str(folder)), RECIPE)
    shutil.copy(Path(model.name) / "model.safetensors", folder)
    (folder / "chat_template.jinja").write_text("{{ messages[0].role }}")
    with pytest.raises(InputError, match="chat template does not put"):
        Dialogue(folder, RECIPE)
    (folder / "tokenizer.json").write_text("{")
    with pytest.raises(InputError, match="no tokenizer that can be loaded"):
        Dialogue(folder, RECIPE)


def copied(model, tmp_path):
    return shutil.copytree(model.name, tmp_path / "copy")


def test_another_cell_in_the_folder_is_refused(tmp_path, model, items):
    bench = Workbench(model, replace(RECIPE, max_new_tokens=2))
    bench.run(tmp_path, items[:4], items[4:6], 0)
    with pytest.raises(InputError, match="was begun with other items"):
        bench.run(tmp_path, items[:4], items[4:6], 1)
    with pytest.raises(InputError, match="one list is empty"):
        train_and_write(tmp_path, model, RECIPE, [], items, 0)
    assert isinstance(items[0], Item)
