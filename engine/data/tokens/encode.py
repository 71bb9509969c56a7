"""Examples as token ids with a loss mask: a mark on every token that is trained on (a target token)."""

from collections.abc import Iterator
from collections.abc import Sequence as Several
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from tokenizers import Encoding
from transformers import PreTrainedTokenizerBase

from ftui.errors import DataError
from ftui.profile.sections.preference import COMPARING_STAGES, PAIR_STAGES, VERDICT_STAGES
from ftui.profile.sections.sampled_stages import POLICY_STAGES

from ..files.raw_rows import Row
from ..forms.column_names import STANDARD_NAMES, ColumnNames
from ..forms.examples import Chat, Completion, Example, JudgedAnswer, Pair, Text, Tokens, labelled_part, trained_part
from ..forms.formats import to_example
from .chat_template import RenderedText, render, render_prompt
from .loss_mask import begin_together, loss_mask, omits_text_beside_calls, omitted_role, spell_otherwise
from .named_templates import advise_template
from .pieces import PieceTokenizer, PieceTokens, TextTokens, find_piece_tokenizer
from .skeletons import Skeletons
from .special_token_check import (
    SpecialTokens,
    count_stops,
    find_special_tokens,
    has_special_text,
    oddities,
    strip_padding,
)
from .template_fit import TemplateRefusal


@dataclass(frozen=True)
class Sequence:
    """Token ids (int32) and, for each, whether it is trained on (bool), however many they are.

    `row` is the number of its row in the batch that was encoded. `label` is 1 for a chosen answer or one that was
    judged good, -1 for a rejected or bad one, 0 where nothing was compared. `margin` is that of its pair, whichever of
    both it is. `reference` are the log-probabilities of its targets under the reference model (float32), where they
    are known.
    """

    input_ids: np.ndarray
    targets: np.ndarray
    row: int = 0
    label: int = 0
    margin: float = 0.0
    reference: np.ndarray | None = None

    @property
    def num_targets(self) -> int:
        """The first token of a sequence is predicted from nothing, so it never counts."""
        return int(self.targets[1:].sum())


@dataclass(frozen=True)
class EncodedRow:
    """What became of a row. `notes` name what is odd about its tokens, as findings of the report are called."""

    sequences: list[Sequence]
    example: Example
    notes: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Encoder:
    """Turns rows into sequences with one tokenizer.

    `stops` are the texts that end an assistant's turn (from the tokenizer and the model's generation config).
    `loss_on` is `assistant` (all that it says), `last` (its last turn) or `everything`.
    """

    tokenizer: PreTrainedTokenizerBase
    stage: str
    stops: frozenset[str]
    loss_on: str = "assistant"
    shape: ColumnNames = STANDARD_NAMES

    @property
    def stop_ids(self) -> list[int]:
        """The tokens that end a turn."""
        ids = self.tokenizer.convert_tokens_to_ids(sorted(self.stops))
        assert isinstance(ids, list)
        return ids

    def encode(self, rows: list[Row], form: str) -> Iterator[Sequence]:
        """Sequences of a batch of rows, in order; a row may give none, one or several.

        Raises:
            DataError: a row does not have the form, or cannot be rendered (named by file and line).
        """
        for encoded in self.encode_all(rows, form):
            if isinstance(encoded, DataError):
                raise encoded
            yield from encoded.sequences

    def encode_all(self, rows: list[Row], form: str) -> list[EncodedRow | DataError]:
        """One for each row, in order: what it became, or the fault for which it became nothing."""
        prepared = [self.prepare(row, form) for row in rows]
        made = self._made([turn for one in prepared if isinstance(one, PreparedRow) for turn in one.turns])
        encoded: list[EncodedRow | DataError] = []
        for number, one in enumerate(prepared):
            if isinstance(one, DataError):
                encoded.append(one)
                continue
            sequences: list[Sequence] = []
            notes = {"joined_lines"} if getattr(one.example, "num_joined", 0) else set()
            notes |= (
                {"masks_differ"} if omits_text_beside_calls(one.example, [turn.text for turn in one.turns]) else set()
            )
            margin = one.example.margin if isinstance(one.example, Pair) else 0.0
            for turn in one.turns:
                encoding, ids, targets, differs = next(made)
                sequences.append(Sequence(np.asarray(ids, dtype=np.int32), targets, number, turn.label, margin))
                notes |= {"masks_differ"} if differs else set()
                notes |= {"special_in_text"} if self._has_marks(one.example, turn, encoding) else set()
            begin_together(one.turns, [it.input_ids for it in sequences], [it.targets for it in sequences])
            if one.tokens is not None:
                sequences.append(Sequence(one.tokens.input_ids, one.tokens.targets, number))
            stops = [count_stops(sequence, self._special) for sequence in sequences]
            for sequence, num_stops in zip(sequences, stops, strict=True):
                notes.update(oddities(sequence, num_stops, self._special))
            if len(set(stops)) > 1 and sequences[0].label:
                notes.add("end_on_one_side")
            encoded.append(EncodedRow(sequences, one.example, frozenset(notes)))
        return encoded

    def _made(self, turns: list[RenderedText]) -> Iterator[tuple[TextTokens, list[int], np.ndarray, bool]]:
        """Of each text its tokens, their ids and loss mask, and whether the trained ids spell something else."""
        tokens = self._tokens([turn.text for turn in turns])
        masks = [loss_mask(one, turn.text, turn.spans) for one, turn in zip(tokens, turns, strict=True)]
        said = [
            (number, one.ids[first:after], turn.text[start:end])
            for number, (one, turn, mask) in enumerate(zip(tokens, turns, masks, strict=True))
            if not (isinstance(one, PieceTokens) and one.are_spelt)
            for (start, end), (first, after) in zip(turn.spans, mask.runs, strict=True)
        ]
        unlike = spell_otherwise(self.tokenizer, [(ids, text) for _, ids, text in said])
        differ = {number for (number, *_), differs in zip(said, unlike, strict=True) if differs}
        for number, (one, mask) in enumerate(zip(tokens, masks, strict=True)):
            yield one, one.ids, mask.targets, bool(mask.differs) or number in differ

    def _tokens(self, texts: list[str]) -> list[TextTokens]:
        """As `tokenised` gives them, by pieces where that is the same."""
        if self._pieces is None:
            return [*self.tokenised(texts)]
        return [*map(self._pieces.encode, texts)]

    def _has_marks(self, example: Example, turn: RenderedText, encoding: TextTokens) -> bool:
        """Whether a special token comes out of what is said in a conversation. (In plain text it is meant.)"""
        chat = labelled_part(example, turn.label)
        return isinstance(chat, Chat) and has_special_text(self._special, chat, turn.text, encoding)

    def tokenised(self, texts: list[str]) -> list[Encoding]:
        """Special tokens are those that stand in the texts: none is added."""
        if not texts:
            return []
        tokens = self.tokenizer(
            texts, add_special_tokens=False, return_attention_mask=False, return_token_type_ids=False, verbose=False
        )
        encodings: list[Encoding] | None = tokens.encodings
        assert encodings is not None, "the tokenizer is a fast one"
        return encodings

    def prepare(self, row: Row, form: str) -> "PreparedRow | DataError":
        """The row as an example and what is trained on of it as text, or what is wrong with it."""
        try:
            example = to_example(row, form, self.shape)
            if self.stage in COMPARING_STAGES:
                return PreparedRow(example, self._rendered_answers(row, example))
            if self.stage in POLICY_STAGES:
                return PreparedRow(example, [self._rendered_prompt(row, example)])
            trained = trained_part(example)
            if isinstance(trained, Tokens):
                return PreparedRow(example, [], self._fitting(row, trained))
            return PreparedRow(example, [] if trained is None else self._rendered(row, trained))
        except DataError as error:
            return error

    def _fitting(self, row: Row, tokens: Tokens) -> Tokens:
        highest = int(tokens.input_ids.max(initial=0))
        if highest >= len(self.tokenizer):
            raise row.error(
                f"'input_ids' has {highest}, and the vocabulary ends with {len(self.tokenizer) - 1}",
                hint="Was it tokenised for another model?",
            )
        tokens = strip_padding(tokens, self._special)
        if self.loss_on == "everything":
            return replace(tokens, targets=np.ones_like(tokens.targets))
        return tokens

    def _rendered_answers(self, row: Row, example: Example) -> list[RenderedText]:
        """The answers that a stage compares, each with its label: the chosen one, then the rejected one."""
        if isinstance(example, Pair):  # a stage of verdicts takes it for two
            answers = [(example.chosen, 1), (example.rejected, -1)]
        elif isinstance(example, JudgedAnswer) and self.stage in VERDICT_STAGES:
            answers = [(example.answer, 1 if example.good else -1)]
        else:
            pairs = "pairs (chosen, rejected)"
            wanted = pairs if self.stage in PAIR_STAGES else f"answers with a verdict (label), or {pairs}"
            raise row.error(f"stage {self.stage} trains on {wanted}", hint='Use stage = "sft" for single answers.')
        rendered = []
        for answer, label in answers:
            if isinstance(answer, Chat) and answer.messages[-1]["role"] != "assistant":
                raise row.error("the assistant does not have the last word, so there is nothing that was judged")
            texts = self._rendered(row, answer)
            if len(texts) > 1:
                raise row.error(
                    "the chat template rewrites earlier turns, so an answer of several turns is no single sequence",
                    hint='Set data.loss_on = "last" to compare the last turns.',
                )
            rendered += [replace(text, label=label) for text in texts]
        return rendered

    def _rendered_prompt(self, row: Row, example: Example) -> RenderedText:
        """What the model is asked, of which nothing is trained on."""
        if isinstance(example, Text):
            text = self._bos + example.text
        elif not isinstance(example, Chat):
            raise row.error(
                f"stage {self.stage} trains on prompts", hint='Leave data.format out, or set it to "prompt".'
            )
        elif not self.tokenizer.chat_template:
            raise row.error(
                "a conversation, but the model's tokenizer has no chat template",
                hint="Name one in data.chat_template, use an instruct model, or write the prompts as text.",
            )
        else:
            try:
                text = render_prompt(self.tokenizer, example)
            except TemplateRefusal as error:
                raise row.error(str(error), hint=error.hint or self._template_hint(example, str(error))) from error
        if not text:
            raise row.error("the prompt is empty, and the first token is predicted from those before it")
        return RenderedText(text, (), ends=True)

    def _rendered(self, row: Row, example: Chat | Completion | Text) -> list[RenderedText]:
        if self.stage == "pretrain" and not isinstance(example, Text):
            raise row.error("stage pretrain trains on plain text", hint='Use stage = "sft" for conversations.')
        if isinstance(example, Chat):
            return self._rendered_chat(row, example)
        prompt = self._bos + (example.prompt if isinstance(example, Completion) else "")
        trained = example.completion if isinstance(example, Completion) else example.text
        text = prompt + trained + ("" if trained.endswith(self._eos) else self._eos)
        start = len(self._bos) if self.loss_on == "everything" else len(prompt)
        return [RenderedText(text, ((start, len(text)),), ends=True)]

    def _rendered_chat(self, row: Row, chat: Chat) -> list[RenderedText]:
        if not self.tokenizer.chat_template:
            raise row.error(
                "a conversation, but the model's tokenizer has no chat template",
                hint="Name one in data.chat_template, use an instruct model, or rows with prompt and completion.",
            )
        if (rendered := self._skeletons.write(chat)) is not None:
            return [rendered]
        try:
            turns = render(self.tokenizer, chat, self.stops, self.loss_on)
        except TemplateRefusal as error:
            raise row.error(str(error), hint=error.hint or self._template_hint(chat, str(error))) from error
        if role := omitted_role(chat, [turn.text for turn in turns]):
            reason = f"it has a turn of the role {role!r}, and the chat template leaves it out"
            way = ' data.roles = {developer = "system"} writes it as one of the system.' if role == "developer" else ""
            raise row.error(reason, hint=self._template_hint(chat, reason) + way)
        return list(map(self._with_stop, turns))

    def _with_stop(self, turn: RenderedText) -> RenderedText:
        return turn if turn.ends else _append_stop(turn, self._eos)

    def _template_hint(self, chat: Chat, reason: str) -> str:
        """Made once for each reason: a million rows may be refused for the same one."""
        if reason not in self._hints:
            self._hints[reason] = advise_template(self.tokenizer, chat)
        return self._hints[reason]

    @cached_property
    def _hints(self) -> dict[str, str]:
        return {}

    @cached_property
    def _bos(self) -> str:
        """The one BOS of plain text, where the tokenizer would add one. (A chat template brings its own.)"""
        ids = self.tokenizer("a").input_ids
        return str(self.tokenizer.bos_token) if ids and ids[0] == self.tokenizer.bos_token_id else ""

    @property
    def _eos(self) -> str:
        return str(self.tokenizer.eos_token)

    @cached_property
    def _skeletons(self) -> Skeletons:
        return Skeletons(self.tokenizer, self.stops, self.loss_on, self._special.marks.search, self._with_stop)

    @cached_property
    def _pieces(self) -> PieceTokenizer | None:
        return find_piece_tokenizer(self.tokenizer)

    @cached_property
    def _special(self) -> SpecialTokens:
        return find_special_tokens(self.tokenizer, self.stops)


@dataclass(frozen=True)
class PreparedRow:
    """A row on its way: what it is, the texts of its sequences with what is trained on of them, or its tokens."""

    example: Example
    turns: list[RenderedText]
    tokens: Tokens | None = None


def _append_stop(rendered: RenderedText, eos: str) -> RenderedText:
    """Learn to stop even where the template does not say so: the end-of-text token follows the last turn."""
    *others, (start, end) = rendered.spans
    return RenderedText(rendered.text[:end] + eos, (*others, (start, end + len(eos))), ends=True)


def num_common(sequences: Several[np.ndarray]) -> int:
    """How many tokens all of them begin with; of a single one, all."""
    length = min(map(len, sequences))
    same = np.all([one[:length] == sequences[0][:length] for one in sequences], axis=0)
    return length if same.all() else int(np.argmin(same))


def stop_texts(tokenizer: PreTrainedTokenizerBase, eos_token_ids: list[int]) -> frozenset[str]:
    """Texts of every token that ends a turn.

    Raises:
        DataError: the tokenizer has no end-of-text token, so nothing could teach the model to stop.
    """
    if tokenizer.eos_token is None:
        raise DataError("The tokenizer has no end-of-text token.", hint="Set eos_token in its tokenizer_config.json.")
    ids = [i for i in eos_token_ids if i < len(tokenizer)]
    return frozenset([str(tokenizer.eos_token), *(str(tokenizer.convert_ids_to_tokens(i)) for i in ids)])
