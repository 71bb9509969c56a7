"""What an assistant thought before it answered: beside its text, or in it between the marks that models write it in."""

from ..forms.examples import Message

REASONING = ("reasoning_content", "thinking", "reasoning")  # the names transformers knows for it


def reasoning_beside(message: Message) -> str:
    """What stands beside its text."""
    return str(next((message[name] for name in REASONING if message.get(name)), "")).strip()


def reasoning_inside(message: Message) -> str:
    """What stands in it."""
    content = message.get("content")
    if message["role"] != "assistant" or not isinstance(content, str):
        return ""
    before, closed, _ = content.partition("</think>")
    return before.rpartition("<think>")[2].strip() if closed else ""


def with_reasoning(message: Message) -> Message:
    """With all in its text."""
    said = reasoning_beside(message)
    if not said:
        return message
    rest = {name: value for name, value in message.items() if name not in REASONING}
    return rest | {"content": f"<think>\n{said}\n</think>\n\n{message.get('content', '')}"}
