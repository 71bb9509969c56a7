"""Whole runs of the stage grpo with a reward that a test gives: what they learn, and that a kill changes nothing."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from safetensors.numpy import load_file

from ftui.engine.reinforcement.generating import AnswerGeneration
from ftui.engine.rewards.reward_table import RewardTable
from ftui.engine.rollouts.rollout_files import read_rollout
from ftui.engine.runtime.control_flags import Control
from ftui.engine.training.step import StepRunner
from ftui.errors import DataError, RewardError
from ftui.profile.schema import Profile
from ftui.profile.serialize import to_toml
from ftui.rollouts.kept_rollouts import copy_rollout
from ftui.runs.checkpoint_folders import link_copy
from ftui.runs.events import PhaseChanged, Step
from ftui.runs.records.rollout_records import AnswersGenerated, RolloutMade
from ftui.runs.run_folder import Run, RunFacts
from tests.support.attempts import Killed, attempt, killed_attempt, records
from tests.support.tiny import make_profile, write_rows

LORA = {"method": "lora", "r": 4, "lora_alpha": 16}


def grpo(model: Path, rows: Path, /, **sections: dict[str, Any]) -> Profile:
    base: dict[str, dict[str, Any]] = {
        "run": {"stage": "grpo"},
        "adapter": LORA,
        "data": {"max_length": 96},
        "train": {"max_steps": 4, "per_device_train_batch_size": 4, "gradient_accumulation_steps": 2,
                  "learning_rate": 5e-3, "warmup_steps": 0},
        "grpo": {"num_generations": 4, "max_completion_length": 12},
        "rewards": {"reward_funcs": ["number_answer"]},
    }  # fmt: skip
    merged = base | {name: base.get(name, {}) | values for name, values in sections.items()}
    return make_profile(model, rows, **merged)


class LetterCounter:
    """Rewards the share of a letter in an answer."""

    fingerprint = "letters"

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []

    def score(self, prompts: Any, completions: Any, completion_ids: Any, columns: Any) -> RewardTable:
        self.calls.append({"prompts": prompts, "completions": completions, "columns": columns})
        texts = [one if isinstance(one, str) else one[0]["content"] for one in completions]
        values = np.array([[text.count("e") / max(1, len(text))] for text in texts])
        return RewardTable(["letters"], values, np.ones(1))


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch) -> LetterCounter:
    made = LetterCounter()

    @contextmanager
    def open_rewards(*_: Any) -> Iterator[LetterCounter]:
        yield made

    monkeypatch.setattr("ftui.engine.reinforcement.start.open_run_rewards", open_rewards)
    return made


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "rows.jsonl", [{"prompt": f"count {n} of the ", "answer": str(n)} for n in range(20)])


def test_it_answers_scores_and_learns(model_folder: Path, rows: Path, tmp_path: Path, judge: LetterCounter) -> None:
    run = Run(tmp_path / "run")
    profile = grpo(
        model_folder, rows, adapter={"method": "full"}, grpo={"num_generations": 8},
        train={"max_steps": 24, "per_device_train_batch_size": 8},
    )  # fmt: skip
    assert attempt(run, profile) == 0
    steps = records(run, Step)
    assert len(steps) == 24 == len(judge.calls)
    call = judge.calls[0]
    assert call["columns"]["answer"] == [number for number in call["columns"]["answer"][::8] for _ in range(8)]
    assert call["prompts"][0] == f"count {call['columns']['answer'][0]} of the "
    rewards = [float(step.extras["reward"] or 0) for step in steps]
    assert np.mean(rewards[-5:]) > 2 * np.mean(rewards[:5]) > 0
    assert (steps[-1].extras["entropy"] or 0) < (steps[0].extras["entropy"] or 0)
    assert steps[0].num_tokens > steps[0].num_target_tokens > 0
    assert not run.ledger.exists(), "an answer that comes once belongs to no row"


def test_no_two_answers_are_drawn_alike(model_folder: Path, tmp_path: Path, judge: LetterCounter) -> None:
    """The same model and prompt, in two rollouts of two groups: 16 answers, each a draw of its own."""
    rows = write_rows(tmp_path / "rows.jsonl", [{"prompt": "count of the ", "answer": str(n)} for n in range(4)])
    run = Run(tmp_path / "run")
    assert attempt(run, grpo(model_folder, rows, train={"max_steps": 2, "learning_rate": 0.0})) == 0
    answers = [ids.tobytes() for made in records(run, RolloutMade)
               for ids in read_rollout(run.rollouts, made.number, made.hash).completion_ids]  # fmt: skip
    assert len(answers) == len(set(answers)) == 16


def test_it_begins_at_its_reference(model_folder: Path, rows: Path, tmp_path: Path, judge: LetterCounter) -> None:
    run = Run(tmp_path / "run")
    assert attempt(run, grpo(model_folder, rows, train={"max_steps": 2}, grpo={"beta": 0.1})) == 0
    first, last = (step.extras["kl"] for step in records(run, Step))
    assert first == 0 and (last or 0) > 0


def facts(run: Run) -> dict[int, Any]:
    """What each step said, of its last attempt, without times."""
    return {step.step: (step.loss, step.grad_norm, step.extras) for step in records(run, Step)}


def rollout_bytes(run: Run) -> dict[str, bytes]:
    """The rollouts, and the log-probabilities beside them without the file's header, whose order is any."""
    return {
        path.name: b"".join(one.tobytes() for _, one in sorted(load_file(path).items()))
        if "log_probs" in path.name
        else path.read_bytes()
        for path in sorted(run.rollouts.iterdir())
    }


ALWAYS = "three steps, twice"
REUSES: dict[str, dict[str, Any]] = {
    "each step its own": {},
    "three steps, twice": {"steps_per_generation": 3, "num_iterations": 2, "beta": 0.1},
    "sequences, cut ones masked": {
        "steps_per_generation": 2, "importance_sampling_level": "sequence", "mask_truncated_completions": True,
        "loss_type": "dr_grpo", "top_p": 0.9, "temperature": 0.8,
    },
}  # fmt: skip


@pytest.mark.parametrize(
    "reuse", [name if name == ALWAYS else pytest.param(name, marks=pytest.mark.slow) for name in REUSES]
)
def test_a_run_that_was_killed_is_the_same_run(
    reuse: str, model_folder: Path, rows: Path, tmp_path: Path, judge: LetterCounter, monkeypatch: pytest.MonkeyPatch
) -> None:
    profile = grpo(
        model_folder, rows, train={"max_steps": 8}, grpo=REUSES[reuse], checkpoint={"save_steps": 1}
    )  # fmt: skip
    whole, cut = Run(tmp_path / "whole"), Run(tmp_path / "cut")
    assert attempt(whole, profile) == 0
    killed_attempt(cut, profile, 2, monkeypatch)
    killed_attempt(cut, profile, 5, monkeypatch, 2)
    with monkeypatch.context() as patched, pytest.raises(Killed):  # while answers are judged, or while none is made
        patched.setattr(judge, "score", die)
        patched.setattr(StepRunner, "run", die if reuse == "three steps, twice" else StepRunner.run)
        attempt(cut, profile, 3)
    assert attempt(cut, profile, 4) == 0
    assert facts(cut) == facts(whole)
    assert rollout_bytes(cut) == rollout_bytes(whole)
    final = "adapter_model.safetensors"
    assert (cut.final / final).read_bytes() == (whole.final / final).read_bytes()


def die(*_: Any, **__: Any) -> Any:
    raise Killed


@pytest.mark.slow
def test_what_the_journal_has_is_not_made_again(
    model_folder: Path, rows: Path, tmp_path: Path, judge: LetterCounter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill while answers are scored costs the scoring, one in the step nothing; other weights make their own."""
    profile, run = grpo(model_folder, rows, train={"max_steps": 1}), Run(tmp_path / "run")
    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(judge, "score", die)
        attempt(run, profile)
    [generated] = records(run, AnswersGenerated)
    assert generated.num_answers == 8 and generated.num_tokens > 8 and generated.seconds > 0
    with monkeypatch.context() as patched:
        patched.setattr(AnswerGeneration, "generate", die)
        killed_attempt(run, profile, 0, monkeypatch, 2)
        [made] = records(run, RolloutMade)
        assert made.generation_seconds == 0 < made.scoring_seconds and len(judge.calls) == 1
        assert not list(run.rollouts.glob("*.answers.*")), "they are scored, and that is in the journal"
        patched.setattr("ftui.engine.reinforcement.rollout_maker.weights_mark", lambda model: "others")
        with pytest.raises(Killed):
            attempt(run, profile, 3)
    assert attempt(run, profile, 4) == 0 and len(judge.calls) == 1
    assert [record.hash for record in records(run, RolloutMade)] == [made.hash] * 2
    assert [phase for phase in phases(run, 1) if phase in OF_ANSWERS] == ["generating", "scoring"]


OF_ANSWERS = ("generating", "scoring")


def phases(run: Run, number: int) -> list[str]:
    return [record.phase for record in records(run, PhaseChanged) if record.attempt == number]


@pytest.mark.slow
def test_the_first_ratios_are_1_whatever_the_steps_share(
    model_folder: Path, rows: Path, tmp_path: Path, judge: LetterCounter
) -> None:
    """Of two passes over the same answers the first is on the model that gave them: its loss is as without old ones."""
    once, twice = Run(tmp_path / "once"), Run(tmp_path / "twice")
    assert attempt(once, grpo(model_folder, rows, train={"max_steps": 1})) == 0
    assert attempt(twice, grpo(model_folder, rows, train={"max_steps": 2}, grpo={"num_iterations": 2})) == 0
    assert facts(once)[1] == facts(twice)[1]
    assert facts(twice)[2][2]["reward"] == facts(once)[1][2]["reward"], "the second is on the same answers"
    assert facts(twice)[2][0] != facts(twice)[1][0]


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{}, {"temperature": 0.5}], ids=["the same", "others"])
def test_a_child_begins_between_two_steps_of_a_rollout(
    changes: dict[str, Any], model_folder: Path, rows: Path, tmp_path: Path, judge: LetterCounter
) -> None:
    """With the same values it is its parent, step by step; with others it samples its own."""
    shared = {"steps_per_generation": 3}
    parent, run = Run(tmp_path / "parent"), Run(tmp_path / "child")
    assert attempt(parent, grpo(model_folder, rows, grpo=shared, checkpoint={"save_steps": 1})) == 0
    profile = grpo(model_folder, rows, grpo=shared | changes)
    run.folder.mkdir()
    run.profile.write_text(to_toml(profile))
    origin = RunFacts(
        run_id="fedcba9876543210", name="child", created=0.0, profile_name="test", fork=bool(changes),
        parent_run=parent.read_facts().run_id, parent_name="parent", parent_checkpoint="checkpoint-2",
    )  # fmt: skip
    run.facts.write_bytes(msgspec.json.encode(origin))
    link_copy(parent.checkpoints / "checkpoint-2", run.checkpoints / "checkpoint-2")
    copy_rollout(parent.rollouts, run.rollouts, run.checkpoints / "checkpoint-2")
    assert attempt(run, profile, 2) == 0
    after = {step: figures for step, figures in facts(parent).items() if step > 2}
    assert facts(run).keys() == after.keys() and (facts(run) == after) is (not changes)
    assert (rollout_bytes(run)["000000.jsonl"] == rollout_bytes(parent)["000000.jsonl"]) is (not changes)


def test_a_lost_rollout_is_an_error_that_says_what_to_do(
    model_folder: Path, rows: Path, tmp_path: Path, judge: LetterCounter, monkeypatch: pytest.MonkeyPatch
) -> None:
    profile = grpo(model_folder, rows, grpo={"steps_per_generation": 2}, checkpoint={"save_steps": 1})
    run = Run(tmp_path / "run")
    killed_attempt(run, profile, 1, monkeypatch)
    path = run.rollouts / "000000.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.raises(DataError, match=r"000000.safetensors is not the rollout that was written"):
        attempt(run, profile, 2)


def test_where_a_function_is_broken_the_run_waits(
    model_folder: Path, rows: Path, tmp_path: Path, judge: LetterCounter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is paused with the reason, and asks again when it is continued."""
    reasons: list[str] = []
    score = judge.score

    def broken_once(*answers: Any) -> RewardTable:
        if not reasons:
            raise RewardError("Reward sums gave 3 values for 8 answers.", hint="Mend it.")
        return score(*answers)

    monkeypatch.setattr(judge, "score", broken_once)

    def end_pause(control: Control, level: object) -> None:
        reasons.append("waited")
        control._is_paused = False
        assert control.inbox is not None
        control.inbox.leave_pause()

    monkeypatch.setattr(Control, "_wait", end_pause)
    run = Run(tmp_path / "run")
    assert attempt(run, grpo(model_folder, rows, train={"max_steps": 1})) == 0
    held = [record.detail for record in records(run, PhaseChanged) if record.phase == "held"]
    assert held == ["Reward sums gave 3 values for 8 answers. Mend it."] and reasons == ["waited"]
