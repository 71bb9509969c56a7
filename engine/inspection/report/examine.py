"""What is found by looking at rows: each finding with its number and first examples."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from msgspec import structs

from ftui.dataset.report import Example, Finding, Padding
from ftui.dataset.report_text import percent
from ftui.profile.schema import Profile
from ftui.profile.sections.row_forms import OUR_COLUMNS, fold_name
from ftui.text import toml_value

from ...data.facts.row_facts import Oddity
from ...data.load_rows import LoadedData
from ...data.stores.sequences import Sequences
from ...system.distinct import distinct
from .duplicates import Comparison, Matches
from .excerpts import make_excerpt
from .findings import KINDS, make_finding
from .lengths import cut_answers
from .limits import Limits, rows_outside_vocabulary
from .row_index import RowIndex
from .untrained_rows import find_untrained_rows

EXAMPLES = 3
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
COLUMNS_SHOWN = 8
LITTLE_PADDING = 0.1  # share of the places, below which nothing is said


@dataclass(frozen=True)
class Examination:
    """What findings are made of. `seen` is all that is read at data.max_length, before any is set aside."""

    read: LoadedData
    profile: Profile
    limits: Limits
    rows: RowIndex
    num_trained: int
    seen: Sequences
    sameness: Comparison
    padding: Padding | None
    scripts: dict[str, int]


def find_problems(looked: Examination) -> list[Finding]:
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
        _vocabulary,
        _scripts,
        _amounts,
        _padding,
    )
    order, names = {"red": 0, "yellow": 1, "note": 2}, list(KINDS)
    allow = looked.profile.data.allow
    found = [structs.replace(one, allowed=one.name in allow) for part in parts for one in part(looked)]
    return sorted(found, key=lambda one: (order[one.severity], names.index(one.name)))


def _example(looked: Examination, name: str, row: int, like: int | None = None) -> Example:
    """A row with what is wrong in it, and the one it is `like`."""
    excerpt = make_excerpt(looked.read.tokenizer, looked.rows, row, name)
    return Example(looked.rows.where(row), excerpt, None if like is None else looked.rows.where(like))


def _row_finding(looked: Examination, name: str, rows: np.ndarray, total: int, detail: str = "") -> Iterator[Finding]:
    """The finding, where there are such rows (their numbers)."""
    if len(rows):
        examples = [_example(looked, name, int(row)) for row in rows[:EXAMPLES]]
        yield make_finding(name, len(rows), total, examples, detail=detail)


def _skipped(looked: Examination) -> Iterator[Finding]:
    counts = [store.counts for store in (*looked.read.stores, *looked.read.eval_stores)]
    number = sum(one.num_skipped for one in counts)
    if number:
        named = [one for its in counts for one in its.skipped][:SKIPPED]
        reasons = Counter(one.reason for one in named)
        are_alike = len(named) > 1 and len(reasons) == 1
        examples = [Example(one.where, "" if are_alike else one.reason) for one in named]
        total = number + sum(one.num_rows for one in counts)
        found = make_finding("rows_skipped", number, total, examples, detail=_reasons(reasons, number))
        hint = named[0].hint if are_alike and "data.on_bad_row" not in named[0].hint else ""
        yield structs.replace(found, fix=hint or found.fix)


def _reasons(reasons: Counter[str], number: int) -> str:
    """In full where they are few: beside the places they are cut to the line."""
    if reasons.total() < 2 or len(reasons) > REASONS:
        return ""
    first = f"the first {reasons.total()}" if reasons.total() < number else ""
    if len(reasons) == 1:
        return ": ".join([first, *reasons] if first else reasons)
    each = "; ".join(f"{count:,}: {reason}" for reason, count in reasons.most_common())
    return f"of {first}, {each}" if first else each


def _files(looked: Examination) -> Iterator[Finding]:
    for note in looked.read.file_notes:
        yield structs.replace(make_finding("files_left_out", 1, 1), message=note)


def _misread(looked: Examination) -> Iterator[Finding]:
    """Never red: a language that is not in the table may be meant."""
    for note in looked.read.misread_files:
        finding = structs.replace(make_finding("damaged_text", 1, 1), message=note, unit="files")
        yield _never_red(finding)


def _unused(looked: Examination) -> Iterator[Finding]:
    """Of rows of several forms each column counts once."""
    stores = (*looked.read.stores, *looked.read.eval_stores)
    names = list(dict.fromkeys(name for store in stores for name in store.counts.unused))
    if names:
        more = f" and {len(names) - COLUMNS_SHOWN} more" if len(names) > COLUMNS_SHOWN else ""
        finding = make_finding("unused_columns", len(names), len(names), detail=", ".join(names[:COLUMNS_SHOWN]) + more)
        meant = {fold_name(name): name for name in names if name != fold_name(name) in OUR_COLUMNS}
        fix = f"Is data.columns = {toml_value(meant)} meant?"
        yield structs.replace(finding, severity="yellow", fix=fix) if meant else finding


def _odd(looked: Examination) -> Iterator[Finding]:
    flags = looked.rows.column("flags")[: looked.num_trained]
    for name, oddity in OF_ROWS.items():
        if name == "no_eos" and looked.profile.run.stage == "pretrain":
            continue  # rows that came as tokens are pieces of a text: they end anywhere
        rows = np.flatnonzero(flags & np.uint32(oddity))
        detail = _faults(flags) if name == "role_order" else ""
        for one in _row_finding(looked, name, rows, looked.num_trained, detail):
            num_sure = int((flags & np.uint32(Oddity.UNFILLED) > 0).sum()) if name == "placeholders" else len(rows)
            yield one if KINDS[name].severity(num_sure, looked.num_trained) == "red" else _never_red(one)


def _never_red(one: Finding) -> Finding:
    """The finding, but never red."""
    return structs.replace(one, severity="yellow") if one.severity == "red" else one


def _faults(flags: np.ndarray) -> str:
    counts = {words: int(((flags & np.uint32(fault)) > 0).sum()) for fault, words in FAULTS.items()}
    return ", ".join(f"{number:,} {words}" for words, number in counts.items() if number)


def _without_target(looked: Examination) -> Iterator[Finding]:
    """As bad as it is for the source that loses the largest part. One that loses all lets no run start."""
    its = find_untrained_rows(looked.read.sources, looked.read.stores, looked.seen)
    detail = its.detail if len(looked.read.sources) > 1 else ""
    for one in _row_finding(looked, "no_target_tokens", its.rows, its.num_rows, detail):
        _, lost, there = its.shares[0]
        severity = KINDS[one.name].severity(lost, there)
        told = structs.replace(one, severity=severity, fix=its.fix, is_allowable=lost < there)
        yield structs.replace(told, fix=_length_fix(looked, told)) if its.num_too_long else told


def _too_long(looked: Examination) -> Iterator[Finding]:
    """Plain text is split and loses nothing."""
    if looked.profile.run.stage != "sft":
        return
    max_length, stores = looked.profile.data.max_length, looked.read.stores
    firsts = np.cumsum([0, *(len(store.facts) for store in stores)])

    def longer(limit: int) -> np.ndarray:
        pairs = zip(stores, firsts, strict=False)
        return distinct(np.concatenate([store.rows[store.lengths > limit] + first for store, first in pairs]))

    for one in _row_finding(looked, "truncated", longer(max_length), looked.num_trained):
        yield structs.replace(one, fix=_length_fix(looked, one))
    pairs = [pair for pair in zip(stores, firsts, strict=False) if set(pair[0].counts.forms) != {"text"}]
    ends = [np.zeros(0, dtype=np.int64), *(cut_answers(store, max_length) + first for store, first in pairs)]
    for one in _row_finding(looked, "answers_cut_off", np.concatenate(ends), looked.num_trained):
        yield structs.replace(one, fix=_length_fix(looked, one))
    if longest := looked.limits.positions:
        yield from _row_finding(looked, "too_long_for_model", longer(longest), looked.num_trained)


def _length_fix(looked: Examination, one: Finding) -> str:
    """What to do about rows that are cut, with the length that would hold them, if the model sees so far."""
    longest = max(store.counts.longest for store in looked.read.stores)
    most = min(longest, looked.limits.positions or longest)
    if most <= looked.profile.data.max_length:
        return f"{one.fix} The model sees no more tokens."
    reach = "holds all of them" if most == longest else "is all that the model sees"
    return f"{one.fix} data.max_length = {most} {reach}."


def _repeated(looked: Examination) -> Iterator[Finding]:
    same, trained = looked.sameness, looked.num_trained
    yield from _match_finding(looked, "duplicate_rows", same.duplicates, trained)
    yield from _match_finding(looked, "similar_rows", same.similar, trained)
    yield from _match_finding(looked, "leaked_rows", same.leaked, len(looked.rows) - trained)
    if same.duplicates.count and not looked.read.eval_sources:
        yield from _parted_copies(looked)
    yield from _match_finding(looked, "repeated_prompts", same.prompts, trained)


def _parted_copies(looked: Examination) -> Iterator[Finding]:
    """Rows set aside of which an exact copy is trained on: there are more copies than may be set aside (holdout.py).

    It is not the rows' choice that they are measured, so it stops no run.
    """
    train, evaluation = looked.read.train, looked.read.evaluation
    if evaluation is None:
        return
    trained, apart = (distinct(part.sequences.rows[part.indices]) for part in (train, evaluation))
    content = looked.rows.column("content")
    whole = np.setdiff1d(apart, trained)  # of a long text, parts may be on both sides
    for one in _row_finding(looked, "leaked_rows", whole[np.isin(content[whole], content[trained])], len(apart)):
        fix = "There are more copies of one row than may be set aside: delete them, or name other rows in data.eval."
        yield structs.replace(_never_red(one), fix=fix)


def _match_finding(looked: Examination, name: str, alike: Matches, total: int) -> Iterator[Finding]:
    if not alike.count:
        return
    examples = [_example(looked, name, row, earlier) for row, earlier in alike.examples]
    yield make_finding(name, alike.count, total, examples, detail="at least" if alike.is_least else "")


def _vocabulary(looked: Examination) -> Iterator[Finding]:
    rows = rows_outside_vocabulary(looked.read, looked.limits)
    yield from _row_finding(looked, "outside_vocabulary", rows, looked.num_trained)
    if marks := looked.read.missing_marks:
        tokens = toml_value((*looked.profile.model.extra_special_tokens, *marks))
        detail = f"{', '.join(marks)}; model.extra_special_tokens = {tokens} makes tokens of them"
        yield make_finding("missing_marks", len(marks), len(marks), detail=detail)
    if unlike := looked.read.unlike_template:
        yield make_finding("unlike_template", len(unlike), len(unlike), detail="; ".join(unlike[:EXAMPLES]))
    tokenizer = looked.read.tokenizer
    if tokenizer.pad_token_id is not None and tokenizer.pad_token_id == tokenizer.eos_token_id and len(looked.seen):
        yield make_finding("pad_is_eos", len(looked.seen), len(looked.seen))


def _scripts(looked: Examination) -> Iterator[Finding]:
    total = sum(looked.scripts.values())
    others = dict(list(looked.scripts.items())[1:])
    if total and sum(others.values()) / total >= ANOTHER_SCRIPT:
        detail = ", ".join(f"{name} {percent(number, total)}" for name, number in looked.scripts.items())
        yield make_finding("mixed_scripts", sum(others.values()), total, detail=detail)


def _amounts(looked: Examination) -> Iterator[Finding]:
    train, evaluation = looked.read.train, looked.read.evaluation
    number = train.num_rows
    is_text = looked.profile.run.stage == "pretrain"
    method = "full" if looked.profile.adapter.method == "full" else "adapter"
    if is_text and 0 < train.num_tokens < FEW_TOKENS:
        yield make_finding(
            "few_rows", number, number, detail=f"{train.num_tokens:,} tokens to train on, fewer than {FEW_TOKENS:,}"
        )
    elif not is_text and 0 < number < FEW_ROWS[method]:
        yield make_finding("few_rows", number, number, detail=f"fewer than {FEW_ROWS[method]:,}")
    if evaluation is not None and evaluation.num_rows > number:
        yield make_finding("much_eval", evaluation.num_rows, evaluation.num_rows + number)


def _padding(looked: Examination) -> Iterator[Finding]:
    share = looked.padding.as_set if looked.padding is not None else 0.0
    if looked.padding is not None and share >= LITTLE_PADDING:
        without, packed = percent(looked.padding.without_packing), percent(looked.padding.with_packing)
        detail = f"{without} without packing, {packed} with it"
        yield make_finding("much_padding", round(100 * share), 100, detail=detail)
