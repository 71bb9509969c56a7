"""Sample answers, greedily: the same model gives the same answer, and no random generator moves."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ftui.profile.schema import Profile
from ftui.runs.events import Sampled

from ..data.tokens.chat_template import fix_date
from ..generation.decode import Prompt, decode
from ..generation.sampling import Sampling
from ..models.model_parts import ModelParts, autocast
from ..models.performance import uncompiled
from ..models.weights import is_adapted
from ..runtime.control_flags import Control, RequestLevel
from ..runtime.event_writer import EventWriter
from ..system.memory import is_out_of_memory
from ..system.train_state import TrainState
from .prepare import TrainingData


@dataclass(eq=False)
class TextGenerator:
    """Answers prompts with the model as it is."""

    profile: Profile
    data: TrainingData
    parts: ModelParts
    state: TrainState
    control: Control
    events: EventWriter

    def answer(self, prompts: Sequence[str], *, requested: bool = False) -> list[str]:
        """Answer the prompts; each answer goes to the journal.

        An answer that does not fit into memory is left out with a warning.

        Raises:
            Shutdown: between two prompts.
        """
        answers = []
        for prompt in prompts:
            self.control.poll(RequestLevel.SAVE)
            try:
                answer = self._generate(prompt)
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
                self.events.warn(f"no room in memory to answer {prompt!r}")
                continue
            self.events.write(Sampled(step=self.state.step, prompt=prompt, completion=answer, requested=requested))
            self.events.progress()
            answers.append(answer)
        return answers

    def _generate(self, prompt: str) -> str:
        tokenizer: Any = self.data.tokenizer
        if self.profile.run.stage != "pretrain" and tokenizer.chat_template:
            fix_date(tokenizer.get_chat_template())
            turns = [{"role": "user", "content": prompt}]
            ids = tokenizer.apply_chat_template(turns, add_generation_prompt=True, return_dict=True)["input_ids"]
        else:
            ids = tokenizer(prompt)["input_ids"]
        model = self.parts.model
        model.eval()
        try:
            with autocast(self.parts.hardware), uncompiled(self.profile.train):
                passes = decode(
                    model.get_base_model() if is_adapted(model) else model, [Prompt(ids)], Sampling(),
                    stop_ids=self.data.stop_ids, max_new_tokens=self.profile.eval.sample_max_new_tokens,
                )  # fmt: skip
                answer = [token.id for (token,) in passes]
        finally:
            model.train()
        return str(tokenizer.decode(answer, skip_special_tokens=True)).strip()
