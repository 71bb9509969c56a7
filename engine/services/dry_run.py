"""`python -P -m ftui.engine.services.dry_run PROFILE`: rows, tokens and steps as one JSON object; trains nothing."""

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..system.environment import settle_environment

settle_environment()

import msgspec  # noqa: E402

from ftui.errors import FtuiError  # noqa: E402

if TYPE_CHECKING:
    from ftui.profile.schema import Profile


def main(arguments: list[str]) -> int:
    try:
        answer = count(Path(arguments[0]))
    except FtuiError as error:
        answer = {"error": {"message": error.message, "hint": error.hint, "exit_code": error.exit_code}}
    sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
    return 0


def count(path: Path) -> dict[str, Any]:
    """Raises `FtuiError` when the profile, its model's files or its rows are wrong."""
    from ftui.profile.layers import resolve

    return counts(resolve(path).profile)


def counts(profile: "Profile") -> dict[str, Any]:
    """Raises `FtuiError` when the model's files or the rows are wrong."""
    from ftui.system.user_folders import cache_folder

    from ..planning.curriculum_plan import Course, stages_in_words
    from ..training.prepare import prepare

    with tempfile.TemporaryDirectory() as fallback:
        prepared = prepare(profile, cache_folder(Path(fallback)), lambda detail: None)
        found, plan = prepared.train.sequences.counts, prepared.plan
        return {
            "num_train_rows": prepared.train.num_rows,
            "num_eval_rows": 0 if prepared.evaluation is None else prepared.evaluation.num_rows,
            "num_train_tokens": prepared.epoch_tokens,
            "num_target_tokens": prepared.epoch_target_tokens,
            "num_sequences": plan.rows_per_epoch,
            "steps_per_epoch": plan.steps_per_epoch,
            "max_steps": plan.max_steps,
            "num_tokens": plan.num_tokens(0, plan.max_steps),
            "stages": stages_in_words(plan, profile.train) if isinstance(plan, Course) else [],
            "effective_batch": plan.effective_batch,
            "longest": found.longest,
            "num_cut": found.num_cut,
            "num_skipped": found.num_skipped,
            "warnings": list(prepared.warnings),
        }


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
