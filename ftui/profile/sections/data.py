"""`[data]`: the rows, and which of their tokens are trained on."""

from difflib import get_close_matches
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
    "prompt",
    "text",
    "tokenized",
]
Template = Literal[
    "chatml", "llama2", "llama3", "mistral", "gemma", "phi", "qwen", "alpaca", "vicuna", "zephyr"
]  # fmt: skip


# Texts that these formats take for one token each; the last one ends a turn. (Those of the others are plain text.)
TEMPLATE_MARKS = {
    "chatml": ("<|im_start|>", "<|im_end|>"),
    "qwen": ("<|im_start|>", "<|im_end|>"),
    "llama3": ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
    "gemma": ("<start_of_turn>", "<end_of_turn>"),
    "phi": ("<|user|>", "<|assistant|>", "<|end|>"),
}


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
    "few_eval",
    "much_padding",
    "unlike_template",
    "masks_differ",
    "boilerplate",
    "much_eval",
    "joined_lines",
    "unused_columns",
    "special_in_text",
    "files_left_out",
    "lines_passed_over",
    "missing_marks",
    "identical_answers",
    "contradictions",
    "chosen_and_rejected",
    "longer_chosen",
    "likelier_rejected",
    "prompts_differ",
    "empty_rejected",
    "cut_on_one_side",
    "end_on_one_side",
    "answer_in_prompt",
    "leaked_prompts",
    "unbalanced_verdicts",
]
"""The findings of the report on the data (ftui/dataset/report.py)."""


class DataSource(Section):
    """`[[data.train]]` and `[[data.eval]]`: one source of rows with its own settings."""

    path: str = weights(min_length=1)
    """File, folder, or hub id, as in data.train."""

    weight: float = weights(1.0, gt=0, le=1_000_000)
    """How often its rows come in an epoch: 2 = twice, 0.5 = half of them (the other half in the next epoch)."""

    format: Form | None = weights(None)
    """Form of its rows, in place of data.format."""

    columns: dict[str, str] = weights({})
    """Names of this source's columns, as in data.columns; these take precedence."""

    roles: dict[str, Role] = weights({})
    """Names of this source's speakers, as in data.roles; these take precedence."""

    encoding: str | None = weights(None)
    """Encoding of its files, in place of data.encoding."""

    num_samples: int | None = weights(None, ge=1, le=1_000_000_000)
    """Rows taken from it per epoch, in place of a weight: different rows in the next epoch; rows repeat if there are
    fewer."""

    subset: str | None = weights(None)
    """Subset (configuration) of a data set, or the entry of a `dataset_info.json`."""

    split: str | None = weights(None)
    """Split of a data set on the hub or in a folder. Default: `train` (in data.eval `validation`, else `test`), or the
    only one. In a folder, splits are known by the data set's card, by shards (`train-00000-of-00002.parquet`), by
    folders (`train/`) and by files (`train.jsonl`); a folder without splits is read whole."""

    revision: str | None = weights(None)
    """Branch, tag or commit of a data set on the hub. Resolved to a commit when the run starts."""


def _is_table(value: Any) -> str:
    return "(table)" if isinstance(value, dict | DataSource) else "(text)"


def _is_list(value: Any) -> str:
    return "(list)" if isinstance(value, list | tuple) else "(text)"


# Tagged, so that a fault in a table is reported for that table; messages leave out tags in brackets.
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
    """What to train on: a file (`.jsonl`, `.json`, `.csv`, `.tsv`, `.parquet`, `.arrow`, `.txt`, also with `.gz` or
    `.zst` appended; a text file is one document, cut at blank lines beyond 8 MiB), a folder of such files (in `sft`
    its text files only if it has no others; of a data set with splits the split `train`), a data set on the hub
    (`owner/name`), or a list of these; or tables `[[data.train]]` with `path` and settings of their own. For an entry
    of LLaMA-Factory's `dataset_info.json`, give that file as `path` and the entry's name as `subset`."""

    eval: Sources | None = conduct(None)
    """What to evaluate on: as `train`, without weights."""

    eval_fraction: float | None = weights(None, gt=0, lt=1)
    """Share of each source's training rows that is set aside for evaluation (chosen by the seed)."""

    eval_num_rows: int | None = weights(None, ge=1)
    """Number of training rows set aside for evaluation (chosen by the seed)."""

    format: Form = weights("auto")
    """Form of the rows. `auto` looks at the first rows of each file. `preference` and `kto` must be named: `sft` trains
    on the chosen answers of the former, and on the rows of the latter whose label is true. `prompt` rows have no answer
    (stage `grpo`): `prompt` is text or turns, and whoever judges the answers gets the other columns."""

    columns: dict[str, str] = weights({})
    """Names of columns that differ from the form's: {instruction = "frage", output = "antwort"}. For turns, `role` and
    `content`. The name "" skips a column: {context = ""}. The `margin` of a pair may be a difference of two columns:
    {margin = "score_chosen - score_rejected"}."""

    roles: dict[str, Role] = weights({})
    """Names of speakers that ftui does not know: {bot = "assistant", person = "user"}."""

    encoding: str | None = weights(None)
    """Encoding of text files that are not UTF-8, as Python names it: `cp1252`, `utf-16`, `shift_jis` ..."""

    on_bad_row: Literal["stop", "skip"] = weights("stop")
    """What to do with a row that cannot be read or has another form: refuse to start the run, or skip and count the
    row."""

    allow: tuple[FindingName, ...] = conduct(())
    """Findings of the report on the data that would stop the run, but are accepted."""

    mixing_temperature: float | None = weights(None, gt=0)
    """Evens out sources of unequal size, in place of weights: the share of a source with n rows is proportional to
    n^(1/T) (T = 1: unchanged; larger: more alike). The number of rows in an epoch stays the same."""

    dataset_num_proc: int | None = conduct(None, ge=1)
    """Processes that tokenise. Default: one per core, at most 8, if there are many rows."""

    chat_template: str | None = weights(None)
    """How conversations become text: by the tokenizer's own template (the default), one of `chatml`, `llama2`,
    `llama3`, `mistral`, `gemma`, `phi`, `qwen`, `alpaca`, `vicuna`, `zephyr`, or a `.jinja` file. It is saved with the
    result. A template that prints today's date always gets 26 Jul 2024 in training."""

    loss_on: Literal["assistant", "last", "everything"] = weights("assistant")
    """Which tokens of a conversation are trained on: everything that the assistant says, its last turn only, or every
    token, prompts included."""

    max_length: int = weights(1024, ge=8)
    """Longest sequence in tokens. Longer rows are truncated (`sft`) or split (`pretrain`), and counted."""

    packing: bool = weights(False)
    """Put several short rows into one sequence, without attention between them: no padding, fewer steps."""

    padding_free: bool = conduct(True)
    """Lay the rows of a micro-batch end to end, without padding and without attention between them; on a CPU, compute
    the prompt of a pair once for both answers. The loss stays the same. Where that cannot be done exactly (sdpa on a
    GPU, a model's own attention, torch_compile), rows are padded."""

    @field_validator("chat_template")
    @classmethod
    def _known_template(cls, given: str | None) -> str | None:
        known = get_args(Template)
        if given is not None and given not in known and not given.endswith(".jinja"):
            close = get_close_matches(given.lower(), known, n=1, cutoff=0.5)
            fix = f"\nDid you mean {close[0]!r}?" if close else ""
            raise ValueError(f"there is no template {given!r}: {', '.join(known)}, or a .jinja file{fix}")
        return given


def sources(given: str | tuple[str | DataSource, ...] | None) -> tuple[DataSource, ...]:
    """Every source as a table, whichever way the profile spells it."""
    each = () if given is None else (given,) if isinstance(given, str) else given
    return tuple(DataSource(path=one) if isinstance(one, str) else one for one in each)
