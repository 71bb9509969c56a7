"""What is found in answers that are compared: pairs, and single ones with a verdict."""

import math
from collections.abc import Callable, Iterator

import numpy as np
from msgspec import structs

from ftui.dataset.report import AnswerFacts, Finding
from ftui.profile.schema import Profile
from ftui.profile.sections.preference import COMPARING_STAGES, PAIR_STAGES

from ...data.facts.oddity import Oddity
from ...data.stores.sequences import Sequences
from ...data.stores.store import Store
from ...system.distinct import distinct
from ..measured_reference import compare_sides
from .examination import (
    EXAMPLES,
    Examination,
    at_most_warning,
    length_fix,
    make_example,
    match_finding,
    row_finding,
)
from .findings import KINDS, make_finding

OF_PAIRS = {
    "prompts_differ": Oddity.PROMPTS_DIFFER,
    "empty_rejected": Oddity.EMPTY_REJECTED,
    "end_on_one_side": Oddity.END_ON_ONE_SIDE,
}
FEW_PAIRS = 30  # of unequal length: with fewer, more than 0.68 may be chance (two standard errors)
MOST_OUT_OF_BALANCE = 4 / 3
ALL_PARTED = "There are more answers to one prompt than may be set aside: name other rows in data.eval."


def describe_answers(seen: Sequences, stage: str) -> AnswerFacts | None:
    """The two sides in numbers, of what is seen at data.max_length; `None` where nothing is compared."""
    if stage not in COMPARING_STAGES or not len(seen):
        return None
    chosen, rejected = (seen.num_targets[seen.labels == label] for label in (1, -1))
    medians = [int(np.percentile(side, 50, method="lower")) if len(side) else 0 for side in (chosen, rejected)]
    facts = AnswerFacts(len(chosen), len(rejected), medians[0], medians[1], are_pairs=stage in PAIR_STAGES)
    if not facts.are_pairs:
        return facts
    return structs.replace(facts, num_longer=int((chosen > rejected).sum()), num_same=int((chosen == rejected).sum()))


def find_answer_problems(examination: Examination) -> Iterator[Finding]:
    """Of stages that compare answers; nothing of the others."""
    stage = examination.profile.run.stage
    if stage not in COMPARING_STAGES:
        return
    yield from _contradictions(examination)
    yield from _copied(examination)
    yield from _leaked_prompts(examination)
    if stage in PAIR_STAGES:
        yield from _odd_pairs(examination)
        yield from _cut_on_one_side(examination)
        yield from _longer_chosen(examination)
        yield from _likelier_rejected(examination)
    else:
        yield from _unbalanced(examination)


def _flags(examination: Examination) -> np.ndarray:
    return examination.rows.column("flags")[: examination.num_trained]


def _odd_pairs(examination: Examination) -> Iterator[Finding]:
    flags, total = _flags(examination), examination.num_trained
    same = flags & np.uint32(Oddity.IDENTICAL_ANSWERS) > 0
    yield from row_finding(examination, "identical_answers", np.flatnonzero(same | _same_as_seen(examination)), total)
    for name, oddity in OF_PAIRS.items():
        yield from row_finding(examination, name, np.flatnonzero(flags & np.uint32(oddity)), total)


def _same_as_seen(examination: Examination) -> np.ndarray:
    """The mask of the pairs that are the same tokens as far as data.max_length reaches, but for those left out."""
    seen, same = examination.seen, np.zeros(examination.num_trained, dtype=bool)
    rows, lengths = seen.rows[::2], seen.lengths.reshape(-1, 2)
    parting = examination.rows.column("parting")[rows]
    same[rows] = (lengths[:, 0] == lengths[:, 1]) & (parting >= lengths[:, 0])
    return same


def _cut_on_one_side(examination: Examination) -> Iterator[Finding]:
    """Pairs of which one answer loses trained tokens and the other none."""
    rows, first = [np.zeros(0, dtype=np.int64)], 0
    for store in examination.read.stores:
        rows.append(_cut_once(store, examination.profile.data.max_length) + first)
        first += len(store.facts)
    for finding in row_finding(examination, "cut_on_one_side", np.concatenate(rows), examination.num_trained):
        yield structs.replace(finding, fix=length_fix(examination, finding))


def _cut_once(store: Store, max_length: int) -> np.ndarray:
    longer = np.flatnonzero(store.lengths > max_length)
    starts = store.starts[longer]
    is_cut = np.zeros(len(store.lengths), dtype=bool)
    is_cut[longer] = store.count_trained(starts + max_length, starts + store.lengths[longer]) > 0
    return np.flatnonzero(is_cut[::2] != is_cut[1::2])


def _contradictions(examination: Examination) -> Iterator[Finding]:
    same, total = examination.sameness, examination.num_trained
    are_pairs = examination.profile.run.stage in PAIR_STAGES
    for finding in match_finding(examination, "contradictions", same.contradicting, total):
        yield finding if are_pairs else at_most_warning(finding)
    yield from match_finding(examination, "chosen_and_rejected", same.ranked, total)


def _copied(examination: Examination) -> Iterator[Finding]:
    flags, name = _flags(examination), "answer_in_prompt"
    num_sure = int((flags & np.uint32(Oddity.ANSWER_ENDS_PROMPT) > 0).sum())
    for finding in row_finding(
        examination, name, np.flatnonzero(flags & np.uint32(Oddity.ANSWER_IN_PROMPT)), examination.num_trained
    ):
        is_error = KINDS[name].severity(num_sure, examination.num_trained) == "error"
        yield finding if is_error else at_most_warning(finding)


def _leaked_prompts(examination: Examination) -> Iterator[Finding]:
    """Rows to evaluate on that ask what is trained on, but for copies of trained rows: those are leaked_rows."""
    train, evaluation = examination.read.train, examination.read.evaluation
    if evaluation is None:
        return
    trained, apart = (distinct(part.sequences.rows[part.indices]).astype(np.int64) for part in (train, evaluation))
    if examination.read.eval_sources:
        apart = apart + examination.num_trained
    prompts, content = (examination.rows.column(name) for name in ("prompt", "content"))
    leaks = (prompts[apart] != 0) & np.isin(prompts[apart], prompts[trained])
    rows = apart[leaks & ~np.isin(content[apart], content[trained])]
    if not len(rows):
        return
    likes = (int(trained[np.argmax(prompts[trained] == prompts[row])]) for row in rows[:EXAMPLES])
    examples = [
        make_example(examination, "leaked_prompts", int(row), like)
        for row, like in zip(rows[:EXAMPLES], likes, strict=True)
    ]
    finding = make_finding("leaked_prompts", len(rows), len(apart), examples)
    yield finding if examination.read.eval_sources else structs.replace(finding, fix=ALL_PARTED)


def _longer_chosen(examination: Examination) -> Iterator[Finding]:
    facts = describe_answers(examination.seen, examination.profile.run.stage)
    unequal = 0 if facts is None else facts.num_chosen - facts.num_same
    kind = KINDS["longer_chosen"]
    if facts is None or unequal < FEW_PAIRS or kind.severity(facts.num_longer, unequal) == "note":
        return
    detail = f"half of the better ones below {facts.median_chosen:,} tokens, of the worse {facts.median_rejected:,}"
    finding = make_finding(kind.name, facts.num_longer, unequal, detail=detail)
    yield structs.replace(finding, fix=f"{kind.fix} {_less_length(examination.profile)}".strip())


def _less_length(profile: Profile) -> str:
    """The keys of stage dpo that let length count for less, where none of them is set."""
    section = profile.preference
    is_set = section.ld_alpha is not None or {"sigmoid_norm", "ipo"} & set(section.loss_type or ())
    if profile.run.stage != "dpo" or is_set:
        return ""
    return (
        "Or let length count for less: preference.ld_alpha = 0.5 halves the weight of the tokens beyond the shorter "
        'answer, preference.loss_type = "sigmoid_norm" compares per token.'
    )


def _likelier_rejected(examination: Examination) -> Iterator[Finding]:
    """Of the pairs on which a run has measured the reference."""
    if examination.log_probs is None:
        return
    its = compare_sides(examination.log_probs, examination.seen.num_targets)
    rows, per_token = examination.seen.rows[::2][its.are_rejected], int(its.are_rejected_per_token.sum())
    detail = f"per token in {per_token:,}"
    yield from row_finding(examination, "likelier_rejected", rows, int(its.is_measured.sum()), detail)


def _unbalanced(examination: Examination) -> Iterator[Finding]:
    good, bad = _count_verdicts(examination)
    section, total = examination.profile.preference, round(good + bad)
    if not total:
        return
    wanted, unwanted = section.desirable_weight * good, section.undesirable_weight * bad
    if max(wanted, unwanted) <= MOST_OUT_OF_BALANCE * min(wanted, unwanted):
        return
    finding = make_finding("unbalanced_verdicts", round(good), total, detail=_ratio(wanted, unwanted))
    fix = f"Set {_weight_to_set(examination.profile, good, bad)}." if good and bad else finding.fix
    yield structs.replace(finding, fix=fix)


def _ratio(wanted: float, unwanted: float) -> str:
    if not wanted or not unwanted:
        return "none is bad" if wanted else "none is good"
    return f"{wanted / unwanted:.2g} to 1" if wanted > unwanted else f"1 to {unwanted / wanted:.2g}"


def _count_verdicts(examination: Examination) -> tuple[float, float]:
    """Answers of an epoch that are judged good, and bad: a source comes as often as its weight says."""
    train = examination.read.train
    sources = np.searchsorted(np.asarray(train.sequences.bounds), train.indices, side="right") - 1
    weights = np.array([share.per_epoch / max(1, share.num_rows) for share in examination.shares] or [1.0])
    labels, each = train.sequences.labels[train.indices], weights[sources] if len(weights) > 1 else weights[0]
    return float(((labels > 0) * each).sum()), float(((labels < 0) * each).sum())


def _weight_to_set(profile: Profile, good: float, bad: float) -> str:
    """The key with its value, to two digits, that makes the ratio of both sums 1 or a little more.

    A weight that was raised is lowered again, else the other one is raised: none falls below 1.
    """
    section = profile.preference
    desirable, undesirable = section.undesirable_weight * bad / good, section.desirable_weight * good / bad
    too_many_good = section.desirable_weight * good > section.undesirable_weight * bad
    if (desirable >= 1) if too_many_good else (undesirable < 1):
        return f"preference.desirable_weight = {_two_digits(desirable, math.ceil)}"
    return f"preference.undesirable_weight = {_two_digits(undesirable, math.floor)}"


def _two_digits(value: float, rounded: Callable[[float], int]) -> str:
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return f"{rounded(round(value / unit, 6)) * unit:.6g}"
