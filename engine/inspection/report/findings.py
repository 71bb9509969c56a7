"""Everything the report on the data may find: how bad it is, what it says, what to do. docs/data.md is made of it.

Shares are of the rows (or what `unit` says) looked at. Where a figure is not from the source named beside it, it is a
rule of thumb.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath

from msgspec import structs

from ftui.dataset.report import Example, Finding, Report, Severity
from ftui.errors import DataError

from ...data.facts.compared_answers import LONG_ANSWER

MOST_WARNINGS = 8
_OF_ONE = {
    "are": "is", "have": "has", "hold": "holds", "say": "says", "ask": "asks", "begin": "begins", "end": "ends",
    "cannot": "cannot",
}  # fmt: skip


@dataclass(frozen=True)
class FindingKind:
    """`title` goes on where "N of M rows" stops. From the share `warning` on it warns, from `error` on it stops a run.

    Below `warning`, or without one, it is a note.
    """

    name: str
    title: str
    fix: str
    warning: float | None = None
    error: float | None = None
    why: str = ""
    unit: str = "rows"
    in_percent: bool = False

    def severity(self, count: int, total: int) -> Severity:
        share = count / max(1, total)
        if self.error is not None and share >= self.error:
            return "error"
        return "warning" if self.warning is not None and share >= self.warning else "note"


# fmt: off
_TABLE = (
    FindingKind(
        "rows_skipped", "cannot be read and are left out",
        "Mend them: each is named, of many the first twenty.", warning=0, error=0.3,
        why="Where so many rows are left out, the file is likely not what it is taken for.",
    ),
    FindingKind(
        "files_left_out", "of a folder are not trained on",
        "Nothing, if they are not meant; else list them in data.train.",
        warning=0, unit="files",
    ),
    FindingKind(
        "lines_passed_over", "have a title or a comment above their header, which is passed over",
        "Nothing, if that is the header; else delete what stands above the real one.", unit="files",
    ),
    FindingKind(
        "unused_columns", "hold words that the form of the rows has no place for: they are not trained on",
        "Nothing, where they are only about the rows; else say in data.columns what they are, or write them into one "
        "that is read.", unit="columns",
    ),
    FindingKind(
        "empty_answers", "have an empty answer: the model would learn to say nothing",
        "Delete these rows or give them an answer.", warning=0, error=0.2,
    ),
    FindingKind(
        "placeholders", "hold a placeholder such as {{name}}, TODO or lorem ipsum instead of text",
        "Replace it by what it stands for: the model learns it as it is.", warning=0, error=0.5,
        why="Only answers to something that are nothing but one, or have one for the name of the AI that answers, "
        "count towards the error: templates, wiki text and code may hold them on purpose.",
    ),
    FindingKind(
        "boilerplate", 'have an answer that says "as an AI language model" or the like',
        "Delete these rows unless the model shall talk like that.", warning=0.02,
    ),
    FindingKind(
        "damaged_text", "hold text that was read with the wrong encoding, as in \u00c3\u00a9 for \u00e9",
        "Read the original again with data.encoding, or mend the text (ftfy does).", warning=0, error=0.2,
    ),
    FindingKind(
        "role_order", "have turns that do not follow each other as in a conversation",
        "Check the rows: a turn may be missing. Where speakers have other names, set data.roles.", warning=0,
    ),
    FindingKind(
        "no_target_tokens", "have no token to train on and are left out",
        "Are there turns of the assistant, does data.roles know its name, does data.max_length leave room for them?",
        warning=0, error=0.5,
        why="Counts for each source by itself: where one loses most of its rows, the run trains on other things than "
        "meant.",
    ),
    FindingKind(
        "truncated", "are longer than data.max_length and are cut",
        'Raise data.max_length, or shorten the rows. Plain text is split, not cut, with run.stage = "pretrain".',
        warning=0,
    ),
    FindingKind(
        "answers_cut_off", "are cut in an answer, so that its end is not trained on",
        "Raise data.max_length, or leave these rows out: the model learns to stop from the ends of answers.",
        warning=0.01, error=0.5,
        why="Where most answers have no end, the model does not learn to stop.",
    ),
    FindingKind(
        "duplicate_rows", "say exactly what an earlier row says",
        "Delete the later ones, or give the source a weight if they shall come more often.", warning=0.01,
        why="A row that comes n times is trained on n times an epoch; Lee et al. 2022 (arXiv 2107.06499) found that "
        "models recite ten times less once such rows are gone.",
    ),
    FindingKind(
        "similar_rows", "are nearly what an earlier row says (0.8 of all runs of three tokens in common)",
        "Look at a few of them; delete those that teach nothing new.", warning=0.05,
    ),
    FindingKind(
        "leaked_rows", "are also trained on, exactly or nearly: their loss says nothing about new text",
        "`ftui split FILE --eval 10%` keeps what is alike on one side; or delete these rows from data.eval.",
        warning=0, error=0.2, unit="rows to evaluate on",
        why="Copies that data.eval_fraction or data.eval_num_rows had to part stop no run.",
    ),
    FindingKind(
        "repeated_prompts", "ask what an earlier row asks and answer something else",
        "Nothing, if several answers are wanted; else keep the best one.", warning=0.2,
    ),
    FindingKind(
        "mixed_scripts", "are of another script than most",
        "Nothing, if the model shall know it; else look for rows that went astray.", unit="letters",
    ),
    FindingKind(
        "two_bos", "begin with two tokens that start a text: the model has never seen that",
        "A text has one: take the other out of the rows or out of data.chat_template.", warning=0, error=0.05,
    ),
    FindingKind(
        "no_eos", "end without a token that ends a turn: the model would not learn to stop",
        "Use a data.chat_template that ends turns with the model's end-of-text token.", warning=0, error=0.95,
        why="Where it is all of them, the model never stops when it is used. In stage pretrain, pieces of text end "
        "anywhere: there it is not looked at.",
    ),
    FindingKind(
        "pad_is_eos", "are padded with the token that ends a text",
        "Nothing: padding is told by its place here, never by its token, so the run still trains on the end of a text. "
        "Other tools leave out all such tokens: with them the model would not learn to stop.", unit="sequences",
    ),
    FindingKind(
        "unknown_tokens", "hold characters the tokenizer does not know",
        "Is it the tokenizer for this language? model.extra_special_tokens adds single entries.", warning=0, error=0.2,
    ),
    FindingKind(
        "outside_vocabulary", "hold a token that the model has no embedding for",
        "Use the tokenizer that belongs to the model.", warning=0, error=0,
    ),
    FindingKind(
        "too_long_for_model", "are longer than the positions the model was made for",
        "Cut these rows into several, or use a model with a longer context: data.max_length cannot go beyond it.",
    ),
    FindingKind(
        "few_rows", "are few for this method",
        "Get more rows; compare with the base model before trusting it.", warning=0,
        why="An adapter: fewer than 50 (OpenAI's guide to fine-tuning sees clear gains from 50 to 100 examples). "
        "All weights: fewer than 1,000 (as many were enough in LIMA, Zhou et al. 2023, arXiv 2305.11206). "
        "Plain text: fewer than 100,000 tokens (a rule of thumb).",
    ),
    FindingKind(
        "few_eval", "are too few to evaluate on",
        "Set more aside (data.eval_num_rows, data.eval_fraction) or name more in data.eval: the best checkpoint and "
        "early stopping rest on them.", warning=0,
        why="Where the losses, or rewards, of n rows spread by s, a difference under 2 s / sqrt(n), two standard "
        "errors of their mean, may be chance: 0.37 s with 30 rows, 0.2 s with 100. Fewer than 30 (unless they have "
        "50,000 target tokens), or fewer than 1,000 target tokens (rules of thumb).",
    ),
    FindingKind(
        "much_eval", "are there to evaluate on, more than to train on",
        "Lower data.eval_fraction or data.eval_num_rows, or train on some of data.eval.", warning=0,
    ),
    FindingKind(
        "much_padding", "in the micro-batches of an epoch hold padding, which costs time and memory",
        'Set data.packing = true, or train.train_sampling_strategy = "group_by_length".', warning=0.3, unit="places",
        in_percent=True,
    ),
    FindingKind(
        "missing_marks", "of the data.chat_template are no tokens of the tokenizer: each is cut into pieces",
        "Make tokens of them with model.extra_special_tokens.", warning=0, unit="marks",
    ),
    FindingKind(
        "unlike_template", "between data.chat_template and the tokenizer's own template",
        "Leave data.chat_template out, unless the model shall learn another format, or its own has no place for what "
        "the rows have, such as tools.", warning=0, unit="differences",
    ),
    FindingKind(
        "masks_differ", "have an answer that the tokens to train on do not spell out",
        "Look at them with `ftui preview`; a chat template with {% generation %} marks tells the answers exactly.",
        warning=0, error=0.05,
    ),
    FindingKind(
        "special_in_text", "have the text of a special token inside a turn, which becomes that token",
        "Take it out: the model reads it as the mark itself, such as the end of the turn, and learns it in an answer.",
        warning=0,
    ),
    FindingKind(
        "identical_answers", "have the same answer as the better and as the worse one: it cancels out",
        "Delete these rows; where most are so, look at what the columns chosen and rejected hold.",
        warning=0, error=0.5, unit="pairs",
        why="Answers that part only beyond data.max_length count, too.",
    ),
    FindingKind(
        "contradictions", "say the opposite of an earlier row: the answer that is better there is worse here",
        "Delete one of each two, or keep the verdict that most gave.", warning=0.01, error=0.3,
        why="Of a pair it is the one with both answers swapped, of a verdict the other one on the same answer to the "
        "same prompt. They cancel each other out. The later ones are counted; verdicts (kto) stop no run, for several "
        "people may have given them.",
    ),
    FindingKind(
        "chosen_and_rejected", "have an answer that is chosen in one pair and rejected in another, to the same prompt",
        "Nothing, where several answers were ranked: those in the middle are both.", unit="pairs",
    ),
    FindingKind(
        "longer_chosen", "of unequal length have the longer answer as the better one: the model may learn to be long",
        "Add pairs in which the shorter answer is better.", warning=0.73, unit="pairs",
        why="From there on length alone predicts the verdict as well as one judge predicts another: trained labellers "
        "agreed in 72.6% (Ouyang et al. 2022, arXiv 2203.02155). Below, and where there are fewer than 30 of unequal "
        "length, only the share is told.",
    ),
    FindingKind(
        "likelier_rejected", "have a worse answer that the reference finds likelier than the better one",
        "Nothing: this is what there is to learn. Where it is nearly all of them, look whether the sides are swapped.",
        unit="pairs", why="Told once a run has measured the reference, of the pairs that it has measured.",
    ),
    FindingKind(
        "prompts_differ", "have another prompt before the better answer than before the worse one",
        "Let both answers follow the same turns, best in a column of its own (prompt); else the prompt is judged, too.",
        warning=0, error=0.5, unit="pairs",
    ),
    FindingKind(
        "empty_rejected", "have a worse answer that is empty: that teaches no more than to say something",
        "Delete these rows or give them an answer that could be said.", warning=0.01, unit="pairs",
    ),
    FindingKind(
        "cut_on_one_side", "are cut in one of their answers only, so that only the other one has an end",
        "Raise data.max_length, or leave these rows out: the model learns that an answer without an end is better, or "
        "worse.", warning=0.01, unit="pairs",
    ),
    FindingKind(
        "end_on_one_side", "have the end-of-text token more often at the end of one answer than of the other",
        "Take it out of the text of the answers: ftui writes it behind each.", warning=0, error=0.5, unit="pairs",
    ),
    FindingKind(
        "answer_in_prompt", "have the answer to prefer word for word in the prompt: it has only to be copied",
        "Nothing, if the task is to quote; else take it out of the prompt.", warning=0.05, error=0.5,
        why=f"Answers of at least {LONG_ANSWER} characters, where the worse answer is not in the prompt as well. Only "
        "prompts that end with the answer count towards the error: a task may be to quote, but no prompt ends with its "
        "own answer.",
    ),
    FindingKind(
        "leaked_prompts", "ask what a row to train on asks, with other answers: they say little about new prompts",
        "Keep all answers to a prompt on one side: `ftui split FILE --eval 10%` does.",
        warning=0.01, unit="rows to evaluate on",
        why="Rows that are trained on as they are count as leaked_rows. Only in stages that compare answers.",
    ),
    FindingKind(
        "unbalanced_verdicts", "are judged good: with their weights, good and bad answers do not count alike",
        "Are the verdicts right? label = true is good.", warning=0, unit="answers",
        why="(desirable_weight x good) / (undesirable_weight x bad) is to lie between 1 and 4/3 (Ethayarajh et al. "
        "2024, arXiv 2402.01306; TRL's guide). It is told below 3/4 and above 4/3, with the weight to set.",
    ),
    FindingKind(
        "joined_lines", "are text with hard line breaks, joined to paragraphs",
        "Nothing; `ftui preview` shows what became of it.",
    ),
)
# fmt: on
KINDS = {kind.name: kind for kind in _TABLE}


def make_finding(name: str, count: int, total: int, examples: Sequence[Example] = (), *, detail: str = "") -> Finding:
    """A finding of that name; `detail` goes into brackets."""
    kind = KINDS[name]
    of = "" if count == total else f" of {total:,}"
    unit, title = (kind.unit, kind.title) if count != 1 else _singular(kind, is_all=count == total)
    number = f"{count / total:.0%} of" if kind.in_percent else f"{count:,}{of}"
    message = f"{number} {unit} {title}" + (f" ({detail})" if detail else "")
    return Finding(name, kind.severity(count, total), count, total, message, kind.fix, kind.unit, list(examples))


def _singular(kind: FindingKind, *, is_all: bool) -> tuple[str, str]:
    """Unit and title for one: 1 of 9 rows has, 1 row has."""
    verb, _, rest = kind.title.partition(" ")
    rest = rest.replace(" and are ", " and is ").replace(" and answer ", " and answers ").replace("their", "its")
    unit = kind.unit.replace("rows", "row").removesuffix("s") if is_all else kind.unit
    return unit, f"{_OF_ONE.get(verb, verb)} {rest}"


def refuse_errors(report: Report) -> None:
    """Let no run start on rows that would spoil it.

    Raises:
        DataError: naming every error that data.allow does not name, its first example, and what to do.
    """
    stopping = report.stopping
    if not stopping:
        return
    lines = [f"{finding.message}{_first(finding)}. {finding.fix}" for finding in stopping]
    names = ", ".join(f'"{name}"' for name in dict.fromkeys(finding.name for finding in stopping))
    allow = f"To train on them all the same, write allow = [{names}] below [data] in the profile and start it anew."
    raise DataError(
        "The rows would spoil the run:\n" + "\n".join(f"  {line}" for line in lines),
        hint=allow if all(finding.is_allowable for finding in stopping) else "",
    )


def _first(finding: Finding, *, short: bool = False) -> str:
    if not finding.examples:
        return ""
    where, excerpt = finding.examples[0].where, finding.examples[0].excerpt
    if short:
        return f", first {structs.replace(where, file=PurePath(where.file).name)}"
    return f", first {where}" + (f': "{excerpt}"' if excerpt else "")


def warnings(report: Report) -> list[str]:
    """What a run is warned of: its warnings, and errors that are allowed; not more than eight lines and one.

    Rows that are cut in an answer are all cut: where these are all that are, they are told once.
    """
    order = {"error": 0, "warning": 1}
    findings = sorted(
        (finding for finding in report.findings if finding.severity in order),
        key=lambda finding: order[finding.severity],
    )
    findings = [finding for finding in findings if finding.allowed or finding.severity == "warning"]
    counts = {finding.name: finding.count for finding in findings}
    if counts.get("truncated") == counts.get("answers_cut_off"):
        findings = [finding for finding in findings if finding.name != "truncated"]
    lines = [f"{finding.message}{_first(finding, short=True)}" for finding in findings]
    more = len(lines) - MOST_WARNINGS
    return lines if more <= 0 else [*lines[:MOST_WARNINGS], f"and {more} more: ftui preview"]
