"""Chat templates of ours, for tokenizers that lack one: the published prompt formats of the families."""

from pathlib import Path

from transformers import PreTrainedTokenizerBase

from ftui.errors import DataError

FOLDER = Path(__file__).parent / "templates"
# Texts that the format takes for one token each. (Those of the other formats are plain text in their families.)
MARKS = {
    "chatml": ("<|im_start|>", "<|im_end|>"),
    "qwen": ("<|im_start|>", "<|im_end|>"),
    "llama3": ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
    "gemma": ("<start_of_turn>", "<end_of_turn>"),
    "phi": ("<|user|>", "<|assistant|>", "<|end|>"),
}  # the last one ends a turn


def take_template(tokenizer: PreTrainedTokenizerBase, wanted: str) -> tuple[str, ...]:
    """Give the tokenizer the template of this name or in this `.jinja` file; returns what is to be warned of.

    The token that ends a turn becomes its end of text, so that whoever loads the result stops there.

    Raises:
        DataError: the file cannot be read.
    """
    text = _text(wanted)
    if wanted in names() and not _begins_with_bos(tokenizer):
        text = text.replace("{{- bos_token }}\n", "").replace("bos_token + ", "")
    tokenizer.chat_template = text
    marks = MARKS.get(wanted, ())
    missing = [mark for mark in marks if mark not in tokenizer.get_vocab()]
    if not missing:
        if marks:
            tokenizer.eos_token = marks[-1]
        return ()
    listed = ", ".join(f'"{mark}"' for mark in missing)
    return (
        f"the tokenizer has no {listed}: the marks of the {wanted} template are cut into pieces; "
        f"model.extra_special_tokens = [{listed}] makes tokens of them",
    )


def names() -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in FOLDER.glob("*.jinja")))


def _text(wanted: str) -> str:
    path = Path(wanted) if wanted.endswith(".jinja") else FOLDER / f"{wanted}.jinja"
    try:
        return path.read_text(encoding="utf-8").removesuffix("\n")
    except (OSError, UnicodeDecodeError) as error:
        words = f"The chat template {path} cannot be read: {error}."
        raise DataError(words, hint="Check data.chat_template.") from error


def _begins_with_bos(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether this tokenizer begins a text with its BOS. Some have one for other uses, such as the start of a turn."""
    ids = tokenizer("a").input_ids
    return bool(ids) and tokenizer.bos_token_id is not None and ids[0] == tokenizer.bos_token_id
