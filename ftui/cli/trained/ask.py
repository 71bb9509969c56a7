"""`ftui ask RUN --prompts FILE`: the answers of what a run has trained to prompts of a file, written as they come."""

import sys
from pathlib import Path

from ftui.cli.terminal import LiveOutput, has_screen
from ftui.cli.trained.answering import AnsweringOptions, address, open_session, read_sampling
from ftui.errors import FINISHED, DataError, NonFiniteError, UsageError
from ftui.launch.answering_sides import plan_answering
from ftui.launch.prompt_file import Question, find_answers, read_prompts
from ftui.launch.transcript import Exchange, add_exchange, describe_exchange
from ftui.text import shown


def ask(options: AnsweringOptions, prompts: Path, out: Path | None, screen: bool) -> int:
    """Ask every prompt by itself, of one side or two; print the answers, and add them to `out` as JSON lines.

    What `out` has of the same weights and sampling is not asked again.

    Raises:
        FtuiError: there is no such file, a number is out of its bounds, or nothing can answer.

    Returns:
        That of the error where one of the prompts has no answer.
    """
    if screen:
        return _show(Question(address(options), prompts, out, read_sampling(options), tuple(options.allow)))
    lines, code = read_prompts(prompts), FINISHED
    whom, sampling = address(options), read_sampling(options)
    plan = plan_answering(whom, sampling.max_new_tokens)
    unanswered = list(enumerate(lines, start=1))
    if out is not None:
        kept = find_answers(out, ((one.prompt, one.system) for one in lines), whom.run, plan.sides, sampling)
        unanswered = [one for one, answer in zip(unanswered, kept, strict=True) if answer is None]
        if len(unanswered) < len(lines):
            print(f"{len(lines) - len(unanswered)} of {len(lines)} prompts are answered in {out}.", flush=True)
    if not unanswered:
        return code
    with open_session(plan, options.allow) as session, LiveOutput(sys.stdout) as output:
        for number, line in unanswered:
            session.restart(line.system)
            output.draw(f"{number} of {len(lines)} ...")
            try:
                answers = session.say(line.prompt, sampling, lambda texts: None)
            except (DataError, NonFiniteError) as error:  # the template refuses this one, say
                output.print(f"[{number}] {line.prompt}\n  not answered: {error.message}\n")
                code = error.exit_code
                continue
            exchange = describe_exchange(whom.run.name, session, line.prompt, answers, sampling)
            if out is not None:
                add_exchange(out, exchange)
            output.print("\n".join(exchange_lines(number, exchange, session.voice.cost)))
    return code


def _show(question: Question) -> int:
    """The same on a screen, which goes on with what the file of answers holds already."""
    if not has_screen():
        raise UsageError("--screen needs a terminal.", hint="Without it the answers are printed.")
    from ftui.tui.open_screens import open_answers

    return open_answers(question)


def exchange_lines(number: int, exchange: Exchange, cost: str) -> list[str]:
    """A prompt, its answers and what they cost, as they are printed."""
    lines = [f"[{number}] {exchange.prompt}"]
    for answer in exchange.answers:
        cut = "" if answer.is_complete else f" (cut off after {answer.num_tokens} tokens)"
        lines.append(f"  {answer.of}{cut}: {shown(answer.text.strip(), newlines=True)}")
    return [*lines, *([f"  ({cost})"] if cost else []), ""]
