"""`ftui evaluate RUN|FOLDER --data FILE`: loss and answers of a trained model on rows, written as they come."""

import sys
from collections.abc import Collection, Sequence
from contextlib import closing
from pathlib import Path

import msgspec

from ftui.cli import control
from ftui.cli.terminal import LiveOutput, table
from ftui.cli.trained.named_weights import find_model
from ftui.errors import FINISHED, UsageError
from ftui.evaluation.result_text import algorithm_lines, plan_rows, result_rows
from ftui.helper.client import Helper
from ftui.launch.evaluation_job import MAX_NEW_TOKENS, EvaluationOptions, EvaluationResult, plan_evaluation
from ftui.text import shown

WITH_ROWS = "What a run has trained is measured on the rows of a file: --data FILE"


def evaluate(
    name: str, data: Path | None, against: str | None, forgetting: str | None, measures: Path | None,
    lm_eval: Path | None, out: Path | None, num_rows: int | None, max_new_tokens: int | None, device: str | None,
    overrides: Sequence[str], allow: Collection[str], as_json: bool,
) -> int:  # fmt: skip
    """Check, measure, print. What was interrupted goes on when it is called again.

    Without `data` a run that is running is asked to evaluate now.

    Raises:
        FtuiError: see `control.order`, `plan_evaluation` and `PlannedEvaluation.run`.
    """
    if data is None:
        options = (against, forgetting, measures, lm_eval, out, num_rows, max_new_tokens, device)
        if any(option is not None for option in options) or overrides or allow or as_json or "@" in name:
            raise UsageError("There are no rows to evaluate on.", hint="Name a file of them: --data FILE")
        try:
            return control.order("evaluate", name)
        except UsageError as error:
            raise UsageError(error.message, hint=error.hint or WITH_ROWS) from error
    max_new_tokens = MAX_NEW_TOKENS if max_new_tokens is None else max_new_tokens
    if max_new_tokens < 0 or (num_rows is not None and num_rows < 1):
        raise UsageError("--rows is 1 or more, and --max-new-tokens 0 (no answers) or more.")
    planned = plan_evaluation(
        *find_model(name),
        EvaluationOptions(
            data=data, against=against, forgetting=forgetting, measures=measures, lm_eval=lm_eval, out=out,
            num_rows=num_rows, max_new_tokens=max_new_tokens, device=device, overrides=tuple(overrides), allow=allow,
        ),
    )  # fmt: skip
    with closing(Helper(allow)) as helper, LiveOutput(sys.stderr if as_json else sys.stdout) as output:
        if not as_json:
            output.print("\n".join([planned.title, *table([*plan_rows(planned.folder, ()), planned.disk], ())]))
        try:
            result = planned.run(helper, output.draw)
        except KeyboardInterrupt:
            output.print(f"Stopped. The same command goes on with what is in {planned.folder}.")
            raise
    print(msgspec.json.encode(result).decode() if as_json else _describe(result))
    return FINISHED


def _describe(result: EvaluationResult) -> str:
    facts = result.facts
    return "\n".join([
        "", *(shown(line) for line in table(result_rows(result.tables, result.lm_eval), ())), "",
        *(f"note: {shown(note)}" for note in result.notes),
        *algorithm_lines(result.tables),
        f"{facts.precision} on {facts.device}; each row and answer is in {result.folder}",
    ])  # fmt: skip
