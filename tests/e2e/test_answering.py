"""`ftui ask` and `ftui chat` as people use them, on what a real run has trained."""

import json
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ftui.helper.chat_session import ChatSession, HelperVoice, find_side
from ftui.helper.client import Helper
from ftui.launch.open_run import stored_profile
from ftui.runs.checkpoint_folders import read_manifest
from ftui.runs.events import Answered, Sampled
from ftui.runs.requests import SamplingKeys
from tests.support.bench import Workbench, bench_at, records
from tests.support.driving import started, steps, wait_for_end, wait_until

PROMPT = "What is row 3?"
KEYS = (f'eval.sample_prompts=["{PROMPT}"]', "eval.sample_max_new_tokens=24", "adapter.lora_dropout=0.0")


@pytest.fixture(scope="module")
def trained(bench_source: Path, tmp_path_factory: pytest.TempPathFactory) -> Workbench:
    """One run for all these tests, which only read it."""
    bench = bench_at(bench_source, tmp_path_factory.mktemp("answering") / "bench")
    options = [part for key in KEYS for part in ("--set", key)]
    done = bench.ftui("run", str(bench.profile("mine")), *options)
    assert done.returncode == 0, done.stderr
    return bench


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.slow
def test_prompts_of_a_file_are_answered_as_the_run_did(trained: Workbench) -> None:
    run = trained.run("mine")
    (trained.folder / "prompts.jsonl").write_text(json.dumps({"prompt": PROMPT}) + "\n\nWhat is row 5?\n")
    options = ("--prompts", "prompts.jsonl", "--against", "base", "--out", "out.jsonl", "--max-new-tokens", "24")
    asked = trained.ftui("ask", "mine", *options)
    assert asked.returncode == 0, asked.stderr
    answers = lines(trained.folder / "out.jsonl")
    assert [answer["prompt"] for answer in answers] == [PROMPT, "What is row 5?"]
    said = [record.completion for record in records(run) if isinstance(record, Sampled)]
    tuned, base = answers[0]["answers"]
    assert tuned["text"].strip() == said[-1] and base["text"] != tuned["text"] and base["of"] == "base"
    assert tuned["seal"] == read_manifest(run.final).seal
    again = trained.ftui("ask", "mine", *options)
    assert again.returncode == 0 and "2 of 2 prompts are answered in out.jsonl" in again.stdout
    assert lines(trained.folder / "out.jsonl") == answers
    text = (trained.folder / "out.jsonl").read_text()
    (trained.folder / "out.jsonl").write_text(text.splitlines(keepends=True)[1])  # as if it was stopped
    gone_on = trained.ftui("ask", "mine", *options)
    assert "1 of 2 prompts are answered" in gone_on.stdout and "[2]" not in gone_on.stdout, "it goes on"
    assert [one["answers"] for one in lines(trained.folder / "out.jsonl")] == [a["answers"] for a in answers[::-1]]


@pytest.mark.slow
def test_a_chat_through_pipes_keeps_its_transcript(trained: Workbench) -> None:
    typed = f"{PROMPT}\n/tokens\nand then?\n/system Be brief.\n{PROMPT}\n/quit\n"
    command = [sys.executable, "-m", "ftui", "chat", "mine", "--max-new-tokens", "8"]
    chat = subprocess.run(
        command, cwd=trained.folder, env=trained.env, input=typed, capture_output=True, text=True, timeout=300
    )
    assert chat.returncode == 0, chat.stderr
    (transcript,) = (trained.run("mine").folder / "chats").iterdir()
    exchanges = lines(transcript)
    assert [(one["turn"], one["system"]) for one in exchanges] == [(1, None), (2, None), (1, "Be brief.")]
    assert "%" in chat.stdout and exchanges[0]["answers"][0]["text"].strip()[:20] in chat.stdout


@pytest.mark.slow
def test_an_answer_ends_when_it_is_told_to(trained: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in trained.env.items():
        monkeypatch.setenv(name, value)
    run, heard = trained.run("mine"), []
    with closing(Helper()) as helper:
        session = ChatSession(HelperVoice(helper, stored_profile(run), [find_side(run, None)]))
        sampling = SamplingKeys(temperature=5.0, max_new_tokens=100_000)

        def stop(texts: list[str]) -> None:
            heard.append(texts)
            session.stop()

        (answer,) = session.say(PROMPT, sampling, stop)
        assert heard and not answer.is_complete and 0 < len(answer.tokens) < 10_000
        assert session.say("and then?", SamplingKeys(max_new_tokens=3), lambda texts: None)[0].tokens, "it goes on"
        (before,) = session.say("and now?", SamplingKeys(max_new_tokens=3), lambda texts: None)
        session.conversations[0] = session.conversations[0][:-2]
        assert helper._process is not None
        helper._process.kill()  # as it ends by itself after five minutes without a question
        helper._process.wait()
        (after,) = session.say("and now?", SamplingKeys(max_new_tokens=3), heard.append)
        assert after.text == before.text


@pytest.mark.slow
def test_a_run_in_training_answers_itself(watched_bench: Workbench) -> None:
    """Its engine where that is asked for, or where nothing is saved; and it trains on."""
    bench, keys = (
        watched_bench,
        ("hardware.price_per_hour=3600", "checkpoint.save_steps=100000", "eval.eval_steps=9999"),
    )
    run = started(bench, "long", *(part for key in keys for part in ("--set", key)))
    (bench.folder / "prompts.txt").write_text(PROMPT)
    options = ("--prompts", "prompts.txt", "--max-new-tokens", "12", "--out", "out.jsonl")
    by_engine = bench.ftui("ask", "long", *options, "--against", "base")
    assert by_engine.returncode == 0, by_engine.stderr
    assert "nothing is saved yet" in by_engine.stdout
    assert "training stands still for at most 1m 00s ($60) an answer" in by_engine.stdout
    (stood,) = [record for record in records(run) if isinstance(record, Answered)]
    assert f"training stood still for {stood.seconds:.1f} s ($" in by_engine.stdout
    (exchange,) = lines(bench.folder / "out.jsonl")
    now, base = exchange["answers"]
    assert (now["of"], base["of"]) == (f"step {stood.step}", "base") and len(exchange["template_hash"]) == 64
    assert stood.num_tokens == now["num_tokens"] + base["num_tokens"] and now["text"] != base["text"]
    assert bench.ftui("checkpoint", "long").returncode == 0
    by_process = bench.ftui("ask", "long", *options)
    assert "trains on this CPU, too" in by_process.stdout and by_process.returncode == 0, by_process.stderr
    before = len(steps(run))
    wait_until(lambda: len(steps(run)) > before + 4)
    refused = bench.ftui("ask", "long@1", *options, "--through", "engine")
    assert refused.returncode == 2 and "it has the weights of now" in refused.stderr
    assert bench.ftui("abort", "long").returncode == 0
    wait_for_end(bench, run)
    ended = bench.ftui("ask", "long", *options, "--through", "engine")
    assert ended.returncode == 2 and "it is not running" in ended.stderr


REFUSED = (
    (("chat", "mine@7"), "has no checkpoint-7"),
    (("chat", "mine@seven"), "names no checkpoint"),
    (("chat", "other"), "There is no run named 'other'"),
    (("ask", "mine", "--prompts", "none.jsonl"), "none.jsonl cannot be read"),
    (("ask", "mine", "--prompts", "bad.jsonl"), "bad.jsonl, line 2"),
    (("ask", "mine", "--prompts", "good.txt", "--top-p", "2"), "--top-p"),
    (("ask", "mine", "--prompts", "good.txt", "--temperature", "-1"), "--temperature"),
    (("ask", "mine", "--prompts", "good.txt", "--max-new-tokens", "0"), "--max-new-tokens"),
    (("ask", "mine@final", "--prompts", "good.txt", "--against", "final"), "is what it would be compared with"),
)


@pytest.mark.slow
def test_what_cannot_be_asked(trained: Workbench) -> None:
    (trained.folder / "bad.jsonl").write_text('{"prompt": "a"}\n{"promt": "b"}\n')
    (trained.folder / "good.txt").write_text("hello\n")
    for arguments, words in REFUSED:
        refused = trained.ftui(*arguments)
        assert refused.returncode in (2, 31) and words in refused.stderr, arguments
