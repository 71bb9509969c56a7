"""Answers from a run that trains: its engine gives them between two units of work, and training stands still."""

import time
from collections.abc import Callable

import msgspec

from ftui.errors import UsageError
from ftui.helper.chat_facts import ChatAnswer, ModelFacts, RunAnswer
from ftui.helper.chat_session import BASE, Messages, OnTexts, Side
from ftui.profile.schema import Profile
from ftui.runs.events import Answered, AnyRecord, ControlApplied, ControlRefused
from ftui.runs.requests import LONGEST, AnswerChat, AnyRequest, EndAnswer, SamplingKeys, new_id, write_request
from ftui.runs.run_folder import Run
from ftui.runs.send_request import address_request
from ftui.runs.state import phase_word
from ftui.runs.status import Watch, is_running, judge, read_status
from ftui.supervisor.spawn import ensure_supervised
from ftui.system.files import DAMAGED, read_json

LOOK_SECONDS = 0.05
NOW = "now"


class EngineVoice:
    """The model as it is in training and, with `against_base`, what it was made from.

    `price_words` says what so many seconds cost.
    """

    def __init__(
        self, run: Run, profile: Profile, *, against_base: bool, most_seconds: float,
        price_words: Callable[[float], str],
    ) -> None:  # fmt: skip
        self._run, self._most_seconds, self._price_words = run, most_seconds, price_words
        self._asked = ("now", "base") if against_base else ("now",)
        self._request: AnyRequest | None = None
        state = read_status(run).state
        device = state.device.partition(": ")[2] or state.device
        self.facts = ModelFacts(device, state.precision, profile.run.stage != "pretrain", "")
        self.sides: tuple[Side, ...] = self._sides(state.step)
        self.cost = ""

    def _sides(self, step: int) -> tuple[Side, ...]:
        return tuple(Side(BASE if side == "base" else f"step {step}") for side in self._asked)

    def answer(self, conversations: list[Messages], sampling: SamplingKeys, on_texts: OnTexts) -> list[ChatAnswer]:
        """See `Voice`.

        Raises:
            UsageError: the run is not running or refuses, or the conversation is too long for a request.
        """
        watch, fields = Watch(self._run), {
            "sides": self._asked, "conversations": conversations, "sampling": msgspec.to_builtins(sampling),
            "most_seconds": self._most_seconds,
        }  # fmt: skip
        watch.catch_up()
        status = ensure_supervised(self._run, judge(self._run, watch))
        self._request = address_request(self._run, status, AnswerChat, fields)
        if len(msgspec.json.encode(self._request)) > LONGEST:
            raise UsageError(f"A running run takes no conversation of more than {LONGEST >> 10} KiB.", hint="/new")
        write_request(self._run, self._request)
        try:
            return self._follow(watch, self._request.id, on_texts)
        except BaseException:  # Ctrl-C, say: nobody waits, and training should not
            self.stop()
            raise
        finally:
            self._request = None

    def _follow(self, watch: Watch, identity: str, on_texts: OnTexts) -> list[ChatAnswer]:
        said: RunAnswer | None = None
        while True:
            newest = self._read(identity)
            if newest is not None and (said is None or newest.texts != said.texts):
                self.facts, self.sides = newest.facts, self._sides(newest.step)
                on_texts(newest.texts)
            said = newest or said
            for record in [record for record, _ in watch.read()]:
                if (reason := self._ending(record, identity)) is not None:
                    return self._answers(self._read(identity) or said, reason)
            if not is_running(judge(self._run, watch)):
                return self._answers(said, f"it has ended ({phase_word(watch.state.phase)})")
            time.sleep(LOOK_SECONDS)

    def _read(self, identity: str) -> RunAnswer | None:
        try:
            found = read_json(self._run.answer, RunAnswer)
        except (OSError, *DAMAGED):
            return None
        return found if found.request == identity else None

    def _ending(self, record: AnyRecord, identity: str) -> str | None:
        """Why nothing more comes after this record; `None` where more may come."""
        match record:
            case Answered(request=request, seconds=seconds) if request == identity:
                self.cost = f"training stood still for {self._price_words(seconds)}"
            case ControlApplied(request=request) if request == identity:
                return "its answer is gone"
            case ControlRefused(request=request, reason=reason) if request == identity:
                return reason
        return None

    def _answers(self, said: RunAnswer | None, reason: str) -> list[ChatAnswer]:
        """All that was said; where the run left in the middle of it, what there is."""
        if said is not None and said.answers:
            return said.answers
        if said is not None and any(said.texts):
            return [ChatAnswer(text, is_complete=False, tokens=[]) for text in said.texts]
        raise UsageError(f"{self._run.name} did not answer: {reason}.")

    def stop(self) -> None:
        """End the answer in progress within a token."""
        if (request := self._request) is not None:
            end = EndAnswer(id=new_id(), attempt=request.attempt, token=request.token, of=request.id)
            write_request(self._run, end)
