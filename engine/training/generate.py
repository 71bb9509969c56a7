"""Sample answers, greedily: the same model gives the same answer, and no random generator moves."""

from collections.abc import Sequence
from typing import Any

import torch

from ftui.runs.events import Sampled

from ..data.tokens.chat_template import fix_date
from ..models.performance import uncompiled
from ..runtime.control_flags import Ready
from ..system.memory import is_out_of_memory
from .context import Training, autocast


def sample(training: Training, prompts: Sequence[str], *, requested: bool = False) -> list[str]:
    """Answer the prompts with the model as it is now; each goes to the journal.

    An answer that does not fit into memory is left out with a warning.
    """
    answers = []
    for prompt in prompts:
        training.control.poll(Ready.SAVE)
        try:
            answer = _answer(training, prompt)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            training.logbook.warn(f"no room in memory to answer {prompt!r}")
            continue
        training.logbook.event(Sampled(step=training.state.step, prompt=prompt, completion=answer, requested=requested))
        training.logbook.progress()
        answers.append(answer)
    return answers


def _answer(training: Training, prompt: str) -> str:
    tokenizer: Any = training.prepared.tokenizer
    model: Any = training.model
    device = training.hardware.device
    if training.stage.name == "sft" and tokenizer.chat_template:
        messages = [{"role": "user", "content": prompt}]
        fix_date(tokenizer.get_chat_template())
        inputs = tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, return_tensors="pt", return_dict=True
        )
    else:
        inputs = tokenizer(prompt, return_tensors="pt", return_token_type_ids=False)
    inputs = inputs.to(device)
    stops = [tokenizer.convert_tokens_to_ids(text) for text in sorted(training.prepared.encoder.stops)]
    model.eval()
    try:
        with torch.no_grad(), autocast(training.hardware), uncompiled(training.profile.train):
            output = model.generate(
                **inputs, do_sample=False, max_new_tokens=training.profile.eval.sample_max_new_tokens,
                eos_token_id=stops, pad_token_id=tokenizer.pad_token_id,
            )  # fmt: skip
    finally:
        model.train()
    return str(tokenizer.decode(output[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True)).strip()
