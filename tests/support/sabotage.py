"""What can be done to an engine before it starts, by name: kill it at a place, slow it down, take its memory away."""

import pickle
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.murder import arm as kill_at_place
from tests.support.murder import die
from tests.support.pickle_watch import watch_pickle


def arm(name: str, arguments: list[Any]) -> None:
    """Call the hook of this name."""
    HOOKS[name](*arguments)


def write_site(folder: Path, name: str, arguments: list[Any]) -> None:
    """Let the engine of the first attempt call this hook, where it is started by the whole program.

    That has `folder` and the top of the repository in its PYTHONPATH.
    """
    (folder / "sitecustomize.py").write_text(
        "import os, sys\n"
        'if "ftui.engine" in sys.orig_argv and os.environ["FTUI_ATTEMPT"] == "1":\n'
        "    from tests.support.sabotage import arm\n"
        f"    arm({name!r}, {arguments!r})\n"
    )


def slow(seconds: float, first: int = 1) -> None:
    """Every micro-batch of training, from the n-th on, takes this much longer."""
    count = 0

    def wait(batch: Any, learns: bool) -> None:
        nonlocal count
        count += learns
        if learns and count >= first:
            time.sleep(seconds)

    _before_forward(wait)


def gate(place: str, path: str, first: int) -> None:
    """Every pass at a place, from the n-th on, waits until the file holds its number or a larger one; PATH.at has the
    number of the one that waits.

    Places are micro-batches of training (`updating`), and passes in which a model answers (`generating`), in which
    log-probabilities of answers are measured (`values`), in which a reward model scores (`scoring`). Requests are
    looked for at every boundary, not four times a second.
    """
    from ftui.engine.generation import answer_prompts
    from ftui.engine.reinforcement import old_log_probs
    from ftui.engine.rewards.score_with_model import ModelScorer
    from ftui.engine.runtime import control_flags

    count, file, told = 0, Path(path), Path(f"{path}.at")

    def wait(*arguments: Any, **options: Any) -> None:
        nonlocal count
        count += 1
        while count >= first and int(file.read_text() or 0) < count:
            told.write_text(str(count))
            time.sleep(0.002)

    assert hasattr(control_flags, "READ_SECONDS")
    setattr(control_flags, "READ_SECONDS", 0.0)  # noqa: B010  mypy: that module imports it
    if place == "updating":
        _before_forward(lambda batch, learns: wait() if learns else None)
    elif place == "generating":
        _before(answer_prompts, "within_shared_memory", wait)
    elif place == "values":
        _before(old_log_probs, "target_log_probs", wait)
    else:
        _before(ModelScorer, "_score", wait)


def no_room_in_backward(number: int, most: int) -> None:
    """From the n-th micro-batch on, memory runs out in the backward pass of every one with more than `most` rows."""
    from ftui.engine.objectives.chunked_head import ChunkedCrossEntropy, ChunkedLogProbs

    count = rows = 0

    def note(batch: Any, learns: bool) -> None:
        nonlocal count, rows
        count, rows = count + learns, num_rows(batch)

    _before_forward(note)
    for head in (ChunkedCrossEntropy, ChunkedLogProbs):
        _fail_after(head, "backward", lambda *arguments: count >= number and rows > most)


def no_room_in_measurement(most: int) -> None:
    """Memory runs out before the first step in every batch with more than `most` rows."""
    from ftui.engine.training import measure_log_probs

    _fail_after(measure_log_probs, "target_log_probs", lambda model, batch: num_rows(batch) > most)


def no_room_in_divergence(number: int) -> None:
    """Memory runs out in the n-th pass over mismatched answers."""
    from ftui.engine.training import forward_backward

    calls = iter(range(1, 1000))
    _fail_after(forward_backward, "sum_log_ratios", lambda parts, batches: next(calls) == number)


def no_room_in_update(step: int) -> None:
    """Memory runs out in the optimizer's update of this step, when some of the weights have changed."""
    import torch

    from ftui.engine.training.step import StepRunner

    apply, update = StepRunner._apply, torch.optim.AdamW.step
    current = 0

    def noting(self: Any, number: int, rate: float) -> None:
        nonlocal current
        current = number
        apply(self, number, rate)

    def failing(self: Any, *arguments: Any) -> Any:
        result = update(self, *arguments)
        if current == step:
            _run_out()
        return result

    StepRunner._apply = noting  # type: ignore[method-assign, assignment]
    torch.optim.AdamW.step = failing  # type: ignore[method-assign, assignment]


def no_room_in_exchange(what: str, step: int) -> None:
    """In this step of a new run memory runs out as its weights are updated, or as room is made for `sum`med gradients.

    For one of several ranks.
    """
    import torch

    from ftui.engine.distributed import process_group

    owner, name = (torch.optim.AdamW, "step") if what == "update" else (process_group, "_room")
    function = getattr(owner, name)
    count = -1 if what == "update" else 0  # state is allocated by an update before the first step

    def failing(*arguments: Any, **options: Any) -> Any:
        nonlocal count
        count += 1
        result = function(*arguments, **options)
        if count == step:
            _run_out()
        return result

    setattr(owner, name, failing)


def no_room_in_evaluation(most: int, first: int = 1) -> None:
    """From the n-th batch of an evaluation on, memory runs out in every one with more than `most` rows."""
    count = 0

    def check(batch: Any, learns: bool) -> None:
        nonlocal count
        count += not learns
        if not learns and count >= first and num_rows(batch) > most:
            _run_out()

    _before_forward(check)


def no_room_in_shared_pass(most: int, alone: bool = True) -> None:
    """Memory runs out in every pass with more than `most` rows that rank 0 makes alone over a sharded base; or in those
    that all make together.

    In the first one before anything is gathered, in the next after the first tensor or layer, and so on; then in their
    turn as layers are put together that have been sent. Each place is printed.
    """
    from torch.distributed.fsdp._fully_shard import _fsdp_param_group

    from ftui.engine.distributed.sharded_base import PassOrder, ShardedBase
    from ftui.engine.generation import answer_prompts

    groups: Any = _fsdp_param_group
    call, note, send = ShardedBase._call_others, PassOrder.note, groups.foreach_all_gather_copy_out
    decode: Any = getattr(answer_prompts, "decode")  # noqa: B009  mypy: that module imports it
    rows = place = left = 0
    is_sent = False

    def count_rows(batch: Any, learns: bool) -> None:
        nonlocal rows
        rows = 0 if learns else num_rows(batch)

    def count_prompts(model: Any, prompts: Any, *arguments: Any, **options: Any) -> Any:
        nonlocal rows
        rows = len(prompts)
        return decode(model, prompts, *arguments, **options)

    def begin(self: Any, *arguments: Any) -> None:
        nonlocal place, left, is_sent
        call(self, *arguments)
        left, number = -1, len(self._order._whole)
        if self.is_alone == alone and rows > most:
            is_sent, left = place // (number + 1) % 2 == 1, place % (number + 1)
            place += 1
            print(f"no room after {left} of {number}", flush=True)
        if left == 0:
            _run_out()

    def note_and_fail(self: Any, again: Any) -> None:
        nonlocal left
        note(self, again)
        left -= 1
        if left == 0:
            _run_out()

    def put_together(*arguments: Any) -> None:
        nonlocal left
        if left == 1 and is_sent:
            left = -1
            _run_out()
        send(*arguments)

    _before_forward(count_rows)
    answer_prompts.decode = count_prompts  # type: ignore[attr-defined]
    ShardedBase._call_others = begin  # type: ignore[method-assign, assignment]
    PassOrder.note = note_and_fail  # type: ignore[method-assign]
    groups.foreach_all_gather_copy_out = put_together


def die_answering(verb: str, when: str) -> None:
    """The engine dies as it answers a request: `before` the answer is in the journal, or `after` it (it is durable, but
    the request still lies in the inbox)."""
    from ftui.engine.runtime import request_inbox
    from ftui.engine.runtime.event_writer import EventWriter

    event = EventWriter.write

    def deadly(self: Any, record: Any, *, durable: bool = False) -> None:
        hit = getattr(record, "verb", None) == verb
        if hit and when == "before":
            die()
        event(self, record, durable=durable)
        if hit:
            name = "remove_request"
            assert hasattr(request_inbox, name)
            setattr(request_inbox, name, lambda request: die())

    EventWriter.write = deadly  # type: ignore[method-assign]


def linger(place: str, seconds: float) -> None:
    """The work of one phase takes this much longer.

    `preparing` each row, `measuring` and `evaluating` each batch, the others once.
    """
    from ftui.engine import build
    from ftui.engine.checkpoints import checkpoint
    from ftui.engine.data.tokens.encode import Encoder
    from ftui.engine.training import measure_log_probs

    if place == "evaluating":
        _before_forward(lambda batch, learns: None if learns else time.sleep(seconds))
    elif place == "preparing":
        _delay(Encoder, "encode", seconds)
    elif place == "measuring":
        _delay(measure_log_probs, "target_log_probs", seconds)
    elif place == "loading":
        _delay(build, "load_model", seconds)
    elif place == "saving":
        _delay(checkpoint, "write_weights", seconds)


def _delay(owner: Any, name: str, seconds: float) -> None:
    _before(owner, name, lambda *arguments, **options: time.sleep(seconds))


def _before(owner: Any, name: str, act: Callable[..., None]) -> None:
    """Replace `owner.name` by itself after a call of `act` with the same arguments."""
    function = getattr(owner, name)

    def replaced(*arguments: Any, **options: Any) -> Any:
        act(*arguments, **options)
        return function(*arguments, **options)

    setattr(owner, name, replaced)


def audit_pickle(path: str) -> None:
    """Write a line for each save and each resume, and for every pickle (or marshalled value) read or written in one.

    The first line is of one that is read at once: the hook does see them.
    """
    from ftui.engine.checkpoints import checkpoint, resume

    is_active = True

    def tell(line: str) -> None:
        with open(path, "a") as file:
            file.write(line + "\n")

    def hook(event: str, arguments: Any) -> None:
        if is_active and event.split(".")[0] in ("pickle", "marshal"):
            importing = any("importlib" in frame.filename for frame in traceback.extract_stack())
            if not importing:  # a module's .pyc
                tell(event)

    def watched(owner: Any, name: str, word: str) -> None:
        function = getattr(owner, name)

        def wrapped(*arguments: Any, **options: Any) -> Any:
            nonlocal is_active
            is_active = True
            tell(word)
            try:
                return function(*arguments, **options)
            finally:
                is_active = False

        setattr(owner, name, wrapped)

    sys.addaudithook(hook)
    pickle.loads(pickle.dumps(AssertionError))
    is_active = False
    watched(checkpoint, "write_weights", "save")
    watched(checkpoint, "write_resume_state", "save")
    watched(resume, "restore", "resume")


def num_rows(batch: Any) -> int:
    """Sequences of a batch; of pieces that lie end to end, a prompt that answers (below 0) go on from is none."""
    if not (pieces := batch.joined):
        return len(batch.input_ids)
    return sum(piece < 0 or following > 0 for piece, following in zip(pieces, (*pieces[1:], 1), strict=True))


def _run_out() -> None:
    import torch

    raise torch.OutOfMemoryError("out of memory: there are no 20.00 MiB left (a test)")


def _fail_after(owner: Any, name: str, when: Callable[..., bool]) -> None:
    """Replace `owner.name` by itself, except that memory runs out once it is done, where `when` says so."""
    function = getattr(owner, name)

    def failing(*arguments: Any, **options: Any) -> Any:
        result = function(*arguments, **options)
        if when(*arguments):
            _run_out()
        return result

    setattr(owner, name, staticmethod(failing) if isinstance(owner, type) else failing)


def _before_forward(act: Callable[[Any, bool], None]) -> None:
    """Call `act` with every micro-batch, and whether the model learns from it, before it goes through the model."""
    import torch

    from ftui.engine.models.model_parts import LossModule

    forward = LossModule.forward

    def ensure_supervised(self: Any, batch: Any) -> Any:
        act(batch, torch.is_grad_enabled())
        return forward(self, batch)

    LossModule.forward = ensure_supervised  # type: ignore[method-assign]


def talk_on(seconds: float) -> None:
    """Nothing ends an answer to a question by itself, and each token of it takes this much longer."""
    import dataclasses

    from ftui.engine.generation.conversation import Answer

    begin, add_token = Answer.__init__, Answer.add_token

    def begin_without_end(self: Any, model: Any, *arguments: Any) -> None:
        begin(self, dataclasses.replace(model, stop_ids=()), *arguments)

    def add_slowly(self: Any) -> None:
        time.sleep(seconds)
        add_token(self)

    changed: Any = Answer
    changed.__init__, changed.add_token = begin_without_end, add_slowly


HOOKS: dict[str, Callable[..., None]] = {
    "kill": kill_at_place,
    "slow": slow,
    "gate": gate,
    "linger": linger,
    "talk_on": talk_on,
    "no_room_in_backward": no_room_in_backward,
    "no_room_in_measurement": no_room_in_measurement,
    "no_room_in_divergence": no_room_in_divergence,
    "no_room_in_update": no_room_in_update,
    "no_room_in_exchange": no_room_in_exchange,
    "no_room_in_evaluation": no_room_in_evaluation,
    "no_room_in_shared_pass": no_room_in_shared_pass,
    "die_answering": die_answering,
    "audit_pickle": audit_pickle,
    "watch_pickle": watch_pickle,
}
