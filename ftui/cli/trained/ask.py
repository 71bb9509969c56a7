"""`ftui ask RUN --prompts FILE`: the answers of what a run has trained to prompts of a file, written as they come."""

import sys
from collections.abc import Collection
from contextlib import closing
from pathlib import Path

from ftui.cli.terminal import LiveOutput, has_screen
from ftui.errors import FINISHED, DataError, UsageError
from ftui.helper.chat_facts import check_sampling
from ftui.helper.chat_session import ChatSession
from ftui.helper.client import Helper
from ftui.launch.answering_sides import choose_device, find_sides
from ftui.launch.prompt_file import Question, read_prompts
from ftui.launch.transcript import Exchange, add_exchange, describe_exchange
from ftui.runs.run_folder import find_run
from ftui.text import shown


def ask(
    name: str, prompts: Path, against: str | None, out: Path | None, device: str | None, max_new_tokens: int,
    screen: bool, allow: Collection[str], temperature: float, top_p: float, top_k: int, min_p: float,
    repetition_penalty: float, seed: int,
) -> int:  # fmt: skip
    """Ask every prompt by itself, of one side or two; print the answers, and add them to `out` as JSON lines.

    Raises:
        FtuiError: there is no such run or file, or the model cannot be loaded here.

    Returns:
        That of a data error where the template takes one of the prompts not.
    """
    name, _, checkpoint = name.partition("@")
    run = find_run(name)
    sampling = check_sampling(
        temperature=temperature, top_p=top_p, top_k=top_k, min_p=min_p, repetition_penalty=repetition_penalty,
        seed=seed, max_new_tokens=max_new_tokens,
    )  # fmt: skip
    if screen:
        return _show(Question(run, checkpoint or None, against, prompts, out, device, sampling, tuple(allow)))
    profile, sides = find_sides(run, checkpoint or None, against)
    device, reason = choose_device(run, profile, device)
    lines = read_prompts(prompts)
    if reason:
        print(f"{reason} --device cuda shares its GPU.")
    code = FINISHED
    with closing(Helper(allow)) as helper, LiveOutput(sys.stdout) as output:
        session = ChatSession(helper, profile, sides, device=device, on_detail=output.draw)
        for number, line in enumerate(lines, start=1):
            session.restart(line.system)
            output.draw(f"{number} of {len(lines)} ...")
            try:
                answers = session.say(line.prompt, sampling, lambda texts: None)
            except DataError as error:  # the template refuses this one
                output.print(f"[{number}] {line.prompt}\n  not answered: {error.message}\n")
                code = error.exit_code
                continue
            exchange = describe_exchange(run.name, session, line.prompt, answers, sampling)
            if out is not None:
                add_exchange(out, exchange)
            output.print("\n".join(exchange_lines(number, exchange)))
    return code


def _show(question: Question) -> int:
    """The same on a screen, which goes on with what the file of answers holds already."""
    if not has_screen():
        raise UsageError("--screen needs a terminal.", hint="Without it the answers are printed.")
    from ftui.tui.open_screens import open_answers

    return open_answers(question)


def exchange_lines(number: int, exchange: Exchange) -> list[str]:
    """A prompt and its answers, as they are printed."""
    lines = [f"[{number}] {exchange.prompt}"]
    for answer in exchange.answers:
        cut = "" if answer.is_complete else f" (cut off after {answer.num_tokens} tokens)"
        lines.append(f"  {answer.of}{cut}: {shown(answer.text.strip(), newlines=True)}")
    return [*lines, ""]
