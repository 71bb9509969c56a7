"""A step of each stage that compares answers says and learns the same, however its rows are cut, laid out and judged.

The public faults behind it: means of the means of micro-batches (transformers#35856, trl#2615, trl#5619, trl#5710;
OpenRLHF#1336 in the evaluation), packed pairs whose sign was turned (ms-swift#10144), rows padded on the left without
positions (trl#6800, OpenRLHF#217), KTO's z0 of a micro-batch (trl#1380, trl#1447, trl#1911, trl#2554).
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from ftui.engine.build import assemble, build_model
from ftui.engine.distributed.process_group import ProcessGroup
from ftui.engine.models.model_parts import ModelParts
from ftui.engine.objectives.loss import RowLayout
from ftui.engine.planning.plan import Row
from ftui.engine.runtime.control_flags import Control
from ftui.engine.runtime.event_writer import EventWriter
from ftui.engine.system.device import find_hardware
from ftui.engine.system.rng import RngState, seed_everything
from ftui.engine.system.train_state import TrainState
from ftui.engine.training.evaluate import Evaluator
from ftui.engine.training.forward_backward import ForwardBackward, StepGradients
from ftui.engine.training.initial_model import with_reference
from ftui.engine.training.measure_log_probs import BatchLogProbs
from ftui.engine.training.measured_values import Values
from ftui.engine.training.prefetch import Prefetcher
from ftui.engine.training.prepare import TrainingData, prepare
from ftui.profile.schema import Profile
from ftui.runs.run_folder import Run
from tests.support.tiny import judged_answers, make_profile, make_tokenizer, preference_pairs, write_rows

pytestmark = pytest.mark.slow

SEVERAL = {"loss_type": ["sigmoid", "bco_pair", "sft"], "loss_weights": [0.8, 0.2, 1.0]}
STAGES: dict[str, tuple[str, dict[str, Any]]] = {
    "dpo": ("dpo", {"beta": 0.3}),
    "several": ("dpo", {"beta": 0.3, **SEVERAL}),
    "ipo": ("dpo", {"loss_type": "ipo"}),
    "wpo, ld": ("dpo", {"use_weighting": True, "ld_alpha": 0.5}),
    "orpo": ("orpo", {}),
    "simpo": ("simpo", {"beta": 2.0}),
    "cpo": ("cpo", {}),
    "kto": ("kto", {"beta": 0.3, "undesirable_weight": 1.2}),
}
ROWS = 8  # of the step
PACKED: list[Row] = [(0, 3, 5), (1,), (2, 7), (4, 6)]
"""The examples of the step in four lines."""


@dataclass(frozen=True)
class Bench:
    """A model a little away from its reference, with rows of a stage."""

    profile: Profile
    data: TrainingData
    parts: ModelParts

    def step(self, size: int, rows: list[Row], folder: Path) -> tuple[StepGradients, dict[str, torch.Tensor]]:
        """Loss and gradients of a step with these rows, in micro-batches of `size` rows."""
        events, ranks = EventWriter(Run(folder), attempt=1, token="test", is_silent=True), ProcessGroup()
        with Prefetcher(self.data, ranks, lambda step: rows, layout=self.parts.layout) as prefetcher:
            passes = ForwardBackward(self.parts, ranks, prefetcher, None, Control(), events)
            made = passes.run(1, size, 1.0, RngState.capture(self.parts.device))
        assert isinstance(made, StepGradients)
        named = self.parts.model.named_parameters()
        grads = {name: weight.grad.clone() for name, weight in named if weight.grad is not None}
        self.parts.optimizer.zero_grad()
        return made, grads


def make_bench(case: str, model: Path, folder: Path, values: Values | None = None, **sections: Any) -> Bench:
    """The model moves the same way each time; `values` of its reference are measured if there are none."""
    stage, preference = STAGES[case]
    rows = judged_answers(40) if stage == "kto" else preference_pairs(40)
    profile = make_profile(
        model, write_rows(folder / "rows.jsonl", rows), run={"stage": stage}, preference=preference,
        **{
            "data": {"eval_num_rows": 10, **sections.pop("data", {})},
            "train": {"per_device_train_batch_size": ROWS, "max_steps": 4, "precision": "fp32"}, **sections,
        },
    )  # fmt: skip
    data, hardware = prepare(profile, folder / "cache", lambda detail: None), find_hardware(profile)
    seed_everything(1)
    parts = assemble(profile, data, build_model(profile, data, hardware), hardware, ProcessGroup())
    measured = measure(BatchLogProbs(profile, parts, 0), data) if values is None else values
    with torch.no_grad():
        torch.manual_seed(2)
        for weight in parts.model.parameters():
            weight += 0.02 * torch.randn_like(weight)
    return Bench(profile, with_reference(data, measured), parts)


def measure(log_probs: BatchLogProbs, data: TrainingData) -> Values:
    """What the model as it is says of all rows."""
    values: Values = {}
    for name, split in (("train", data.train), ("evaluation", data.evaluation)):
        assert split is not None
        for prefix, one in (("", split), ("mismatched_", split.mismatched)):
            if one is not None:
                found = log_probs(one, [(number,) for number in range(len(one))])
                assert found is not None, "there is memory enough"
                values[prefix + name] = found
    return values


@pytest.fixture(scope="session")
def gpt2_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its positions are absolute, its tokenizer pads on the left, and it drops units by default."""
    folder, tokenizer = tmp_path_factory.mktemp("gpt2"), make_tokenizer()
    tokenizer.padding_side = "left"
    config = GPT2Config(
        vocab_size=len(tokenizer), n_embd=32, n_layer=2, n_head=4, n_positions=256, initializer_range=0.15,
        bos_token_id=None, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    assert config.resid_pdrop == config.attn_pdrop == config.embd_pdrop == 0.1
    torch.manual_seed(1)
    GPT2LMHeadModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def assert_same(
    made: tuple[StepGradients, dict[str, torch.Tensor]], base: tuple[StepGradients, dict[str, torch.Tensor]]
) -> None:
    """Loss within 1e-6 of its size, gradients within 1e-5 of the largest."""
    (step, grads), (expected, own) = made, base
    assert step.loss == pytest.approx(expected.loss, rel=1e-6)
    assert step.batches.amounts == expected.batches.amounts and step.extras.keys() == expected.extras.keys()
    for name, value in expected.extras.items():
        assert step.extras[name] == (None if value is None else pytest.approx(value, rel=1e-5, abs=1e-5)), name
    assert grads.keys() == own.keys()
    largest = max(float(grad.abs().max()) for grad in own.values())
    assert largest > 1e-2, "there are gradients to compare"
    for name, grad in own.items():
        torch.testing.assert_close(grads[name], grad, rtol=0, atol=1e-5 * largest, msg=name)


@pytest.mark.parametrize("case", STAGES)
def test_micro_batches_and_layout_do_not_matter(case: str, model_folder: Path, tmp_path: Path) -> None:
    """1 x 8 = 2 x 4 = 3 + 3 + 2 = 8 x 1, padded, end to end and packed."""
    alone: list[Row] = [(number,) for number in range(ROWS)]
    padded = make_bench(case, model_folder, tmp_path, data={"padding_free": False})
    assert padded.parts.layout is RowLayout.PADDED
    values = own_reference(padded)
    joined = make_bench(case, model_folder, tmp_path, values)
    assert joined.parts.layout is not RowLayout.PADDED
    base = padded.step(ROWS, alone, tmp_path)
    for bench in (padded, joined):
        for size in (1, 2, 3, 4, ROWS):
            assert_same(bench.step(size, alone, tmp_path), base)
        for size in (1, 4):
            assert_same(bench.step(size, PACKED, tmp_path), base)


def own_reference(bench: Bench) -> Values:
    """What was measured, for a model laid out in another way."""
    splits = {"train": bench.data.train, "evaluation": bench.data.evaluation}
    splits |= {f"mismatched_{name}": one.mismatched for name, one in splits.items() if one is not None}
    return {name: one.reference.values for name, one in splits.items() if one is not None and one.reference is not None}


@pytest.mark.parametrize("case", ["several", "simpo", "kto"])
def test_padding_is_never_seen_nor_is_anything_dropped(case: str, gpt2_folder: Path, tmp_path: Path) -> None:
    """Whatever side the tokenizer pads, with positions that are absolute; whatever the model's config drops."""
    alone: list[Row] = [(number,) for number in range(ROWS)]
    bench = make_bench(case, gpt2_folder, tmp_path, data={"padding_free": False})
    assert bench.parts.model.training
    base = bench.step(1, alone, tmp_path)
    for size in (1, 3, ROWS):
        assert_same(bench.step(size, alone, tmp_path), base)


@pytest.mark.parametrize("case", STAGES)
def test_an_evaluation_does_not_depend_on_its_batches(case: str, model_folder: Path, tmp_path: Path) -> None:
    bench = make_bench(case, model_folder, tmp_path)
    events = EventWriter(Run(tmp_path), attempt=1, token="test", is_silent=True)

    def evaluate(size: int) -> Any:
        profile = bench.profile.model_copy(
            update={"eval": bench.profile.eval.model_copy(update={"per_device_eval_batch_size": size})}
        )
        return Evaluator(profile, bench.data, bench.parts, TrainState(step=3), Control(), events).evaluate()

    base = evaluate(10)
    assert base.loss is not None and base.extras["rewards/margins"] != 0
    for size in (1, 3, 4, 64):
        made = evaluate(size)
        assert made.loss == pytest.approx(base.loss, rel=1e-6) and made.num_target_tokens == base.num_target_tokens
        for name, value in base.extras.items():
            assert made.extras[name] == pytest.approx(value, rel=1e-5, abs=1e-5), name


@pytest.mark.parametrize("verdicts", [(True,), (False,), (True, False, True)], ids=["good", "bad", "three"])
def test_a_step_of_kto_may_have_any_answers(verdicts: tuple[bool, ...], model_folder: Path, tmp_path: Path) -> None:
    """One answer alone, answers of one kind, an odd number: z0 is over the step, of prompts with others' answers."""
    bench = make_bench("kto", model_folder, tmp_path)
    labels = bench.data.train.sequences.labels[bench.data.train.indices]
    rows: list[Row] = []
    for verdict in verdicts:
        rows.append((next(n for n in range(len(labels)) if (labels[n] > 0) == verdict and (n,) not in rows),))
    base = bench.step(len(rows), rows, tmp_path)
    assert base[0].extras["kl"] is not None
    assert (base[0].extras["rewards/chosen"] is None) == (True not in verdicts)
    assert (base[0].extras["rewards/rejected"] is None) == (False not in verdicts)
    assert_same(bench.step(1, rows, tmp_path), base)
