"""The verbs that control a run, as commands, screens and docs show them; ftui/runs/requests.py has what each sends."""

RUN_VERBS = {
    "pause": "stand still within a moment and keep the GPU memory",
    "hold": "the same as pause",
    "continue": "end a pause",
    "park": "save, free the GPU and leave; `ftui resume` continues",
    "checkpoint": "save now, and keep that checkpoint for good",
    "stop": "save, write final/ and end the run",
    "abort": "end the run at once, save nothing",
    "evaluate": "evaluate now (extra)",
    "sample": "answer prompts with the model as it is now",
}
CHECKPOINT_VERBS = {
    "pin": "keep a checkpoint for good",
    "unpin": "let a checkpoint go when its time comes",
    "delete": "delete a checkpoint that the run does not need",
}
_NAMES = {"hold": "pause", "delete_checkpoint": "delete checkpoint", "answer": "ask", "end_answer": "ask"}


def verb_name(verb: str) -> str:
    """The name that people know for a verb of a run's files."""
    return _NAMES.get(verb, verb)
