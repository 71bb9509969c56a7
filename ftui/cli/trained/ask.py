"""`ftui ask RUN --prompts FILE`: the answers of what a run has trained to prompts of a file, written as they come."""

import sys
from pathlib import Path

from ftui.cli.terminal import LiveOutput, has_screen
from ftui.cli.trained.answering import AnsweringOptions, address, answering, read_sampling
from ftui.errors import FINISHED, DataError, NonFiniteError, UsageError
from ftui.launch.prompt_file import Question, read_prompts
from ftui.launch.transcript import Exchange, add_exchange, describe_exchange
from ftui.text import shown


def ask(options: AnsweringOptions, prompts: Path, out: Path | None, screen: bool) -> int:
    """Ask every prompt by itself, of one side or two; print the answers, and add them to `out` as JSON lines.

    Raises:
        FtuiError: there is no such file, and see `answering`.

    Returns:
        That of the error where one of the prompts has no answer.
    """
    if screen:
        return _show(Question(address(options), prompts, out, read_sampling(options), tuple(options.allow)))
    lines, code = read_prompts(prompts), FINISHED
    with answering(options) as (run, session, sampling), LiveOutput(sys.stdout) as output:
        for number, line in enumerate(lines, start=1):
            session.restart(line.system)
            output.draw(f"{number} of {len(lines)} ...")
            try:
                answers = session.say(line.prompt, sampling, lambda texts: None)
            except (DataError, NonFiniteError) as error:  # the template refuses this one, say
                output.print(f"[{number}] {line.prompt}\n  not answered: {error.message}\n")
                code = error.exit_code
                continue
            exchange = describe_exchange(run.name, session, line.prompt, answers, sampling)
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
