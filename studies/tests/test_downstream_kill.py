"""A cell and a pretraining that are killed end as those that are not; several processes end as one,
up to rounding; and the whole chain learns its items by heart."""

from __future__ import annotations

import json
import math
import multiprocessing
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import cell_steps
import pytest
from cell_steps import RECIPE, adapter_of, draw_items

from fairnepv.errors import InputError, NumericalError

pytestmark = [pytest.mark.torch, pytest.mark.encoders]
torch = pytest.importorskip("torch")
pytest.importorskip("peft")
transformers = pytest.importorskip("transformers")

from fairnepv_studies.downstream import pretraining, training  # noqa: E402
from fairnepv_studies.downstream.cell_work import Workbench, train_and_write  # noqa: E402
from fairnepv_studies.downstream.models import (  # noqa: E402
    check_model,
    load_adapter,
    save_adapter,
)
from fairnepv_studies.downstream.pretraining import Pretraining, pretrain  # noqa: E402
from fairnepv_studies.downstream.processes import Processes  # noqa: E402
from fairnepv_studies.downstream.recipe import Lora, ModelSource, Recipe  # noqa: E402
from fairnepv_studies.downstream.small import make_model  # noqa: E402

SCRIPT = Path(cell_steps.__file__)
SERVER = multiprocessing.get_context("forkserver")  # imports PyTorch once for all that are killed
SERVER.set_forkserver_preload(
    [
        "peft",
        "transformers.models.auto.image_processing_auto",
        "transformers.models.auto.tokenization_auto",
        "transformers.models.qwen2.tokenization_qwen2",
        "transformers.models.qwen3_vl.modeling_qwen3_vl",
        "fairnepv_studies.downstream.pretraining",
    ]
)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "tiny"
    return str(make_model(folder, [item.text for item in draw_items(12)]))


def run(*words):
    process = SERVER.Process(target=cell_steps.carry_out, args=[str(word) for word in words])
    process.start()
    process.join()
    assert process.exitcode in (0, -signal.SIGKILL)
    return process.exitcode


def launch(*words):
    made = subprocess.run(list(map(str, words)), capture_output=True, text=True)
    assert made.returncode == 0, made.stderr


def ended_as(folder):
    texts = {file.name: file.read_text() for file in folder.glob("written-*.json")}
    trained = json.loads((folder / "trained.json").read_text())
    return adapter_of(folder), trained, texts


@pytest.fixture(scope="module")
def uninterrupted(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    assert run("never", "cell", model, folder) == 0
    return ended_as(folder)


MOMENTS = [
    "step:1", "step:3", "step:4", "write:1", "write:3", "write:6", "write:7",
    "replace:2", "replace:4", "replace:6", "replace:8",
]  # fmt: skip


@pytest.mark.kill
@pytest.mark.sample(2)
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_killed_cell_ends_as_one_that_was_not(tmp_path, model, uninterrupted, moment):
    """Four steps, each followed by a file of the state; then adapter, losses and two batches."""
    assert run(moment, "cell", model, tmp_path) == -signal.SIGKILL
    assert run("never", "cell", model, tmp_path) == 0
    assert ended_as(tmp_path) == uninterrupted


def test_a_training_goes_on_from_its_file_and_from_no_other(tmp_path, model):
    """Within one process: moments, schedule and dropout are those of the step at hand."""
    recipe = replace(RECIPE, lora=replace(RECIPE.lora, dropout=0.1))
    bench, items = Workbench(ModelSource(model), recipe), draw_items(12)
    whole = bench.run(tmp_path / "whole", items[:8], items[8:9], 5)
    examples = bench._examples.prepare(items[:8])
    file = tmp_path / "half" / "training.safetensors"
    file.parent.mkdir()

    def begun():
        from fairnepv_studies.downstream.models import reset_adapters

        reset_adapters(bench.adapted, 5)
        bench.adapted.train()
        return bench.training(file, examples, 5)

    half = begun()
    half.run(until=2)
    half.save()
    assert begun().run() == whole.losses
    assert begun().run(until=2) == whole.losses[:2]
    file.write_bytes(file.read_bytes()[:-5])
    assert begun().run() == whole.losses  # damaged: anew
    save_adapter(bench.adapted, tmp_path / "half")
    assert adapter_of(tmp_path / "half") == adapter_of(tmp_path / "whole")
    load_adapter(bench.adapted, tmp_path / "whole")


def test_a_loss_that_is_no_number_is_said(tmp_path):
    made = training.Training(
        {"x": torch.nn.Parameter(torch.ones(2, 2))},
        training.Course(3, 0.1),
        lambda step: torch.tensor(math.nan),
        Processes(0, 1, torch.device("cpu")),
        0,
        tmp_path / "state",
    )
    with pytest.raises(NumericalError, match="the loss of step 1 is nan; lower learning_rate"):
        made.run()


@pytest.mark.slow
def test_two_processes_have_the_losses_of_one(tmp_path, model):
    launcher = (
        sys.executable, "-m", "accelerate.commands.launch", "--cpu", "--num_processes", "2",
        "--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no",
        "--main_process_port", "0",
    )  # fmt: skip
    launch(*launcher, SCRIPT, "never", "losses", model, tmp_path / "two")
    assert run("never", "losses", model, tmp_path / "one") == 0
    two, one = (ended_as(tmp_path / name) for name in ("two", "one"))
    assert two[1]["losses"] == pytest.approx(one[1]["losses"], rel=1e-5)
    assert len(two[1]["losses"]) == 6
    assert len(two[2]) == len(one[2])


def test_the_chain_learns_its_items_by_heart(tmp_path):
    """Pretrained on others, fine-tuned by LoRA, described, scored."""
    sacrebleu = pytest.importorskip("sacrebleu")
    items = draw_items(14)
    recipe = replace(RECIPE, max_new_tokens=160, batch_size=3, epochs=60, learning_rate=1e-2)
    recipe = replace(recipe, lora=Lora(rank=32, alpha=32.0, targets="all-linear"))
    settings = Pretraining("tiny", epochs=1, batch_size=8, at_once=8)
    made = pretrain(tmp_path / "model", items[4:12], items[12:], recipe, settings)
    assert made.validation_losses[-1][0] == 1
    model = ModelSource(str(tmp_path / "model"))
    check_model(model)
    written = train_and_write(tmp_path / "cell", model, recipe, items[:3], items[:3], 0)
    assert written.counts["truncated_written"] == 0
    score = sacrebleu.corpus_bleu(written.texts, [[item.text for item in items[:3]]]).score
    assert score > 90
    assert set(written.seconds) == {"preparing", "training", "writing"}


# --- pretraining ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pretrained") / "model"
    cell_steps.pretrain(str(folder))
    return folder


def test_a_pretrained_model_is_loaded_by_transformers(pretrained):
    with_state = pretrained.with_name(".model.pretraining")
    assert not with_state.exists()
    loaded = transformers.AutoModelForImageTextToText.from_pretrained(pretrained)
    tokenizer = transformers.AutoTokenizer.from_pretrained(pretrained)
    assert type(loaded).__name__ == "Qwen3VLForConditionalGeneration"
    assert tokenizer.chat_template
    said = json.loads((pretrained / "pretraining.json").read_text())
    assert len(said["losses"]) == 6
    assert said["losses"][-1] < said["losses"][0] - 0.3
    assert [step for step, _ in said["validation_losses"]] == [1, 2, 3, 4, 5, 6]
    assert said["validation_losses"][-1][1] < said["validation_losses"][0][1]


@pytest.mark.kill
@pytest.mark.sample(1)
@pytest.mark.parametrize("moment", ["step:4", "write:1", "replace:6", "replace:14"])
def test_a_killed_pretraining_ends_as_one_that_was_not(tmp_path, pretrained, moment):
    assert run(moment, "pretrain", tmp_path / "model") == -signal.SIGKILL
    assert run("never", "pretrain", tmp_path / "model") == 0
    weights = [f / "model.safetensors" for f in (tmp_path / "model", pretrained)]
    assert weights[0].read_bytes() == weights[1].read_bytes()
    said = [json.loads((f.parent / "pretraining.json").read_text()) for f in weights]
    for document in said:
        del document["seconds"]
    assert said[0] == said[1]


def test_pretraining_on_what_is_evaluated_is_refused(tmp_path):
    items = draw_items(6)
    settings = Pretraining("tiny", epochs=1)
    for what in ("id", "text", "image"):
        twin = replace(items[5], **{what: getattr(items[0], what)})
        with pytest.raises(InputError, match=f"1 items to pretrain on have the {what} of one"):
            pretrain(tmp_path / "model", items[:4], [twin], RECIPE, settings)
    with pytest.raises(InputError, match="needs items to train on"):
        pretrain(tmp_path / "model", [], items, RECIPE, settings)
    (tmp_path / "model").mkdir()
    with pytest.raises(InputError, match="exists already"):
        pretrain(tmp_path / "model", items[:4], items[4:], RECIPE, settings)


def test_another_pretraining_in_the_folder_is_refused(tmp_path, monkeypatch):
    items, settings = draw_items(6), Pretraining("tiny", epochs=1, batch_size=4)

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(pretraining, "_train", interrupted)
        with pytest.raises(KeyboardInterrupt):
            pretrain(tmp_path / "model", items[:4], items[4:], RECIPE, settings)
    with pytest.raises(InputError, match="was begun with other items or settings"):
        pretrain(tmp_path / "model", items[:4], items[4:], RECIPE, replace(settings, seed=1))
    with pytest.raises(InputError, match="size must be one of tiny"):
        Pretraining("huge")
    assert isinstance(RECIPE, Recipe)
