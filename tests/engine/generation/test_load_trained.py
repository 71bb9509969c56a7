"""What a run has trained answers, once loaded, as it did in the run; its base answers as before."""

from pathlib import Path
from typing import Any

import pytest

from ftui.engine.generation.conversation import Answer, Speaker
from ftui.engine.generation.load_trained import add_adapter, load_trained
from ftui.engine.generation.sampling import Sampling
from ftui.profile.layers import resolve
from ftui.profile.schema import Profile
from ftui.runs.events import Sampled
from ftui.runs.journal import Tail
from ftui.runs.run_folder import Run
from tests.support.tiny import chats, make_profile, train_run, write_rows

PROMPTS = ("the shell", "a kernel page fault")
METHODS: dict[str, dict[str, Any]] = {
    "full": {"method": "full"},
    "freeze": {"method": "freeze", "trainable_layers": 1},
    "lora": {"method": "lora", "r": 4, "modules_to_save": ["lm_head"]},
    "dora": {"method": "lora", "r": 4, "use_dora": True},
    "qlora": {"method": "qlora", "r": 4},
    "new tokens": {"method": "lora", "r": 4},
}


def make_run(folder: Path, base: Path, adapter: dict[str, Any], **sections: dict[str, Any]) -> tuple[Run, Profile]:
    rows = write_rows(folder / "rows.jsonl", chats(16))
    profile = make_profile(
        base, rows, adapter=adapter, **sections,
        train={"max_steps": 12, "learning_rate": 2e-2 if adapter["method"] != "full" else 2e-3},
        eval={"sample_prompts": list(PROMPTS), "sample_max_new_tokens": 12}, checkpoint={"save_steps": 6},
    )  # fmt: skip
    train_run(folder / "run", profile)
    run = Run(folder / "run")
    return run, resolve(run.profile).profile


def samples(run: Run) -> list[str]:
    return [record.completion for record in Tail(run.journal).read() if isinstance(record, Sampled)]


def say(speaker: Speaker, *texts: str, sampling: Sampling | None = None) -> Answer:
    """The last answer of a conversation."""
    messages: list[dict[str, str]] = []
    for text in texts:
        messages.append({"role": "user", "content": text})
        answer = speaker.answer(messages, sampling or Sampling(), 12)
        while not answer.has_ended:
            answer.add_token()
        messages.append({"role": "assistant", "content": answer.text})
    return answer


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_answers_are_those_of_the_run(name: str, tmp_path: Path, model_folder: Path) -> None:
    more = {"model": {"extra_special_tokens": ["<new>"]}} if name == "new tokens" else {}
    run, profile = make_run(tmp_path, model_folder, METHODS[name], **more)
    trained = load_trained(profile, run.final, tmp_path / "cache", lambda detail: None)
    speaker = Speaker(trained, "default")
    answers = [say(speaker, prompt).text.strip() for prompt in PROMPTS]
    assert answers == samples(run)[-2:]
    if name in ("lora", "dora", "qlora"):
        base = load_trained(profile, None, tmp_path / "cache", lambda detail: None)
        expected = [say(Speaker(base, None), prompt).text for prompt in PROMPTS]
        assert [say(Speaker(trained, None), prompt).text for prompt in PROMPTS] == expected
        assert [text.strip() for text in expected] != answers
        assert [say(speaker, prompt).text.strip() for prompt in PROMPTS] == answers, "with the adapter again"


def test_flash_attention_is_done_without_on_a_device_that_has_none(tmp_path: Path, model_folder: Path) -> None:
    profile = make_profile(model_folder, write_rows(tmp_path / "rows.jsonl", chats(4)))
    section = profile.model.model_copy(update={"attn_implementation": "flash_attention_2"})
    trained = load_trained(
        profile.model_copy(update={"model": section}), None, tmp_path / "cache", lambda detail: None, device="cpu"
    )
    assert trained.bare.config._attn_implementation == "sdpa"
    assert trained.hardware.name.endswith("(without flash attention)")


@pytest.mark.slow
def test_two_checkpoints_answer_on_one_base(tmp_path: Path, model_folder: Path) -> None:
    run, profile = make_run(tmp_path, model_folder, METHODS["lora"])
    old = run.checkpoints / "checkpoint-6"
    both = load_trained(profile, run.final, tmp_path / "cache", lambda detail: None)
    add_adapter(both, old, "other")
    alone = load_trained(profile, old, tmp_path / "cache", lambda detail: None)
    expected = [say(Speaker(alone, "default"), prompt).text for prompt in PROMPTS]
    now = [say(Speaker(both, "default"), prompt).text for prompt in PROMPTS]
    assert [say(Speaker(both, "other"), prompt).text for prompt in PROMPTS] == expected
    assert [say(Speaker(both, "default"), prompt).text for prompt in PROMPTS] == now


@pytest.mark.slow
def test_turns_are_heard_with_what_was_said_before(tmp_path: Path, model_folder: Path) -> None:
    run, profile = make_run(tmp_path, model_folder, METHODS["full"])
    trained = load_trained(profile, run.final, tmp_path / "cache", lambda detail: None)
    sampling = Sampling(0.8, seed=3)
    kept = say(Speaker(trained, None), *PROMPTS, "and then", sampling=sampling)
    messages: list[dict[str, str]] = []
    for text in (*PROMPTS, "and then"):
        messages.append({"role": "user", "content": text})
        answer = Speaker(trained, None).answer(messages, sampling, 12)  # remembers nothing
        while not answer.has_ended:
            answer.add_token()
        messages.append({"role": "assistant", "content": answer.text})
    assert kept.text == answer.text
    assert [token.probability for token in kept.tokens] == pytest.approx(
        [token.probability for token in answer.tokens], abs=1e-5
    )
    for token in kept.tokens:
        assert sum(probability for _, probability in token.likeliest) <= 1 + 1e-6
        assert token.likeliest == sorted(token.likeliest, key=lambda one: -one[1])
