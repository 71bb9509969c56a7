"""What may be odd about a row, as bits of one number."""

from enum import IntFlag


class Oddity(IntFlag):
    """What is odd about a row."""

    EMPTY_ANSWER = 1 << 0
    PLACEHOLDER = 1 << 1
    BOILERPLATE = 1 << 2
    DAMAGED_TEXT = 1 << 3
    ROLE_ORDER = 1 << 4
    ENDS_UNANSWERED = 1 << 5
    SAME_ROLE_TWICE = 1 << 6
    BEGINS_WITH_ANSWER = 1 << 7
    LATE_SYSTEM = 1 << 8
    NO_TARGET = 1 << 9
    TWO_BOS = 1 << 10
    NO_EOS = 1 << 11
    MASKS_DIFFER = 1 << 12
    UNKNOWN_TOKENS = 1 << 13
    JOINED_LINES = 1 << 14
    UNFILLED = 1 << 15  # an answer is nothing but a placeholder, or has one for the assistant's own name
    IDENTICAL_ANSWERS = 1 << 16
    EMPTY_REJECTED = 1 << 17
    PROMPTS_DIFFER = 1 << 18
    SPECIAL_IN_TEXT = 1 << 20
    ANSWER_IN_PROMPT = 1 << 21
    ANSWER_ENDS_PROMPT = 1 << 22
    END_ON_ONE_SIDE = 1 << 23


def without_answers(flags: int) -> int:
    """The flags of a prompt, which has no answer on purpose."""
    flags &= ~(Oddity.ENDS_UNANSWERED | Oddity.NO_TARGET)
    others = Oddity.SAME_ROLE_TWICE | Oddity.BEGINS_WITH_ANSWER | Oddity.LATE_SYSTEM
    return flags if flags & others else flags & ~Oddity.ROLE_ORDER
