"""A stand-in for the helper process where rows are looked at: a few rows, made up, and a report on them."""

import json
import re
from collections.abc import Callable, Collection, Sequence
from typing import Any

import msgspec

from ftui.dataset.report import Example, Finding, OtherLength, Padding, Report, RowLocation, SourceFacts
from ftui.dataset.row import AnswerSide, ComparedAnswers, RowView, Token, Turn
from ftui.errors import FtuiError
from ftui.profile.consent import check_remote_code
from ftui.profile.schema import Profile

FILE = "/data/helpdesk.jsonl"
MAX_LENGTH = 160
LONG = (
    "A kernel is the part of an operating system that stands between programs and the machine. It hands out memory, "
    "decides whose turn it is, and keeps one program from reading what belongs to another.\n\nThree things it does:\n"
    "1. it schedules processes,\n2. it maps memory,\n3. it talks to devices.\n\n"
)
CHATS: list[list[tuple[str, str]]] = [
    [
        ("system", "You answer in a few plain sentences."),
        ("user", "What is a kernel?"),
        ("assistant", LONG + "Everything else asks it through system calls, of which there are a few hundred."),
        ("user", "And a shell?"),
        ("assistant", "A program like any other: it reads a line, finds the program that is meant, and starts it."),
    ],
    [("user", "Where is the log?"), ("assistant", "In /var/log; `journalctl -e` shows its end. 日本語も読めます。")],
    [("user", "Tell me all about it."), ("assistant", LONG * 3)],
    [("user", "Hi"), ("assistant", "{{answer}}")],
]


def tokens_of(text: str, *, is_target: bool = False) -> list[Token]:
    """About as a tokenizer would cut it: words with their blank, marks for themselves."""
    parts = re.findall(r" ?\w+|\n+|[^\w\n]", text)
    return [Token(10 + len(part), part, is_target) for part in parts]


def sample_of(
    number: int,
    chat: Sequence[tuple[str, str]],
    *,
    num_rows: int,
    notes: Sequence[str] = (),
    where: RowLocation | None = None,
) -> RowView:
    """A conversation in ChatML, of which the assistant's turns are learned; cut at MAX_LENGTH."""
    tokens: list[Token] = []
    turns: list[Turn] = []
    for role, said in chat:
        start, learned = len(tokens), role == "assistant"
        tokens += [Token(1, "<|im_start|>", False, True), *tokens_of(f"{role}\n")]
        tokens += tokens_of(said, is_target=learned)
        tokens += [Token(2, "<|im_end|>", learned, True), Token(3, "\n")]
        turns.append(Turn(role, start, len(tokens)))
    tokens = [Token(one.id, one.text, one.is_target, one.is_special, n >= MAX_LENGTH) for n, one in enumerate(tokens)]
    raw = {"messages": [{"role": role, "content": said} for role, said in chat]}
    return RowView(
        number=number, num_rows=num_rows, where=where or RowLocation(FILE, number + 1), source=FILE, form="messages",
        part=0, num_parts=1, tokens=tokens, turns=turns, num_tokens=len(tokens), max_length=MAX_LENGTH,
        notes=list(notes),
        num_target_tokens=sum(one.is_target and not one.is_cut for one in tokens),
        raw=json.dumps(raw, indent=2, ensure_ascii=False),
    )  # fmt: skip


SAMPLES = [
    sample_of(n, chat, num_rows=len(CHATS), notes=["the answer is a placeholder: {{answer}}"] if n == 3 else [])
    for n, chat in enumerate(CHATS)
]


def pair_of(answers: Sequence[str], log_probs: Sequence[float | None]) -> list[RowView]:
    """The two answers of a pair, as the two parts of the only row."""
    asked = ("user", "Where is the log?")
    sides = [sample_of(0, [asked, ("assistant", answer)], num_rows=1) for answer in answers]
    seen = [
        AnswerSide(label, one.num_tokens, one.num_target_tokens, log_prob)
        for label, one, log_prob in zip((1, -1), sides, log_probs, strict=True)
    ]
    texts = ([token.text for token in one.tokens] for one in sides)
    parting = next(n for n, (chosen, rejected) in enumerate(zip(*texts, strict=False)) if chosen != rejected)
    its = ComparedAnswers(seen, parting, has_reference=True)
    return [
        msgspec.structs.replace(
            one, form="preference", part=part, num_parts=2, label=label, compared=its,
            num_row_tokens=sum(side.num_tokens for side in sides),
        )
        for part, (one, label) in enumerate(zip(sides, (1, -1), strict=True))
    ]  # fmt: skip


PAIR = pair_of(
    [
        "In /var/log; `journalctl -e` shows its end.",
        "In a file. Which one, nobody knows: it may well be somewhere else.",
    ],
    [-31.4, -24.9],
)
FINDINGS = [
    Finding(
        "placeholders", "error", 1, 4,
        "1 of 4 rows hold a placeholder such as {{name}}, TODO or lorem ipsum instead of text",
        "Replace it by what it stands for: the model learns it as it is.",
        examples=[Example(RowLocation(FILE, 4), "{{answer}}")],
    ),
    Finding(
        "truncated", "warning", 1, 4, "1 of 4 rows are longer than data.max_length and are cut",
        "data.max_length = 512 holds all of them.",
        examples=[Example(RowLocation(FILE, 3), "A kernel is the part of an operating")],
    ),
    Finding("few_rows", "note", 4, 4, "4 rows are few for this method",
            "500 and more are usual for lora."),
]  # fmt: skip
REPORT = Report(
    sources=[SourceFacts(FILE, "messages", 1.0, 4, 0, 702, 430)],
    num_rows=4, num_train_rows=4, num_skipped=0, num_sequences=4, num_eval_rows=0, num_tokens=702,
    num_target_tokens=430, max_length=160,
    lengths=[(0, 14), (50, 96), (90, 331), (95, 365), (99, 392), (100, 399)],
    histogram=[(50, 1), (100, 1), (150, 0), (200, 1), (250, 0), (300, 0), (350, 0), (400, 1)],
    target_shares=[(0, 0.21), (50, 0.66), (100, 0.97)],
    other_lengths=[OtherLength(128, 2, 300, 290), OtherLength(160, 1, 239, 239), OtherLength(512, 0, 0, 0)],
    padding=Padding(0.41, 0.41, 0.03), scripts=[("Latin", 0.985), ("Han", 0.01), ("Hiragana", 0.005)],
    special=["rows begin with <|im_start|>, no BOS", "the last turn ends with <|im_end|>, which is trained",
             "padded with <|pad|>"],
    findings=FINDINGS,
)  # fmt: skip


def evil(text: str) -> tuple[list[RowView], Report]:
    """Rows and a report with the text wherever there may be any."""
    text = text.encode(errors="replace").decode()
    rows = [
        sample_of(n, [(text, text), ("assistant", text)], num_rows=2, notes=[text], where=RowLocation(text, n + 1))
        for n in range(2)
    ]
    finding = Finding(text, "error", 1, 1, text, text, text, [Example(RowLocation(f"/{text}", 1, "row"), text)])
    source = SourceFacts(text, text, 0.5, 1, 1, 1, 1)
    told = {"findings": [finding] * 3, "sources": [source], "special": [text], "scripts": [(text, 1.0)]}
    return rows, msgspec.structs.replace(REPORT, **told)


def hits_in(sample: RowView, text: str) -> list[tuple[int, int]]:
    """The tokens in which a word stands that is one token with its blank."""
    return [(n, n + 1) for n, token in enumerate(sample.tokens) if token.text.strip() == text]


PROFILE_OF_ROWS = Profile.model_validate(
    {"run": {"stage": "sft"}, "model": {"name_or_path": "a/b"}, "data": {"train": "rows.jsonl"}}
)


class StandIn:
    """Answers at once what `ftui.helper.client.Helper` would.

    `problem`, if any, is what comes of every question, `refusal` of the one whether the profile can be trained.
    """

    problem: FtuiError | None = None
    refusal: FtuiError | None = None
    samples: list[RowView] = SAMPLES
    first: Sequence[RowView] = ()
    report: Report = REPORT

    def __init__(self, allow: Collection[str] = ()) -> None:
        self.allow = allow
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.is_closed = False

    def ask(self, question: str, *, on_detail: Callable[[str], object] | None = None, **given: Any) -> Any:
        if (profile := given.get("profile")) is not None:
            assert isinstance(profile, Profile)
            check_remote_code(profile, self.allow)
        self.asked.append((question, {key: value for key, value in given.items() if key != "profile"}))
        if on_detail is not None:
            on_detail("tokenising 34 %")
        if self.problem is not None:
            raise self.problem
        if question == "check":
            if self.refusal is not None:
                raise self.refusal
            return None
        if question == "recognise":
            return [
                {
                    "file": given["path"],
                    "form": "messages",
                    "confidence": 0.98,
                    "num_looked": 64,
                    "why": "the keys messages",
                }
            ]
        if question == "describe_folder":
            return [f"{given['path']}: 2 files of rows to train on"]
        if question == "first_rows":
            return msgspec.to_builtins(self.first)
        if question == "report":
            return msgspec.to_builtins(self.report)
        number = self._searched(**given) if question == "search" else self._number(**given)
        if number is None:
            return None
        one = self.samples[number]
        if question == "search":
            one = msgspec.structs.replace(one, hits=hits_in(one, given["text"]))
        return msgspec.to_builtins(one)

    def _searched(self, text: str, after: int, **_: Any) -> int | None:
        order = [(after + 1 + n) % len(self.samples) for n in range(len(self.samples))]
        return next((n for n in order if text in self.samples[n].raw), None)

    def _number(self, jump: str, number: int = 0, where: Any = None, part: int = 0, **_: Any) -> int:
        """Where the samples are the parts of one row, that part of it."""
        if self.samples[0].num_rows == 1 and jump == "number":
            return min(part, len(self.samples) - 1)
        ranked = {"longest": lambda one: -one.num_tokens, "shortest": lambda one: one.num_tokens}
        if where is not None:
            return int(where["number"]) - 1
        if jump in ranked:
            return sorted(self.samples, key=ranked[jump])[number % len(self.samples)].number
        last = len(self.samples) - 1
        return {"next": min(last, number + 1), "previous": max(0, number - 1), "most_truncated": min(2, last)}.get(
            jump, min(last, number)
        )

    def close(self) -> None:
        self.is_closed = True
