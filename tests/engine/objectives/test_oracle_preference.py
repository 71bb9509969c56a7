"""Losses of whole micro-batches and their gradients against TRL's trainers: the same tokens, the same weights.

Each trainer tokenises and collates; our micro-batch is made of its tokens, so that only the losses are compared.
"""

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from accelerate.state import AcceleratorState, GradientState
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, LlamaConfig, LlamaForCausalLM

from ftui.engine.data.tokens.encode import Sequence
from ftui.engine.objectives import Loss, make_objective
from ftui.engine.objectives.answers import answer_lengths, length_weights, policy_weights, sum_by_sequence
from ftui.engine.objectives.kto_losses import KTO_LOSSES, JudgedAnswers, VerdictSettings, mean_divergence
from ftui.engine.objectives.log_probs import target_log_probs
from ftui.engine.objectives.loss import Batch
from ftui.engine.objectives.pair_losses import PAIR_LOSSES, LossSettings, Pairs, odds_metrics, pair_metrics
from ftui.engine.objectives.reward_losses import centring_loss, reward_loss, reward_metrics, sequence_scores
from ftui.engine.training.collate import collate
from tests.support.tiny import make_profile, make_tokenizer

pytestmark = pytest.mark.slow

BETA = 0.3
PAIRS = [
    {"prompt": "the engine writes ", "chosen": "a checkpoint each hour", "rejected": "nothing"},
    {"prompt": "a run ", "chosen": "ends", "rejected": "never ends, and its supervisor waits for it for a long time"},
    {"prompt": "what is a step? ", "chosen": "one update of the optimizer", "rejected": "one row of the data"},
    {"prompt": "who reads the journal? ", "chosen": "screens", "rejected": "the optimizer"},
]
Grads = dict[str, torch.Tensor]


@pytest.fixture(scope="module", autouse=True)
def fresh_accelerate() -> Iterator[None]:
    """In place of the one for each test: these trainers live as long as their module."""
    yield
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Llama whose weights are large enough for gradients that can be compared."""
    path, tokenizer = tmp_path_factory.mktemp("model"), make_tokenizer()
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=256, initializer_range=0.2, tie_word_embeddings=False,
        pad_token_id=tokenizer.pad_token_id, eos_token_id=tokenizer.eos_token_id, bos_token_id=None,
    )  # fmt: skip
    torch.manual_seed(1)
    LlamaForCausalLM(config).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


def load(folder: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa")


def move(model: Any) -> Any:
    """Away from its reference. TRL has given this model a forward of its own, so it must be this one."""
    torch.manual_seed(2)
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.02 * torch.randn_like(weight)
    return model


def options(output: Path) -> dict[str, Any]:
    return {
        "output_dir": str(output), "use_cpu": True, "bf16": False, "activation_checkpointing": False, "beta": BETA,
        "per_device_train_batch_size": 4, "max_length": None, "report_to": "none", "remove_unused_columns": False,
    }  # fmt: skip


@pytest.fixture(scope="module")
def dpo(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    from trl.trainer.dpo_config import DPOConfig
    from trl.trainer.dpo_trainer import DPOTrainer

    settings = options(tmp_path_factory.mktemp("dpo"))
    return DPOTrainer(
        model=load(folder), args=DPOConfig(**settings, train_sampling_strategy="sequential", use_weighting=True),
        train_dataset=Dataset.from_list(PAIRS), processing_class=make_tokenizer(),
    )  # fmt: skip


def batch_of_pairs(inputs: dict[str, torch.Tensor]) -> Batch:
    """Our micro-batch of TRL's, which has all chosen answers first: tokens, which are real, which are trained on."""
    number, rows = len(inputs["input_ids"]) // 2, []
    for index in range(number):
        for place, label in ((index, 1), (number + index, -1)):
            real = inputs["attention_mask"][place].bool()
            ids, targets = (inputs[name][place][real].numpy() for name in ("input_ids", "completion_mask"))
            rows.append([Sequence(ids.astype(np.int32), targets.astype(bool), label=label)])
    return collate(rows, 0, 2)


def gradients(model: Any, loss: torch.Tensor) -> Grads:
    model.zero_grad()
    loss.backward()
    return {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}


def assert_same(model: Any, ours: Callable[[], torch.Tensor], theirs: Callable[[], torch.Tensor]) -> None:
    """Values within 2e-6 and gradients within 1e-5, both of their size where it is above 1."""
    loss, expected = ours(), theirs()
    assert float(loss.detach()) == pytest.approx(float(expected.detach()), rel=2e-6, abs=2e-6)
    grads, own = gradients(model, loss), gradients(model, expected)
    assert grads.keys() == own.keys()
    largest = max(float(grad.abs().max()) for grad in own.values())
    assert largest > 1e-3, "there are gradients to compare"
    for name, grad in grads.items():
        torch.testing.assert_close(grad, own[name], rtol=1e-5, atol=1e-5 * max(1.0, largest), msg=name)


def mean(loss: Loss, batch: Batch) -> torch.Tensor:
    return torch.stack([value / batch.amounts[name] for name, value in loss.sums.items()]).sum()


def referred(batch: Batch, reference: Any) -> Batch:
    with torch.no_grad():
        batch.reference = target_log_probs(reference, batch).values
    return batch


@pytest.fixture(scope="module")
def moved(dpo: Any) -> Any:
    return move(dpo.model).train()


@pytest.fixture(scope="module")
def inputs(dpo: Any) -> dict[str, torch.Tensor]:
    batch: dict[str, torch.Tensor] = next(iter(dpo.get_train_dataloader()))
    lengths = batch["completion_mask"].sum(1)
    assert (lengths[:4] > lengths[4:]).any() and (lengths[:4] < lengths[4:]).any(), "either side may be the longer one"
    return batch


def prepare(dpo: Any, losses: dict[str, float], **settings: Any) -> Any:
    """The trainer with other settings; each test sets all of them."""
    dpo.loss_types, dpo.loss_weights = list(losses), list(losses.values())
    values = {"ld_alpha": None, "use_weighting": False, "label_smoothing": 0.0} | settings
    for name, value in values.items():
        setattr(dpo, name, value)
    dpo.beta, dpo.args.discopop_tau = BETA, 0.05
    return dpo


@pytest.mark.parametrize(
    ("losses", "smoothing"),
    [
        *(({name: 1.0}, 0.0) for name in sorted(PAIR_LOSSES.keys() - {"simpo", "odds_ratio", "exo_pair"})),
        ({"robust": 1.0}, 0.2), ({"exo_pair": 1.0}, 0.1), ({"sft": 1.0}, 0.0), ({"sigmoid": 1.0, "sft": 0.7}, 0.0),
        ({"sigmoid": 0.8, "bco_pair": 0.2, "sft": 1.0}, 0.0),
    ],
)  # fmt: skip
def test_the_stage_dpo_is_trl_s(
    losses: dict[str, float], smoothing: float, dpo: Any, inputs: Any, moved: Any, folder: Path, tmp_path: Path
) -> None:
    preference = {
        "beta": BETA, "label_smoothing": smoothing, "loss_type": list(losses), "loss_weights": list(losses.values())
    }  # fmt: skip
    profile = make_profile(folder, tmp_path / "rows", run={"stage": "dpo"}, preference=preference)
    stage, batch = make_objective(profile), referred(batch_of_pairs(inputs), dpo.ref_model)
    trainer = prepare(dpo, losses, label_smoothing=smoothing)
    assert_same(
        moved, lambda: mean(stage.loss(moved, batch), batch), lambda: trainer._compute_loss(moved, inputs, False)
    )


def test_metrics_are_trl_s(dpo: Any, inputs: Any, moved: Any) -> None:
    batch, trainer = referred(batch_of_pairs(inputs), dpo.ref_model), prepare(dpo, {"sigmoid": 1.0})
    trainer._metrics["train"].clear()
    trainer._compute_loss(moved, inputs, False)
    with torch.no_grad():
        facts = target_log_probs(moved, batch, entropy=True)
    ours = pair_metrics(pairs_of(facts.values, batch), LossSettings(BETA))
    for name, value in ours.items():
        assert float(value) / 4 == pytest.approx(trainer._metrics["train"][name][-1], rel=1e-5, abs=1e-5), name
    assert facts.entropy is not None
    assert float(facts.entropy.mean()) == pytest.approx(trainer._metrics["train"]["entropy"][-1], rel=1e-5)


def pairs_of(log_probs: torch.Tensor, batch: Batch, weights: torch.Tensor | None = None) -> Pairs:
    """Sums over answers; `weights` (targets,) are what tokens count."""
    assert batch.sequence_of is not None
    number, one = 8, torch.ones_like(log_probs) if weights is None else weights
    reference = torch.zeros_like(log_probs) if batch.reference is None else batch.reference
    sums = [sum_by_sequence(one * values, batch.sequence_of, number) for values in (log_probs, reference)]
    columns = [*sums, answer_lengths(batch.sequence_of, number)]
    return Pairs(*(column[side::2] for column in columns for side in (0, 1)))


@pytest.mark.parametrize("name", ["sigmoid", "ipo", "apo_down", "sppo_hard"])
@pytest.mark.parametrize("alpha", [0.0, 0.5])
def test_ld_alpha_is_trl_s(name: str, alpha: float, dpo: Any, inputs: Any, moved: Any) -> None:
    batch, trainer = referred(batch_of_pairs(inputs), dpo.ref_model), prepare(dpo, {name: 1.0}, ld_alpha=alpha)
    assert batch.sequence_of is not None
    weights = length_weights(batch.sequence_of, 8, alpha)

    def ours() -> torch.Tensor:
        pairs = pairs_of(target_log_probs(moved, batch).values, batch, weights)
        return PAIR_LOSSES[name](pairs, LossSettings(BETA)).mean()

    assert_same(moved, ours, lambda: trainer._compute_loss(moved, inputs, False))


@pytest.mark.parametrize("name", ["sigmoid", "ipo", "nca_pair"])
def test_wpo_is_trl_s(name: str, dpo: Any, inputs: Any, moved: Any) -> None:
    batch, trainer = referred(batch_of_pairs(inputs), dpo.ref_model), prepare(dpo, {name: 1.0}, use_weighting=True)

    def ours() -> torch.Tensor:
        facts = target_log_probs(moved, batch, squares=True)
        assert facts.squares is not None and batch.sequence_of is not None
        weights = policy_weights(facts.values, facts.squares, batch.sequence_of, 8)
        return (weights * PAIR_LOSSES[name](pairs_of(facts.values, batch), LossSettings(BETA))).mean()

    assert_same(moved, ours, lambda: trainer._compute_loss(moved, inputs, False))


def without_reference(kind: str, folder: Path, output: Path, **settings: Any) -> Any:
    from trl.experimental.cpo import CPOConfig, CPOTrainer
    from trl.experimental.orpo import ORPOConfig, ORPOTrainer

    config, trainer = {"orpo": (ORPOConfig, ORPOTrainer), "cpo": (CPOConfig, CPOTrainer)}[kind]
    return trainer(
        model=load(folder), args=config(**options(output), **settings), train_dataset=Dataset.from_list(PAIRS),
        processing_class=make_tokenizer(),
    )  # fmt: skip


def batch_of_sides(inputs: dict[str, torch.Tensor], whole: bool = False) -> Batch:
    """Chosen and rejected answers in tensors of their own; `whole` trains on the prompt, too."""
    rows, number = [], len(inputs["chosen_input_ids"])
    for index in range(number):
        for side, label in (("chosen", 1), ("rejected", -1)):
            real = inputs[f"{side}_attention_mask"][index].bool()
            ids, labels = (inputs[f"{side}_{name}"][index][real].numpy() for name in ("input_ids", "labels"))
            rows.append([Sequence(ids.astype(np.int32), whole | (labels != -100), label=label)])
    return collate(rows, 0, 2)


@pytest.fixture(scope="module")
def cpo(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return without_reference("cpo", folder, tmp_path_factory.mktemp("cpo"))


def sides(trainer: Any) -> dict[str, torch.Tensor]:
    batch: dict[str, torch.Tensor] = next(iter(trainer.get_train_dataloader()))
    return batch


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("alpha", [0.0, 1.0])
@pytest.mark.parametrize("name", ["sigmoid", "hinge", "ipo", "simpo"])
def test_cpo_and_simpo_are_trl_s(name: str, alpha: float, smoothing: float, cpo: Any) -> None:
    inputs = sides(cpo)
    batch, model = batch_of_sides(inputs), cpo.model
    cpo.loss_type, cpo.cpo_alpha, cpo.label_smoothing, cpo.simpo_gamma = name, alpha, smoothing, 0.7
    settings = LossSettings(BETA, label_smoothing=smoothing, simpo_gamma=0.7)

    def ours() -> torch.Tensor:
        pairs = pairs_of(target_log_probs(model, batch).values, batch)
        nll = -pairs.chosen.sum() / batch.amounts["chosen_targets"]
        return PAIR_LOSSES[name](pairs, settings).mean() + alpha * nll

    assert_same(model, ours, lambda: cpo.get_batch_loss_metrics(model, inputs)[0])


def test_orpo_is_trl_s(folder: Path, tmp_path: Path) -> None:
    """TRL's cross-entropy is that of the prompt, too."""
    trainer = without_reference("orpo", folder, tmp_path)
    inputs, model = sides(trainer), trainer.model
    batch, whole = batch_of_sides(inputs), batch_of_sides(inputs, whole=True)

    def ours() -> torch.Tensor:
        pairs = pairs_of(target_log_probs(model, batch).values, batch)
        both = pairs_of(target_log_probs(model, whole).values, whole)
        nll = -both.chosen.sum() / whole.amounts["chosen_targets"]
        return PAIR_LOSSES["odds_ratio"](pairs, LossSettings(BETA)).mean() + nll

    assert_same(model, ours, lambda: trainer.get_batch_loss_metrics(model, inputs)[0])
    metrics = trainer.get_batch_loss_metrics(model, inputs)[1]
    with torch.no_grad():
        pairs = pairs_of(target_log_probs(model, batch).values, batch)
        found = odds_metrics(pairs) | pair_metrics(pairs.per_token, LossSettings(BETA))
    for name, value in found.items():
        assert float(value) / 4 == pytest.approx(float(metrics[name]), rel=1e-5), name


@pytest.fixture(scope="module")
def kto(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    from trl.trainer.kto_config import KTOConfig
    from trl.trainer.kto_trainer import KTOTrainer

    judged = [
        {"prompt": pair["prompt"], "completion": pair[side], "label": side == "chosen"}
        for pair in PAIRS for side in ("chosen", "rejected")
    ]  # fmt: skip
    settings = options(tmp_path_factory.mktemp("kto")) | {"per_device_train_batch_size": 8}
    trainer = KTOTrainer(
        model=load(folder), args=KTOConfig(**settings, desirable_weight=1.5, undesirable_weight=0.5),
        train_dataset=Dataset.from_list(judged), processing_class=make_tokenizer(),
    )  # fmt: skip
    move(trainer.model).train()
    return trainer


@pytest.fixture(scope="module")
def moved_weights(kto: Any) -> list[dict[str, torch.Tensor]]:
    """Those of the model and of its reference."""
    return [copy.deepcopy(model.state_dict()) for model in (kto.model, kto.ref_model)]


def batch_of_answers(inputs: dict[str, torch.Tensor], prefix: str = "") -> Batch:
    names, verdicts = ("input_ids", "completion_mask", "attention_mask"), inputs["label"].tolist()
    rows = []
    for ids, trained, mask, is_good in zip(*(inputs[prefix + name] for name in names), verdicts, strict=True):
        tokens, targets = ids[mask.bool()].numpy().astype(np.int32), trained[mask.bool()].numpy().astype(bool)
        rows.append([Sequence(tokens, targets, label=1 if is_good else -1)])
    return collate(rows, 0)


def answer_sums(model: Any, batch: Batch) -> torch.Tensor:
    assert batch.sequence_of is not None
    return sum_by_sequence(target_log_probs(model, batch).values, batch.sequence_of, 8)


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("name", ["kto", "apo_zero_unpaired"])
def test_kto_is_trl_s(
    name: str, swapped: bool, kto: Any, moved_weights: list[dict[str, torch.Tensor]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`swapped`: model and reference have each other's weights, so that the divergence has the other sign."""
    monkeypatch.setattr(kto, "loss_type", name)
    monkeypatch.setattr(kto, "calculate_KL", name == "kto")
    inputs, model, reference = next(iter(kto.get_train_dataloader())), kto.model, kto.ref_model
    for one, weights in zip((model, reference), moved_weights[:: -1 if swapped else 1], strict=True):
        one.load_state_dict(weights)
    batch, drifts = batch_of_answers(inputs), []
    with torch.no_grad():
        reference_sums = answer_sums(reference, batch)
        if name == "kto":
            mismatched = batch_of_answers(inputs, "KL_")
            drifts = [answer_sums(model, mismatched) - answer_sums(reference, mismatched)]
            assert bool(drifts[0].mean() > 0) == swapped, "once the divergence counts, once it is 0"
    z0 = mean_divergence(sum(drifts, torch.zeros(8)).sum(), 8)

    def ours() -> torch.Tensor:
        answers = JudgedAnswers(answer_sums(model, batch), reference_sums, inputs["label"].bool())
        settings = VerdictSettings(BETA, desirable_weight=1.5, undesirable_weight=0.5)
        return KTO_LOSSES[name](answers, z0, settings).mean()

    assert_same(model, ours, lambda: kto._compute_loss(model, inputs, False))


@pytest.mark.parametrize("with_margins", [False, True])
@pytest.mark.parametrize("coefficient", [None, 0.1])
def test_reward_models_are_trl_s(coefficient: float | None, with_margins: bool, folder: Path, tmp_path: Path) -> None:
    from trl.trainer.reward_config import RewardConfig
    from trl.trainer.reward_trainer import RewardTrainer

    torch.manual_seed(3)
    model = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=1, dtype=torch.float32)
    margins = [{"margin": float(number)} if with_margins else {} for number in range(4)]
    settings = {name: value for name, value in options(tmp_path).items() if name != "beta"}
    trainer = RewardTrainer(
        model=model, args=RewardConfig(**settings, center_rewards_coefficient=coefficient),
        train_dataset=Dataset.from_list([pair | margin for pair, margin in zip(PAIRS, margins, strict=True)]),
        processing_class=make_tokenizer(),
    )  # fmt: skip
    inputs = next(iter(trainer.get_train_dataloader()))
    model.train()
    batch = batch_of_pairs(inputs | {"completion_mask": inputs["attention_mask"]})
    assert batch.lengths is not None
    batch = replace(batch, ends=torch.arange(8) * batch.input_ids.shape[1] + batch.lengths - 1)

    def ours() -> torch.Tensor:
        scores = sequence_scores(model, batch)
        chosen, rejected = scores[::2], scores[1::2]
        centring = 0.0 if coefficient is None else coefficient * centring_loss(chosen, rejected)
        return (reward_loss(chosen, rejected, inputs.get("margin")) + centring).mean()

    assert_same(model, ours, lambda: trainer.compute_loss(model, dict(inputs)))  # type: ignore[no-untyped-call]
    with torch.no_grad():
        scores = sequence_scores(model, batch)
    means = {name: float(value) / 4 for name, value in reward_metrics(scores[::2], scores[1::2]).items()}
    means["mean"] = (means["rewards/chosen"] + means["rewards/rejected"]) / 2
    for name, theirs in (("rewards/accuracies", "accuracy"), ("rewards/margins", "margin"), ("mean", "mean_reward")):
        assert means[name] == pytest.approx(trainer._metrics["train"][theirs][-1], rel=1e-5, abs=1e-5), name
