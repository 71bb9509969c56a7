"""The words of a shell script, with the variables put in that it sets itself. Nothing of it is run."""

import re
import shlex
from collections.abc import Iterator

ENDS = ("&&", "||", ";", "|", "&", ">", ">>", "2>&1")
UNKNOWN = "${"
"""What the script does not say itself stays as `${NAME}`, or as the `$(` of a command."""

_NAME = r"[A-Za-z_]\w*"
_IN_QUOTES, _PLAIN = "\ue000", "\ue001"  # a `$` whose value is not cut into words; one that is none of the shell's
_LIST = re.compile(
    rf"^[ \t]*(?:(?:declare -a|local|readonly) )?({_NAME})(\+?)=\((.*?)\)[ \t]*$", re.MULTILINE | re.DOTALL
)
_ASSIGNED = re.compile(rf"({_NAME})(\+?)=(.*)", re.DOTALL)
_USED = re.compile(rf"[${_IN_QUOTES}](?:({_NAME})|\{{({_NAME})(?:\[[@*]\])?(?:(:?[-=])([^{{}}]*))?\}}|([0-9@*#?$!]))")
_ALL_ARGUMENTS = re.compile(rf"[${_IN_QUOTES}](?:[@*]|\{{[@*]\}})")
_DEEPER, _BACK = ("if", "for", "while", "until", "case"), ("fi", "done", "esac")
_BEFORE_A_COMMAND = (
    "export", "declare", "local", "readonly", "typeset", "env", "exec", "time", "nohup", "sudo", "-x", ":",
    "then", "do", "else", *_DEEPER, *_BACK,
)  # fmt: skip


class Words:
    """`words`: all words but assignments, `;` where a line ends a command; `values`: of the variables."""

    def __init__(self, text: str) -> None:
        """Raises `ValueError` where a quote is not closed."""
        self.values: dict[str, str | None] = {"HOME": "~"}
        self._lists: dict[str, list[str]] = {}
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
        return f"{UNKNOWN}{name}}}" if value is None else value


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
