"""A shell script that trains: the `--key value` arguments of its command and of the launcher that starts it.

Nothing of the script is run; the variables that it sets itself are put in.
"""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import yaml

from ftui.errors import ProfileError
from ftui.importers.config_file import LARGEST_NUMBER, Leaf, plain_loader
from ftui.text import shown

ENDS = ("&&", "||", ";", "|", "&", ">", ">>", "2>&1")
UNKNOWN = "${"
"""What the script does not say itself stays as `${NAME}`, or as the `$(` of a command."""

_VARIABLE = r"[A-Za-z_]\w*"
_IN_QUOTES, _PLAIN = "\ue000", "\ue001"  # a `$` whose value is not cut into words; one that is none of the shell's
_LIST = re.compile(
    rf"^[ \t]*(?:(?:declare -a|local|readonly) )?({_VARIABLE})(\+?)=\((.*?)\)[ \t]*$", re.MULTILINE | re.DOTALL
)
_ASSIGNED = re.compile(rf"({_VARIABLE})(\+?)=(.*)", re.DOTALL)
_USED = re.compile(
    rf"[${_IN_QUOTES}](?:({_VARIABLE})|\{{({_VARIABLE})(?:\[[@*]\])?(?:(:?[-=])([^{{}}]*))?\}}|([0-9@*#?$!]))"
)
_ALL_ARGUMENTS = re.compile(rf"[${_IN_QUOTES}](?:[@*]|\{{[@*]\}})")
_DEEPER, _BACK = ("if", "for", "while", "until", "case"), ("fi", "done", "esac")
_BEFORE_A_COMMAND = (
    "export", "declare", "local", "readonly", "typeset", "env", "exec", "time", "nohup", "sudo", "-x", ":",
    "then", "do", "else", *_DEEPER, *_BACK,
)  # fmt: skip
LAUNCHER = "launcher"  # the table that their arguments stand in
ENVIRONMENT = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "NPROC_PER_NODE", "NNODES", "FORCE_TORCHRUN")
"""Variables that say on how many GPUs, to them and to programs that start themselves on several."""
_LAUNCHERS = (
    ("torchrun",), ("deepspeed",), ("accelerate", "launch"), ("accelerate-launch",), ("-m", "torch.distributed.run"),
    ("tune", "run"), ("-m", "torch.distributed.launch"), ("-m", "accelerate.commands.launch"),
    ("-m", "deepspeed.launcher.runner"),
)  # fmt: skip
# What takes no value: of accelerate 1.x, torch's elastic launcher and DeepSpeed.
_SWITCHES = (
    "cpu", "debug", "downcast_bf16", "dynamo_use_dynamic", "dynamo_use_fullgraph",
    "dynamo_use_regional_compilation", "multi_gpu", "tpu", "enable_cpu_affinity", "fp8_use_autocast_during_eval",
    "no_python", "no_tpu_cluster", "quiet", "same_network", "tpu_cluster", "tpu_use_sudo", "use_deepspeed",
    "use_fsdp", "use_megatron_lm", "use_parallelism_config", "standalone", "run_path", "use_env",
    "virtual_local_rank", "no_local_rank", "no_ssh", "no_ssh_check", "save_pid", "force_multi",
    "bind_cores_to_rank",
)  # fmt: skip
_KEY = re.compile(r"--([A-Za-z_][\w.-]*)(?:=(.*))?", re.DOTALL)
_OVERRIDE = re.compile(r"([A-Za-z_][\w.]*)=(.*)", re.DOTALL)
_CONFIG = (".yaml", ".yml", ".json")
_BEFORE_CONFIG = ("train", "sft", "axolotl.cli.train", "llamafactory.cli")
LITGPT = "litgpt"  # `litgpt finetune_lora o/m`: the table of its verb, and what its first word after it is called
MOST_PUT_IN = 1 << 20  # characters that stand in the place of variables
TRL_COMMAND = "trl"  # `trl dpo`, `python kto.py`: the table that the trainer's name stands in
_TRL_TRAINERS = ("dpo", "kto", "orpo", "cpo", "simpo", "reward", "grpo", "rloo")
_TRL_PROGRAM = re.compile(rf"(?:.*/|trl\.scripts\.)?(?:run_)?({'|'.join(_TRL_TRAINERS)})(?:_modeling)?(\.py)?")
_LITGPT_MODEL = {"finetune": "checkpoint_dir", "pretrain": "model_name"}
_LITGPT_OLD = ("finetune_lora", "finetune_full", "finetune_adapter", "finetune_adapter_v2")  # in two words till 0.4


@dataclass(frozen=True)
class Command:
    """`leaves`: the arguments in their order; `config`: the file that the command trains with, which they change."""

    leaves: tuple[Leaf, ...]
    config: str | None


def read_arguments(path: Path, text: str) -> Command:
    """The arguments in the order they are given; without a value an argument is true. A launcher's are `launcher.x`,
    those that it takes from the environment too.

    Raises:
        ProfileError: a quote is not closed, or an argument is given twice (the file may hold several commands).
    """
    try:
        words = Words(text)
    except ValueError as error:
        raise ProfileError(f"{path} cannot be read as a command: {error}.") from error
    lines = text.split("\n")
    leaves: dict[tuple[str, ...], Leaf] = {}
    config: str | None = None
    for table, name, values in _arguments(words):
        line = next((number for number, text in enumerate(lines, start=1) if name in text), 1)
        key = (*table, *name.replace("-", "_").split("."))
        is_config = not table and name == "config" and bool(values) and values[0].endswith(_CONFIG)
        if is_config and config in (None, values[0]):
            config = values[0]
            continue
        if (key in leaves and not name.startswith("$")) or is_config:
            again = f"{path}:{line}: --{shown(name)} is given twice."
            raise ProfileError(again, hint="Keep one command in the file.")
        each = [_typed(value) for value in values]
        leaves[key] = Leaf(key, True if not each else each[0] if len(each) == 1 else each, line)
    return Command(tuple(leaves.values()), config)


def _arguments(words: "Words") -> Iterator[tuple[tuple[str, ...], str, list[str]]]:
    """The table, name and values of each argument: of the environment, of launchers, of programs."""
    for name in ENVIRONMENT:
        if name in words.values:
            value = words.values[name]
            yield (LAUNCHER,), name, [f"{UNKNOWN}{name}}}" if value is None else value]
    for table, own in _parts(words.words):
        yield from _litgpt_words(own)
        yield from _trl_words(own)
        for name, values in _pairs(own):
            yield table, name, values


def _parts(words: list[str]) -> Iterator[tuple[tuple[str, ...], list[str]]]:
    """The words of launchers, each up to the program that it starts, and those of programs between them."""
    start = at = 0
    while at < len(words):
        own = _launcher_at(words, at)
        if own is None:
            at += 1
            continue
        yield (), words[start:at]
        start = at = _program_at(words, own)
        yield (LAUNCHER,), words[own:at]
    yield (), words[start:]


def _litgpt_words(words: list[str]) -> Iterator[tuple[tuple[str, ...], str, list[str]]]:
    """What LitGPT's commands that train say without a key: the verb, and the model."""
    for at, (program, verb) in enumerate(pairwise(words), start=2):
        model = next((name for start, name in _LITGPT_MODEL.items() if verb.startswith(start)), None)
        if program.rpartition("/")[2] == LITGPT and model:
            following, second = [*words[at : at + 2], "", ""][:2]
            if (joined := f"{verb}_{following}") in _LITGPT_OLD:
                verb, following = joined, second
            yield (LITGPT,), verb, []
            if following and following[0] != "-" and following not in ENDS:
                yield (), model, [following]


def _trl_words(words: list[str]) -> Iterator[tuple[tuple[str, ...], str, list[str]]]:
    """By which trainer TRL's command or one of its scripts trains, which no key says. SFT is what is taken anyway."""
    for before, word in pairwise(["", *words]):
        match = _TRL_PROGRAM.fullmatch(word)
        if match and (match[2] or before.rpartition("/")[2] == "trl" or word.startswith("trl.scripts.")):
            yield (TRL_COMMAND,), match[1], []


def _pairs(words: list[str]) -> Iterator[tuple[str, list[str]]]:
    name: str | None = None
    values: list[str] = []
    before = ""
    for word in [*words, "--_end"]:
        follows = name is None and (before in _BEFORE_CONFIG or before.endswith(".py"))
        if match := _KEY.fullmatch(word):
            if name is not None:
                yield name, values
            name, values = match[1], [] if match[2] is None else [match[2]]
        elif word in ENDS or (word.endswith(".py") and values):  # a launcher's arguments end where a program begins
            if name is not None:
                yield name, values
            name, values = None, []
        elif follows and word.endswith(_CONFIG):
            name, values = "config", [word]
        elif name == "config" and (match := _OVERRIDE.fullmatch(word)):
            yield match[1], [match[2]]
        elif name is not None and values and re.fullmatch(r"\$\{\w+\}", word):
            yield f"${word[2:-1]}", [word]  # perhaps further arguments; nobody knows
        elif name is not None and word.strip():
            values.append(word)
        before = word


def _typed(value: str) -> object:
    """Numbers and flags as YAML reads them; all else stays a text."""
    try:
        typed = yaml.load(value, Loader=plain_loader())
    except (yaml.YAMLError, ValueError, RecursionError):  # 2024-13-45 looks like a date, [[[ like lists
        return value
    if isinstance(typed, int) and typed.bit_length() > LARGEST_NUMBER:  # 0777... to YAML 1.1
        return value
    is_plain = isinstance(typed, bool | int | float) or typed is None
    return typed if is_plain and ":" not in value else value  # to YAML 1.1 `1:4` is 64


def _launcher_at(words: list[str], at: int) -> int | None:
    """Where the arguments of the launcher that is called at `at` begin; `None` where none is."""
    if at and words[at - 1].startswith("--") and "=" not in words[at - 1]:
        return None  # a value, such as `--strategy deepspeed`
    named = (words[at].rpartition("/")[2], *words[at + 1 : at + 2])
    return next((at + len(launcher) for launcher in _LAUNCHERS if named[: len(launcher)] == launcher), None)


def _program_at(words: list[str], at: int) -> int:
    """Where the program that a launcher starts begins: the first word that is no argument of the launcher's own.

    Args:
        at: where the arguments begin.
    """
    while at < len(words) and words[at].startswith("-"):
        name, equals, _ = words[at].lstrip("-").replace("-", "_").partition("=")
        if name in ("m", "module"):
            return at if words[at] == "-m" else at + 1
        takes_none = equals or name in _SWITCHES or words[at + 1 : at + 2] == [] or words[at + 1].startswith("--")
        at += 1 if takes_none else 2
    return at


class Words:
    """`words`: all words but assignments, `;` where a line ends a command; `values`: of the variables."""

    def __init__(self, text: str) -> None:
        """Raises `ValueError` where a quote is not closed, or variables of variables say more than fits in memory."""
        self.values: dict[str, str | None] = {"HOME": "~"}
        self._lists: dict[str, list[str]] = {}
        self._num_put_in = 0
        text = _LIST.sub(self._take_list, text.replace("\r\n", "\n"))
        self.words = [_unmark(word) for word in self._read(shlex.split(_with_ends(text)))]
        del self.values["HOME"]

    def _take_list(self, match: re.Match[str]) -> str:
        name, more, inside = match.groups()
        words = shlex.split(_with_ends(inside).replace(";\n", "\n"))
        self._lists[name] = [*(self._lists.get(name, []) if more else []), *words]
        return "\n" * match[0].count("\n")

    def _read(self, words: list[str]) -> Iterator[str]:
        depth, starts = 0, True
        for word in words:
            depth += (word in _DEEPER) - (word in _BACK) if starts else 0
            match = _ASSIGNED.fullmatch(word)
            if starts and match:
                self._assign(*match.groups(), is_certain=depth <= 0)
            elif not (starts and word in _BEFORE_A_COMMAND):
                starts = word in ENDS
                yield from self._expand(word)

    def _assign(self, name: str, more: str, text: str, *, is_certain: bool) -> None:
        """In a branch or a loop it may be another value in the end."""
        value = ((self.values.get(name) or "") if more else "") + self._substitute(text)
        known = is_certain or self.values.get(name) == value
        self.values[name] = value if known else None

    def _expand(self, word: str) -> Iterator[str]:
        match = _USED.fullmatch(word)
        if _ALL_ARGUMENTS.fullmatch(word):
            return  # whatever the script is called with
        if match and (match[1] or match[2]) in self._lists:
            yield from (self._substitute(element) for element in self._lists[match[1] or match[2]])
        elif match and word.startswith("$"):
            yield from shlex.split(self._substitute(word)) or []
        else:
            yield self._substitute(word)

    def _substitute(self, word: str) -> str:
        return _USED.sub(self._value, word).replace("`", "$(")

    def _value(self, match: re.Match[str]) -> str:
        name, how, other = match[1] or match[2] or match[5], match[3] or "", match[4]
        value = self.values.get(name)
        if value is None and other is not None:
            value = self._substitute(other)
            if "=" in how:
                self.values[name] = value
        put_in = f"{UNKNOWN}{name}}}" if value is None else value
        self._num_put_in += len(put_in)
        if self._num_put_in > MOST_PUT_IN:
            raise ValueError("its variables say more than a command can")
        return put_in


def _with_ends(text: str) -> str:
    """The text without comments, with ` ; ` for each line end that ends a command, and `$` marked within quotes."""
    characters: list[str] = []
    quote, at = "", 0
    while at < len(text):
        character, step = text[at], 1
        if character == "\\" and quote != "'":
            following = text[at + 1 : at + 2]
            character, step = {"\n": " ", "$": _PLAIN}.get(following, character + following), 2
        elif character in "\"'" and quote in ("", character):
            quote = "" if quote else character
        elif character == "#" and not quote and text[at - 1 : at] in ("", " ", "\t", "\n", ";"):
            character, step = "", max(text.find("\n", at), at + 1) - at if "\n" in text[at:] else len(text)
        elif character == "$" and quote:
            character = _IN_QUOTES if quote == '"' else _PLAIN
        elif character in "\n;" and not quote:
            character = " ;\n" if character == "\n" else " ; "
        characters.append(character)
        at += step
    return "".join(characters)


def _unmark(word: str) -> str:
    return word.replace(_IN_QUOTES, "$").replace(_PLAIN, "$")
