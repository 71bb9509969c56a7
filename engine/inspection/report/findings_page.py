"""Prints docs/data.md from the table of findings: `python -m ftui.engine.inspection.report.findings_page`."""

from ftui.profile.sections.row_forms import COLUMNS, OF_TURNS, SIGNS

from ...data.facts.near_duplicates import LIKE
from .duplicates import FEW, LEAST_TRAINED, LONG, LONGEST, MANY_TRAINED
from .examine import LITTLE_PADDING
from .findings import KINDS, FindingKind

HEAD = f"""# What is checked of the rows

Made from the code by `python -m ftui.engine.inspection.report.findings_page > docs/data.md`;
edit engine/inspection/report/, not this page.

`ftui preview PROFILE` tells it before anything is paid for; a dry run and a run look at the same things.

- **error**: a run does not start. `allow = ["name"]` below `[data]` lets it start all the same.
- **warning**: the run trains, with a warning.
- **note**: only the report says it.

Each finding tells how many rows have it, and file and line of the first. Whether it is an error or a warning may
depend on their share. Where no source is named, the figures are rules of thumb.

## How it is found out

- **Only trained tokens** are looked at. In stage `sft` that is the better answer of a pair, and of judged answers those
  that were found good. Stages that compare answers look at both sides; what the model would learn to say is looked for
  in the better one only.
- **The same**: two rows are the same if what is said in them is, in the same roles, whatever the form of the file. Ids
  and times beside the turns say nothing. What an earlier row says is counted at the later ones. A row to evaluate on
  has leaked if it asks and answers what a row to train on does, in whatever letters and spaces, and whatever the system
  says to it (unless the same question is trained on with several answers).
- **Nearly the same**: {LIKE} of all runs of three tokens are in both rows (of nine, from {LONG:,} tokens on), of all
  their tokens and of the trained ones. As many questions may share one long text, that is not enough for a row with a
  prompt: an answer below {LEAST_TRAINED} tokens counts only for the same question in the same words, one below
  {MANY_TRAINED} only for prompts that differ in at most {FEW} tokens at one place, or by half of it.
  Rows that may be so are found by 32 hashes of their words (MinHash; of long rows of the first
  20,000 characters), so that not each is compared with each: 98 in 100 of those alike by 0.8. Then their tokens are
  compared: of rows longer than {LONGEST:,} as many from both ends.
- **Wrong encoding**: only what no honest text has, such as \u00c3\u00a9 after a small letter, \u00e2\u20ac\u2122,
  U+FFFD, control signs, or words with six accented letters in a row
  (a list such as \u00e4\u00f6\u00fc\u00c4\u00d6\u00dc\u00df is none).
- **Cut**: a row longer than data.max_length loses its end in stage `sft`; plain text is split and loses nothing.
- **Padding** is counted on the batches of the run's first epoch, without a curriculum; below {LITTLE_PADDING:.0%}
  nothing is said.
- **EOS and padding**: what pads is known by its place, never by its token. A model whose padding token is also its end
  of text learns the end of every row.

## Rows for evaluation

`ftui split FILE --eval 10%` makes `FILE.train.jsonl` and `FILE.eval.jsonl`. The choice depends on the rows and `--seed`
only. Rows that say the same or nearly the same stay on one side, and so do rows that ask the same (unless so many do
that too few were left to evaluate on). Lines of JSON are copied byte for byte; the rows of other files
become lines of JSON. It holds about 150 bytes of each row in memory.

`data.eval_fraction` and `data.eval_num_rows` set rows aside in the same way, of each source; rows that only ask the
same may be parted, but not in stages that compare answers.

## Forms

A row has the first of these forms whose columns it has; `data.columns` says what they are called otherwise. Where
a row has none of them, case, outer spaces, hyphens and underscores do not count: `Instruction`, `System Prompt`.

{{forms}}

## Findings
"""


def make_page() -> str:
    forms = "\n".join(_form(form) for form in SIGNS)
    return HEAD.replace("{forms}", forms) + "\n" + "\n".join(_entry(kind) for kind in KINDS.values()) + "\n"


def _form(form: str) -> str:
    needed = SIGNS[form]
    others = sorted(COLUMNS[form] - needed - OF_TURNS)
    return f"- **`{form}`**: {', '.join(sorted(needed))}" + (f"; it may have {', '.join(others)}" if others else "")


def _entry(kind: FindingKind) -> str:
    shares = (("warning", kind.warning), ("error", kind.error))
    levels = [f"{word} {_share(at)}" for word, at in shares if at is not None]
    if kind.error == 0:
        levels = levels[1:]
    why = f" {kind.why}" if kind.why else ""
    return f"- **`{kind.name}`** ({', '.join(levels) or 'a note'}): {kind.unit} {kind.title}. {kind.fix}{why}"


def _share(at: float) -> str:
    return "where there is one" if at == 0 else "where it is all of them" if at == 1 else f"from {at:.0%} on"


if __name__ == "__main__":
    print(make_page(), end="")
