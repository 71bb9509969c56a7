"""What is trained on of a conversation, against two others that decide it: TRL (here) and LLaMA-Factory (as recorded).

Their label ids are for the same rows and the same tokenizers (tests/fixtures/masks). All differences stand in the
tables here, each with its reason; what is in none of them has to be the same, token by token.
"""

import json
import re
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import datasets
import pytest
from transformers import PreTrainedTokenizerFast

from ftui.engine.data.files.raw_rows import Row
from ftui.engine.data.tokens.encode import EncodedRow, Encoder, stop_texts
from ftui.engine.data.tokens.named_templates import set_template, template_names

FIXTURES = Path(__file__).parents[3] / "fixtures" / "masks"
ROWS, FAMILIES, LABELS = (
    json.loads((FIXTURES / f"{name}.json").read_text()) for name in ("rows", "families", "labels")
)
CASES = {f"{case['family']}-{case['row']}-{case['loss_on']}": case for case in LABELS["cases"]}
Labelled = list[tuple[int, bool]]  # token ids, each with whether it is trained on


def tokenizer_of(vocabulary: str, **special: str) -> PreTrainedTokenizerFast:
    file = str(FIXTURES / f"{vocabulary}.json")
    return PreTrainedTokenizerFast(tokenizer_file=file, clean_up_tokenization_spaces=False, **special)


def ours(tokenizer: PreTrainedTokenizerFast, name: str, loss_on: str = "assistant") -> Labelled:
    encoder = Encoder(tokenizer, "sft", stop_texts(tokenizer, []), loss_on)
    (encoded,) = encoder.encode_all([Row(Path("rows.json"), 1, ROWS[name]["row"])], ROWS[name]["form"])
    assert isinstance(encoded, EncodedRow), encoded
    assert encoded.notes == frozenset(), "nothing is odd about these"
    (sequence,) = encoded.sequences
    return list(zip(sequence.input_ids.tolist(), sequence.targets.tolist(), strict=True))


def marked(tokenizer: PreTrainedTokenizerFast, labelled: Labelled) -> str:
    """The text, with what is trained on between brackets."""
    runs = [(trained, [i for i, _ in run]) for trained, run in groupby(labelled, key=lambda pair: pair[1])]
    return "".join(f"⟦{tokenizer.decode(ids)}⟧" if trained else str(tokenizer.decode(ids)) for trained, ids in runs)


# What LLaMA-Factory has otherwise: families, rows, a pattern in its text as `marked` gives it, what we have instead.
CHATML_LIKE = "chatml|qwen|phi|gemma"
LLAMA_FACTORY = [
    # It learns the line's end after the end of a turn, which no model has to write: it is stopped before.
    (CHATML_LIKE, ".*", r"(<\|im_end\|>|<\|end\|>|<end_of_turn>)\n⟧", r"\1⟧\n"),
    # It sets the input of an alpaca row on the next line; we leave one free, so that the two cannot be read as one.
    (".*", "alpaca", r"Sort the words\.\n", "Sort the words.\n\n"),
    # It gives a system turn to rows that have none; we add nothing to rows.
    ("qwen", "one_turn|spaces", r"<\|im_start\|>system\nYou are Qwen.*?<\|im_end\|>\n", ""),
    ("qwen", "tools", r"You are Qwen, created by Alibaba Cloud\. You are a helpful assistant\.\n\n", ""),
    ("zephyr", "one_turn|spaces", r"<\|system\|>\nYou are Zephyr, a helpful assistant\.</s> ", ""),
    # The published templates strip what is said; it does not.
    ("llama2|llama3|gemma", "spaces", r" Count to three\. ", "Count to three."),
    ("llama2|llama3|gemma|mistral", "spaces", r"⟦ +one two three\n", "⟦one two three"),
    # Llama 2's published template has a space before the end of a turn.
    ("llama2", ".*", "</s>", " </s>"),
    # It cuts a text into tokens piece by piece: with SentencePiece each begins with a space of its own, beside the one
    # that Mistral's template has there.
    ("mistral", "(?!spaces)", "⟦ ", "⟦"),
    ("mistral", ".*", r"\[/INST\]  ", "[/INST] "),
    # Of these families it leaves out the BOS before the text, which they were trained with.
    ("alpaca|vicuna", ".*", "^", "<s> "),
    # Alpaca's prompt has a line free before "### Instruction"; it learns to write those of the next turn.
    ("alpaca", ".*", r"(\n\n)? ### Instruction", "\n\n### Instruction"),
    ("alpaca", ".*", r" \n\n⟧### Instruction", "⟧\n\n### Instruction"),
    ("alpaca", ".*", r" \n\n⟧$", "⟧"),
    ("alpaca", "spaces", r"⟦ one", "⟦one"),
    # Zephyr's template has a line's end after the end of every turn.
    ("zephyr", ".*", r"</s> (?=<)", "</s> \n"),
    ("zephyr", ".*", r"</s>⟧", "</s>⟧\n"),
    ("zephyr", "spaces", r"⟦ one", "⟦one"),
]


@pytest.mark.parametrize("case", CASES)
def test_labels_are_those_of_llama_factory_but_for_what_is_explained(case: str) -> None:
    theirs = CASES[case]
    family, name = theirs["family"], theirs["row"]
    special = {key: value for key, value in FAMILIES[family].items() if key != "vocabulary"}
    tokenizer = tokenizer_of(FAMILIES[family]["vocabulary"], **special)
    assert set_template(tokenizer, family) == ()
    found = ours(tokenizer, name, theirs["loss_on"])
    labelled = [(i, label != -100) for i, label in zip(theirs["input_ids"], theirs["labels"], strict=True)]
    if found == labelled:
        return
    text = marked(tokenizer, labelled)
    for families, rows, pattern, instead in LLAMA_FACTORY:
        if re.fullmatch(families, family) and re.match(rows, name):
            text = re.sub(pattern, instead, text, flags=re.DOTALL)
    assert marked(tokenizer, found) == text
    if re.fullmatch(CHATML_LIKE, family) and name in ("system", "turns", "sharegpt", "sharegpt_tools"):
        assert [i for i, _ in found] == theirs["input_ids"], "it is what is trained on that differs, not the tokens"


def test_every_difference_in_the_table_is_there() -> None:
    """A rule that changes nothing explains nothing."""
    for families, rows, pattern, _ in LLAMA_FACTORY:
        cases = [c for c in CASES.values() if re.fullmatch(families, c["family"]) and re.match(rows, c["row"])]
        assert any(_marked_theirs(case, pattern) for case in cases), pattern


def _marked_theirs(case: dict[str, Any], pattern: str) -> bool:
    tokenizer = tokenizer_of(FAMILIES[case["family"]]["vocabulary"])
    labelled = [(i, label != -100) for i, label in zip(case["input_ids"], case["labels"], strict=True)]
    return re.search(pattern, marked(tokenizer, labelled), flags=re.DOTALL) is not None


def test_the_recorded_labels_are_of_every_template_and_row() -> None:
    assert {case["family"] for case in CASES.values()} == set(template_names())
    assert {case["row"] for case in CASES.values()} == ROWS.keys()
    assert LABELS["versions"].keys() == {"llamafactory", "transformers", "tokenizers"}


# Template files of TRL without and with its marks of what the assistant says: the token that ends a turn, and which of
# the explanations it needs.
TRL = {
    "llama3": ("<|eot_id|>", ""),
    "phi3": ("<|end|>", "second end"),
    "qwen2_5": ("<|im_end|>", "both"),
    "qwen3_instruct_2507": ("<|im_end|>", "line's end"),
    "cohere2": ("<|END_OF_TURN_TOKEN|>", ""),
    "gemma3": ("<end_of_turn>", "line's end"),
    "lfm2": ("<|im_end|>", "line's end"),
    "deepseek_r1_distill": ("<\uff5cend▁of▁sentence\uff5c>", "name"),
}
EXPLAINED = {
    "": ("^$", ""),
    "line's end": (r"(<\|im_end\|>|<end_of_turn>)\n⟧", r"\1⟧\n"),  # as above: nobody has to write it
    "both": (r"assistant⟦\n(.*?<\|im_end\|>)\n⟧", r"assistant\n⟦\1⟧\n"),
    "second end": (r"<\|end\|>\n(<\|end\|>)?⟧", r"<|end|>⟧\n\1"),  # a model stops at the first
    "name": ("⟦(<\uff5cAssistant\uff5c>)", r"\1⟦"),  # what comes before its answer is given to the model
}


@pytest.mark.parametrize("name", TRL)
def test_labels_are_those_of_trl_but_for_what_is_explained(name: str) -> None:
    """Theirs come from marks in the template, ours from rendering the template without them again and again."""
    folder, (end, explanation) = Path(str(files("trl"))) / "chat_templates", TRL[name]
    tokenizer = tokenizer_of("bytes", bos_token="<s>", eos_token=end, pad_token="<|endoftext|>")
    rows = ["one_turn", "system", "turns", "spaces"] + (["tools"] if name.startswith("qwen") else [])
    labelled = by_trl(tokenizer, (folder / f"{name}_training.jinja").read_text(), rows)
    tokenizer.chat_template = (folder / f"{name}.jinja").read_text()
    for row, theirs in zip(rows, labelled, strict=True):
        found = ours(tokenizer, row)
        assert marked(tokenizer, found) == re.sub(
            *EXPLAINED[explanation], marked(tokenizer, theirs), flags=re.DOTALL
        ), row
        assert [i for i, _ in found] == [i for i, _ in theirs]
        assert found == theirs or explanation


def by_trl(tokenizer: PreTrainedTokenizerFast, template: str, rows: list[str]) -> list[Labelled]:
    from trl.trainer.sft_trainer import SFTTrainer  # 5 s

    trainer: Any = SimpleNamespace(_tokenizer=tokenizer, chat_template=template, completion_only_loss=None)
    arguments: Any = SimpleNamespace(
        dataset_num_proc=None,
        dataset_text_field="text",
        assistant_only_loss=True,
        max_length=None,
        shuffle_dataset=False,
    )
    datasets.disable_progress_bars()
    made: list[Labelled] = []
    for name in rows:
        row = json.loads(json.dumps(ROWS[name]["row"]))
        for call in (call for message in row["messages"] for call in message.get("tool_calls", ())):
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
        table = datasets.Dataset.from_list([row])
        (done,) = SFTTrainer._prepare_dataset(trainer, table, tokenizer, arguments, False, None, "rows")
        made.append([(i, label != -100) for i, label in zip(done["input_ids"], done["labels"], strict=True)])
    return made
