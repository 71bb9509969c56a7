"""What the evaluations of a run answer."""

from ftui.dataset.row_counts import RowCounts
from ftui.estimate.setup import AnsweredRows, TrainingSetup
from ftui.profile.schema import Profile


def answered_rows(profile: Profile, setup: TrainingSetup, counts: RowCounts) -> AnsweredRows | None:
    """What evaluations answer. Of rows that are not known, prompts and answers are taken to be as long as rows are."""
    section = profile.eval
    if setup.sampled is not None and setup.evaluates:
        number = (counts.num_eval_rows or setup.eval_batch) * (profile.sampled.num_generations_eval or 1)
        return AnsweredRows(number, setup.sampled.prompt_tokens, setup.sampled.new_tokens)
    if not (section.generate and setup.evaluates):
        return None
    limits = [number for number in (section.generate_samples, counts.num_eval_rows) if number]
    num_rows = counts.num_answered or min(limits, default=setup.eval_batch)
    longest = counts.longest_answer or section.generate_max_new_tokens or setup.length
    return AnsweredRows(num_rows, counts.longest_prompt or setup.length, longest)
