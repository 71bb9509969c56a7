"""The engine, killed by SIGKILL at the n-th pass of one place: `murder.py RUN_DIR PLACE N`. Tests run it."""

import os
import signal
import sys
from typing import Any

from ftui.engine.__main__ import main
from ftui.runs import journal
from ftui.runs.journal import Writer
from ftui.runs.records.record import Record


def kill_at(owner: Any, name: str, number: int, *, after: bool = False, static: bool = False) -> None:
    """Replace `owner.name` by itself, except that its n-th call kills the process (before its work, or after it)."""
    function = getattr(owner, name)
    calls = 0

    def deadly(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == number and not after:
            die()
        result = function(*arguments, **options)
        if calls == number:
            die()
        return result

    setattr(owner, name, staticmethod(deadly) if static else deadly)


def tear_at(number: int) -> None:
    """Kill the process when half of its n-th record (a line of the journal or of the metrics) is written."""
    encode, calls = journal.encode, 0

    def deadly(record: Record) -> bytes:
        nonlocal calls
        calls += 1
        line = encode(record)
        if calls < number:
            return line
        os.write = half_and_die
        return line

    def half_and_die(descriptor: int, data: Any) -> int:
        write(descriptor, data[: len(data) // 2])
        die()
        return 0

    write = os.write
    journal.encode = deadly


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def arm(place: str, number: int) -> None:
    import ftui.runs.checkpoint_folders
    from ftui.engine import build
    from ftui.engine.checkpoints import checkpoint
    from ftui.engine.evaluation.generated_answers import AnswerFile
    from ftui.engine.generation import answer_prompts
    from ftui.engine.objectives.chunked_head import ChunkedCrossEntropy, ChunkedLogProbs
    from ftui.engine.reinforcement import old_log_probs
    from ftui.engine.reinforcement.scoring import AnswerScoring
    from ftui.engine.rollouts import rollout_files
    from ftui.engine.training import evaluate, measure_log_probs, step

    if place == "forward":
        for head in (ChunkedCrossEntropy, ChunkedLogProbs):
            kill_at(head, "forward", number, static=True)
    elif place == "backward":  # inside the n-th backward pass, when the gradient reaches the hidden states
        for head in (ChunkedCrossEntropy, ChunkedLogProbs):
            kill_at(head, "backward", number, static=True, after=True)
    elif place == "measuring":
        kill_at(measure_log_probs, "target_log_probs", number, after=True)
    elif place == "optimizer":
        kill_at(step, "update_weights", number, after=True)
    elif place == "save":
        kill_at(ftui.runs.checkpoint_folders, "write_checked", number)
    elif place == "evaluation":
        kill_at(evaluate, "collate_examples", number)
    elif place == "answer":
        kill_at(AnswerFile, "write", number, after=True)
    elif place == "generating":  # a pass of the model, of whatever is asked
        kill_at(answer_prompts, "within_shared_memory", number)
    elif place == "scoring":
        kill_at(AnswerScoring, "score", number, after=number % 2 == 0)
    elif place == "values":
        kill_at(old_log_probs, "target_log_probs", number, after=True)
    elif place == "rollout":  # one of its files, the texts first
        kill_at(rollout_files, "replace_file", number, after=number % 3 == 0)
    elif place == "final":
        kill_at(checkpoint.CheckpointManager, "publish_final", number, after=True)
    elif place == "rotation":  # checkpoints are renamed to trash before they are deleted
        kill_at(ftui.runs.checkpoint_folders, "_delete_manifest_files", number)
    elif place == "record":
        kill_at(Writer, "write", number, after=True)
    elif place == "torn record":
        tear_at(number)
    elif place == "loading":
        kill_at(build, "load_model", number, after=True)
    else:
        raise SystemExit(f"no such place: {place}")


if __name__ == "__main__":
    arm(sys.argv[2], int(sys.argv[3]))
    raise SystemExit(main([sys.argv[1]]))
