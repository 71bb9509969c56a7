"""What is found by looking at rows: each finding with its number and first examples."""

import math
from collections import Counter
from collections.abc import Iterator

import numpy as np
from msgspec import structs

from ftui.dataset.report import Example, Finding
from ftui.dataset.report_text import percent
from ftui.profile.sections.preference import COMPARING_STAGES
from ftui.profile.sections.row_forms import OUR_COLUMNS, fold_name
from ftui.text import toml_value

from ...data.facts.oddity import Oddity, without_answers
from ...data.load_rows import DataSplit
from ...system.distinct import distinct
from .answer_problems import find_answer_problems
from .examination import EXAMPLES, Examination, at_most_warning, length_fix, match_finding, row_finding
from .findings import KINDS, make_finding
from .lengths import cut_answers
from .limits import rows_outside_vocabulary
from .untrained_rows import find_untrained_rows

REASONS = 3  # as many are told in full
SKIPPED = 20  # rows that cannot be read are seen nowhere else (as many are kept)
OF_ROWS = {
    "empty_answers": Oddity.EMPTY_ANSWER,
    "placeholders": Oddity.PLACEHOLDER,
    "boilerplate": Oddity.BOILERPLATE,
    "damaged_text": Oddity.DAMAGED_TEXT,
    "role_order": Oddity.ROLE_ORDER,
    "two_bos": Oddity.TWO_BOS,
    "no_eos": Oddity.NO_EOS,
    "unknown_tokens": Oddity.UNKNOWN_TOKENS,
    "masks_differ": Oddity.MASKS_DIFFER,
    "joined_lines": Oddity.JOINED_LINES,
    "special_in_text": Oddity.SPECIAL_IN_TEXT,
}
FAULTS = {
    Oddity.ENDS_UNANSWERED: "do not end with an answer",
    Oddity.SAME_ROLE_TWICE: "have the same speaker twice in a row",
    Oddity.BEGINS_WITH_ANSWER: "begin with an answer",
    Oddity.LATE_SYSTEM: "have a system turn inside",
}
ANOTHER_SCRIPT = 0.01  # share of the letters from which on it is told
FEW_ROWS = {"adapter": 50, "full": 1000}  # sources: findings.py
FEW_TOKENS = 100_000
FEW_EVAL, FEW_EVAL_TARGETS, MANY_EVAL_TARGETS = 30, 1_000, 50_000  # rows and target tokens: findings.py
TRAIN_AN_ADAPTER = 'Or train an adapter: adapter.method = "lora".'
SEVERAL_ANSWERS = "Nothing: several answers to one prompt are what is compared here."
COLUMNS_SHOWN = 8
LITTLE_PADDING = 0.1  # share of the places, below which nothing is said


def find_problems(examination: Examination) -> list[Finding]:
    """The worst first, else in the order of their table."""
    parts = (
        _skipped,
        _files,
        _misread,
        _unused,
        _odd,
        _without_target,
        _too_long,
        _repeated,
        find_answer_problems,
        _vocabulary,
        _scripts,
        _amounts,
        _padding,
    )
    order, names = {"error": 0, "warning": 1, "note": 2}, list(KINDS)
    allow = examination.profile.data.allow
    findings = [
        structs.replace(finding, allowed=finding.name in allow) for part in parts for finding in part(examination)
    ]
    return sorted(findings, key=lambda finding: (order[finding.severity], names.index(finding.name)))


def _skipped(examination: Examination) -> Iterator[Finding]:
    counts = [store.counts for store in (*examination.read.stores, *examination.read.eval_stores)]
    number = sum(count.num_skipped for count in counts)
    if number:
        named = [row for count in counts for row in count.skipped][:SKIPPED]
        reasons = Counter(row.reason for row in named)
        are_alike = len(named) > 1 and len(reasons) == 1
        examples = [Example(row.where, "" if are_alike else row.reason) for row in named]
        total = number + sum(count.num_rows for count in counts)
        finding = make_finding("rows_skipped", number, total, examples, detail=_reasons(reasons, number))
        hint = named[0].hint if are_alike and "data.on_bad_row" not in named[0].hint else ""
        yield structs.replace(finding, fix=hint or finding.fix)


def _reasons(reasons: Counter[str], number: int) -> str:
    """In full where they are few: beside the places they are cut to the line."""
    if reasons.total() < 2 or len(reasons) > REASONS:
        return ""
    first = f"the first {reasons.total()}" if reasons.total() < number else ""
    if len(reasons) == 1:
        return ": ".join([first, *reasons] if first else reasons)
    each = "; ".join(f"{count:,}: {reason}" for reason, count in reasons.most_common())
    return f"of {first}, {each}" if first else each


def _files(examination: Examination) -> Iterator[Finding]:
    for note in examination.read.file_notes:
        yield structs.replace(make_finding("files_left_out", 1, 1), message=note)
    for note in examination.read.header_notes:
        yield structs.replace(make_finding("lines_passed_over", 1, 1), message=note)


def _misread(examination: Examination) -> Iterator[Finding]:
    """Never an error: a language that is not in the table may be meant."""
    for note in examination.read.misread_files:
        finding = structs.replace(make_finding("damaged_text", 1, 1), message=note, unit="files")
        yield at_most_warning(finding)


def _unused(examination: Examination) -> Iterator[Finding]:
    """Of rows of several forms each column counts once."""
    stores = (*examination.read.stores, *examination.read.eval_stores)
    names = list(dict.fromkeys(name for store in stores for name in store.counts.unused))
    if names:
        more = f" and {len(names) - COLUMNS_SHOWN} more" if len(names) > COLUMNS_SHOWN else ""
        finding = make_finding("unused_columns", len(names), len(names), detail=", ".join(names[:COLUMNS_SHOWN]) + more)
        meant = {fold_name(name): name for name in names if name != fold_name(name) in OUR_COLUMNS}
        fix = f"Is data.columns = {toml_value(meant)} meant?"
        yield structs.replace(finding, severity="warning", fix=fix) if meant else finding


def _odd(examination: Examination) -> Iterator[Finding]:
    flags = examination.rows.column("flags")[: examination.num_trained]
    if examination.profile.samples_answers:
        flags = np.array([without_answers(int(one)) for one in flags], dtype=flags.dtype)
    for name, oddity in OF_ROWS.items():
        if name == "no_eos" and examination.profile.run.stage == "pretrain":
            continue  # rows that came as tokens are pieces of a text: they end anywhere
        rows = np.flatnonzero(flags & np.uint32(oddity))
        detail = _faults(flags) if name == "role_order" else ""
        for finding in row_finding(examination, name, rows, examination.num_trained, detail):
            num_sure = int((flags & np.uint32(Oddity.UNFILLED) > 0).sum()) if name == "placeholders" else len(rows)
            is_error = KINDS[name].severity(num_sure, examination.num_trained) == "error"
            yield finding if is_error else at_most_warning(finding)


def _faults(flags: np.ndarray) -> str:
    counts = {words: int(((flags & np.uint32(fault)) > 0).sum()) for fault, words in FAULTS.items()}
    return ", ".join(f"{number:,} {words}" for words, number in counts.items() if number)


def _without_target(examination: Examination) -> Iterator[Finding]:
    """As bad as it is for the source that loses the largest part. One that loses all lets no run start."""
    if examination.profile.samples_answers:
        yield from _long_prompts(examination)
        return
    its = find_untrained_rows(examination.read.sources, examination.read.stores, examination.seen)
    detail = its.detail if len(examination.read.sources) > 1 else ""
    for finding in row_finding(examination, "no_target_tokens", its.rows, its.num_rows, detail):
        _, lost, there = its.shares[0]
        severity = KINDS[finding.name].severity(lost, there)
        graver = structs.replace(finding, severity=severity, fix=its.fix, is_allowable=lost < there)
        yield structs.replace(graver, fix=length_fix(examination, graver)) if its.num_too_long else graver


def _long_prompts(examination: Examination) -> Iterator[Finding]:
    """Prompts that leave no room for their answers: they are left out."""
    its = find_untrained_rows(examination.read.sources, examination.read.stores, examination.seen)
    for finding in row_finding(examination, "no_target_tokens", its.rows, its.num_rows):
        yield structs.replace(
            finding,
            message=f"{finding.count:,} of {finding.total:,} rows are longer than the {examination.profile.longest_row}"
            " tokens that answers leave them, and are left out",
            fix=f"Raise data.max_length, or lower {examination.profile.run.stage}.max_completion_length.",
        )


def _too_long(examination: Examination) -> Iterator[Finding]:
    """Plain text is split and loses nothing."""
    if examination.profile.run.stage == "pretrain" or examination.profile.samples_answers:
        return
    max_length, stores = examination.profile.data.max_length, examination.read.stores
    firsts = np.cumsum([0, *(len(store.facts) for store in stores)])

    def longer(limit: int) -> np.ndarray:
        pairs = zip(stores, firsts, strict=False)
        return distinct(np.concatenate([store.rows[store.lengths > limit] + first for store, first in pairs]))

    for finding in row_finding(examination, "truncated", longer(max_length), examination.num_trained):
        yield structs.replace(finding, fix=length_fix(examination, finding))
    pairs = [pair for pair in zip(stores, firsts, strict=False) if set(pair[0].counts.forms) != {"text"}]
    ends = [np.zeros(0, dtype=np.int64), *(cut_answers(store, max_length) + first for store, first in pairs)]
    for finding in row_finding(examination, "answers_cut_off", np.concatenate(ends), examination.num_trained):
        yield structs.replace(finding, fix=length_fix(examination, finding))
    if longest := examination.limits.positions:
        yield from row_finding(examination, "too_long_for_model", longer(longest), examination.num_trained)


def _repeated(examination: Examination) -> Iterator[Finding]:
    same, trained = examination.sameness, examination.num_trained
    yield from match_finding(examination, "duplicate_rows", same.duplicates, trained)
    yield from match_finding(examination, "similar_rows", same.similar, trained)
    yield from match_finding(examination, "leaked_rows", same.leaked, len(examination.rows) - trained)
    if same.duplicates.count and not examination.read.eval_sources:
        yield from _parted_copies(examination)
    compares = examination.profile.run.stage in COMPARING_STAGES
    for finding in match_finding(examination, "repeated_prompts", same.prompts, trained):
        yield structs.replace(finding, severity="note", fix=SEVERAL_ANSWERS) if compares else finding


def _parted_copies(examination: Examination) -> Iterator[Finding]:
    """Rows set aside of which an exact copy is trained on: there are more copies than may be set aside (holdout.py).

    It is not the rows' choice that they are measured, so it stops no run.
    """
    train, evaluation = examination.read.train, examination.read.evaluation
    if evaluation is None:
        return
    trained, apart = (distinct(part.sequences.rows[part.indices]) for part in (train, evaluation))
    content = examination.rows.column("content")
    whole = np.setdiff1d(apart, trained)  # of a long text, parts may be on both sides
    for finding in row_finding(
        examination, "leaked_rows", whole[np.isin(content[whole], content[trained])], len(apart)
    ):
        fix = "There are more copies of one row than may be set aside: delete them, or name other rows in data.eval."
        yield structs.replace(at_most_warning(finding), fix=fix)


def _vocabulary(examination: Examination) -> Iterator[Finding]:
    rows = rows_outside_vocabulary(examination.read, examination.limits)
    yield from row_finding(examination, "outside_vocabulary", rows, examination.num_trained)
    if marks := examination.read.missing_marks:
        tokens = toml_value((*examination.profile.model.extra_special_tokens, *marks))
        detail = f"{', '.join(marks)}; model.extra_special_tokens = {tokens} makes tokens of them"
        yield make_finding("missing_marks", len(marks), len(marks), detail=detail)
    if unlike := examination.read.unlike_template:
        yield make_finding("unlike_template", len(unlike), len(unlike), detail="; ".join(unlike[:EXAMPLES]))
    tokenizer = examination.read.tokenizer
    if (
        tokenizer.pad_token_id is not None
        and tokenizer.pad_token_id == tokenizer.eos_token_id
        and len(examination.seen)
    ):
        yield make_finding("pad_is_eos", len(examination.seen), len(examination.seen))


def _scripts(examination: Examination) -> Iterator[Finding]:
    total = sum(examination.scripts.values())
    others = dict(list(examination.scripts.items())[1:])
    if total and sum(others.values()) / total >= ANOTHER_SCRIPT:
        detail = ", ".join(f"{name} {percent(number, total)}" for name, number in examination.scripts.items())
        yield make_finding("mixed_scripts", sum(others.values()), total, detail=detail)


def _weak_evidence(evaluation: DataSplit, *, by_reward: bool) -> str:
    """Why the loss on these rows, or the reward of answers to them, tells little, "" where it tells enough.

    The mean of n losses that spread by s has a standard error of s / sqrt(n).
    """
    number, num_targets = len(evaluation.indices), evaluation.num_target_tokens
    if by_reward:
        spread = f"a difference under {2 / math.sqrt(number):.2g} of the spread of their rewards may be chance"
        return "" if number >= FEW_EVAL else spread
    if num_targets >= FEW_EVAL_TARGETS and (number >= FEW_EVAL or num_targets >= MANY_EVAL_TARGETS):
        return ""
    doubt = f"a difference under {2 / math.sqrt(number):.2g} of the spread between their losses may be chance"
    return f"{num_targets:,} target tokens; " + (doubt if number > 1 else "one says nothing about others")


def _amounts(examination: Examination) -> Iterator[Finding]:
    train, evaluation = examination.read.train, examination.read.evaluation
    number = train.num_rows
    profile = examination.profile
    is_text = profile.run.stage == "pretrain"
    method = "full" if profile.adapter.method == "full" else "adapter"
    if is_text and 0 < train.num_tokens < FEW_TOKENS:
        detail = f"{train.num_tokens:,} tokens to train on, fewer than {FEW_TOKENS:,}"
        yield make_finding("few_rows", number, number, detail=detail)
    elif not is_text and 0 < number < FEW_ROWS[method]:
        finding = make_finding("few_rows", number, number, detail=f"fewer than {FEW_ROWS[method]:,}")
        advice = f"{finding.fix} {TRAIN_AN_ADAPTER}" if method == "full" else finding.fix
        yield structs.replace(finding, fix=advice)
    if evaluation is not None and (detail := _weak_evidence(evaluation, by_reward=profile.samples_answers)):
        yield make_finding("few_eval", evaluation.num_rows, evaluation.num_rows, detail=detail)
    if evaluation is not None and evaluation.num_rows > number:
        yield make_finding("much_eval", evaluation.num_rows, evaluation.num_rows + number)


def _padding(examination: Examination) -> Iterator[Finding]:
    share = examination.padding.as_set if examination.padding is not None else 0.0
    if examination.padding is not None and share >= LITTLE_PADDING:
        without, packed = percent(examination.padding.without_packing), percent(examination.padding.with_packing)
        detail = f"{without} without packing, {packed} with it"
        yield make_finding("much_padding", round(100 * share), 100, detail=detail)
