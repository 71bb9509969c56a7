"""`[data]`: the rows, and what of them is trained on."""

from typing import Annotated, Any, Literal, get_args

from pydantic import Discriminator, Field, Tag, field_validator

from ftui.profile.sections.fields import Section, conduct, weights

Form = Literal[
    "auto",
    "alpaca",
    "dolly",
    "instruction_response",
    "question_answer",
    "messages",
    "sharegpt",
    "prompt_completion",
    "preference",
    "kto",
    "text",
    "tokenized",
]
Template = Literal[
    "chatml", "llama2", "llama3", "mistral", "gemma", "phi", "qwen", "alpaca", "vicuna", "zephyr"
]  # fmt: skip


Role = Literal["system", "user", "assistant", "tool", "function_call"]
FindingName = Literal[
    "rows_skipped",
    "empty_answers",
    "placeholders",
    "damaged_text",
    "role_order",
    "no_target_tokens",
    "truncated",
    "answers_cut_off",
    "duplicate_rows",
    "similar_rows",
    "leaked_rows",
    "repeated_prompts",
    "mixed_scripts",
    "two_bos",
    "no_eos",
    "pad_is_eos",
    "unknown_tokens",
    "outside_vocabulary",
    "too_long_for_model",
    "few_rows",
    "much_padding",
    "unlike_template",
    "masks_differ",
    "boilerplate",
    "much_eval",
    "joined_lines",
    "unused_columns",
    "special_in_text",
]
"""What the report on the data may find (ftui/dataset/report.py)."""


class DataSource(Section):
    """`[[data.train]]` and `[[data.eval]]`: one source of rows and what is particular to it."""

    path: str = weights(min_length=1)
    """File, folder, or hub id: as in data.train."""

    weight: float = weights(1.0, gt=0, le=1_000_000)
    """Times that its rows come in an epoch: 2 = twice, 0.5 = half of them (other ones in the next epoch)."""

    format: Form | None = weights(None)
    """Form of its rows, where it is not data.format."""

    columns: dict[str, str] = weights({})
    """What the columns of this source are called: as data.columns, and before it."""

    roles: dict[str, Role] = weights({})
    """What the speakers of this source are called: as data.roles, and before it."""

    encoding: str | None = weights(None)
    """Encoding of its files, where it is not data.encoding."""

    num_samples: int | None = weights(None, ge=1, le=1_000_000_000)
    """Rows that come of it in an epoch, in place of a weight: other ones in the next epoch, more than once each if
    there are fewer."""

    subset: str | None = weights(None)
    """Subset (configuration) of a data set on the hub, or the entry of a `dataset_info.json`."""

    split: str | None = weights(None)
    """Split of a data set on the hub. Without it `train`, or the only one."""

    revision: str | None = weights(None)
    """Branch, tag or commit of a data set on the hub. Resolved to a commit when the run starts."""


def _is_table(value: Any) -> str:
    return "(table)" if isinstance(value, dict | DataSource) else "(text)"


def _is_list(value: Any) -> str:
    return "(list)" if isinstance(value, list | tuple) else "(text)"


# Tagged, so that a fault in a table is told as a fault of that table; complaints leave tags in brackets out.
_Text = Annotated[str, Field(min_length=1), Tag("(text)")]
_OneSource = Annotated[
    _Text | Annotated[DataSource, Tag("(table)")],
    Discriminator(_is_table),
]
Sources = Annotated[
    _Text | Annotated[tuple[_OneSource, ...], Tag("(list)")],
    Discriminator(_is_list),
]


class DataSection(Section):
    """`[data]`: the rows. Paths are relative to the profile's folder."""

    train: Sources = weights()
    """What to train on: a file (`.jsonl`, `.json`, `.csv`, `.tsv`, `.parquet`, `.txt`, also with `.gz` or `.zst`
    appended; a text file is one document, cut at blank lines beyond 8 MiB), a folder of such files (in `sft` its text
    files only where it has no others), a data set on the hub (`owner/name`), or a list of these; or tables
    `[[data.train]]` with `path` and what is particular to it. An entry of LLaMA-Factory's `dataset_info.json` is that
    file's `path` and the entry's name as `subset`."""

    eval: Sources | None = conduct(None)
    """What to evaluate on: as train, without weights."""

    eval_fraction: float | None = weights(None, gt=0, lt=1)
    """Share of the training rows of each source set aside for evaluation (chosen by the seed)."""

    eval_num_rows: int | None = weights(None, ge=1)
    """Number of training rows set aside for evaluation (chosen by the seed)."""

    format: Form = weights("auto")
    """Form of the rows; `auto` looks at the first rows of each file. `preference` and `kto` rows have to be asked for:
    `sft` trains on the chosen answers of the former, and of the latter the rows whose label is true."""

    columns: dict[str, str] = weights({})
    """What the columns are called where not as the form calls them: {instruction = "frage", output = "antwort"}. Of
    turns, `role` and `content`. One that shall not be read has the name "": {context = ""}."""

    roles: dict[str, Role] = weights({})
    """What the speakers are called where not by a known name: {bot = "assistant", person = "user"}."""

    encoding: str | None = weights(None)
    """Encoding of text files that are not UTF-8, as Python names it: `cp1252`, `utf-16`, `shift_jis` ..."""

    on_bad_row: Literal["stop", "skip"] = weights("stop")
    """What becomes of a row that cannot be read or has another form: the run does not start, or the row is left out
    and counted."""

    allow: tuple[FindingName, ...] = conduct(())
    """Findings of the report on the data that would stop the run, and shall not."""

    mixing_temperature: float | None = weights(None, gt=0)
    """Evens out sources of unequal size, in place of weights: each gets a share of n^(1/T) of its n rows (T = 1: as
    they are; larger: more alike). The rows of an epoch remain as many."""

    dataset_num_proc: int | None = conduct(None, ge=1)
    """Processes that tokenise. Without it, one for each core, at most 8, where there are many rows."""

    chat_template: str | None = weights(None)
    """How conversations become text. Without it the tokenizer's own; or one of `chatml`, `llama2`, `llama3`, `mistral`,
    `gemma`, `phi`, `qwen`, `alpaca`, `vicuna`, `zephyr`; or a `.jinja` file. It is saved with the result.
    Where it prints the date of today, rows are trained on with 26 Jul 2024, whatever the day."""

    loss_on: Literal["assistant", "last", "everything"] = weights("assistant")
    """What of a conversation is trained on: all that the assistant says, its last turn only, or every token, prompts
    included."""

    max_length: int = weights(1024, ge=8)
    """Longest sequence in tokens. Longer rows are cut (`sft`) or split (`pretrain`), and counted."""

    packing: bool = weights(False)
    """Several short rows share one sequence without seeing each other: no padding, fewer steps."""

    @field_validator("chat_template")
    @classmethod
    def _known_template(cls, given: str | None) -> str | None:
        known = get_args(Template)
        if given is not None and given not in known and not given.endswith(".jinja"):
            raise ValueError(f"there is no template {given!r}: {', '.join(known)}, or a .jinja file")
        return given


def sources(given: str | tuple[str | DataSource, ...] | None) -> tuple[DataSource, ...]:
    """Every source as a table, however it is written."""
    each = () if given is None else (given,) if isinstance(given, str) else given
    return tuple(DataSource(path=one) if isinstance(one, str) else one for one in each)
