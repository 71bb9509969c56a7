"""What `ftui chat` and `ftui ask` begin with: the run, its weights, who computes, how answers are drawn."""

import sys
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager
from typing import Protocol

from ftui.cli.terminal import LiveOutput
from ftui.cli.trained.named_weights import find_weights
from ftui.helper.chat_facts import check_sampling
from ftui.helper.chat_session import ChatSession
from ftui.helper.client import Helper
from ftui.launch.answering_sides import Addressee, AnsweringPlan, plan_answering
from ftui.runs.requests import SamplingKeys
from ftui.runs.run_folder import Run
from ftui.text import shown

SAMPLING = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "seed", "max_new_tokens")
HOW_ELSE = "--device cpu or cuda, and --through engine, choose otherwise."


class AnsweringOptions(Protocol):
    """The options that both commands have."""

    name: str
    against: str | None
    device: str | None
    through: str | None
    most_seconds: float
    allow: Collection[str]
    temperature: float
    top_p: float
    top_k: int
    min_p: float
    repetition_penalty: float
    seed: int
    max_new_tokens: int


def address(options: AnsweringOptions) -> Addressee:
    """Whom the command line asks.

    Raises:
        UsageError: there is no such run.
    """
    run, checkpoint = find_weights(options.name)
    return Addressee(run, checkpoint, options.against, options.device, options.through, options.most_seconds)


def read_sampling(options: AnsweringOptions) -> SamplingKeys:
    """How answers are to be drawn. Raises `UsageError` for a number that is out of its bounds."""
    return check_sampling(**{key: getattr(options, key) for key in SAMPLING})


@contextmanager
def answering(options: AnsweringOptions) -> Iterator[tuple[Run, ChatSession, SamplingKeys]]:
    """A session with what was asked for on the command line (`add_answering` of ftui/cli/options/trained_options.py).

    Raises:
        FtuiError: there is no such run or checkpoint, a number is out of its bounds, or the model cannot be loaded.
    """
    whom, sampling = address(options), read_sampling(options)
    with open_session(plan_answering(whom, sampling.max_new_tokens), options.allow) as session:
        yield whom.run, session, sampling


@contextmanager
def open_session(plan: AnsweringPlan, allow: Collection[str]) -> Iterator[ChatSession]:
    """The session of a plan; why it is that one is printed before.

    Raises:
        FtuiError: the model cannot be loaded.
    """
    if plan.reason:
        print(f"{shown(plan.reason)} {HOW_ELSE}", flush=True)
    with closing(Helper(allow)) as helper:
        with LiveOutput(sys.stdout) as output:
            session = plan.open(helper, output.draw)
        yield session
