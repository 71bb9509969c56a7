"""Texts on which two tokenizers are compared: rows of people, and what tokenizers have been found to differ on."""

import random
from collections.abc import Sequence

NUM_TEXTS = 1000

WORDS = (
    "the kernel reads pages and it's done; they'll fork QUIETLY, I'VE 'said' so can't don't naïve café Straße ŁÓDŹ",
    "мир и война — «что делать?» Ёлка", "γνῶθι σεαυτόν Ἀθῆναι", "素早い茶色の狐が、怠けた犬を飛び越える。東京都", "안녕하세요 세계, 반갑습니다",
    "مرحبا بالعالم كيف حالك؟", "שלום עולם", "नमस्ते दुनिया क्या हाल है", "สวัสดีชาวโลก", "你好，世界！今天天气怎么样？",
    "👩‍👩‍👧‍👦 🇩🇪 👍🏽 ☕️ 🤷🏾‍♀️", "e\u0301 a\u0308 \u1e9b\u0323 ﬁ ２３ Ⅷ ½ ²", "\u200b\u200d\ufeff\u00a0\u2003\u3000\u2028\u0085",
)  # fmt: skip
NUMBERS = (
    "0",
    "7",
    "42",
    "007",
    "1234",
    "12345",
    "3.14159",
    "1,000,000",
    "2026-11-29",
    "0x7fff",
    "1e-9",
    "١٢٣",
    "五千",
)
SPACES = (" ", "  ", "   ", "\n", "\n\n", "\r\n", "\t", "\t\t", " \n ", "\n\n\n", "        ", "")
CODE = (
    "def f(x):\n    return x**2  # square\n", "for (int i = 0; i < n; ++i) { a[i] += b[i]; }\n", '{"key": [1, 2, null]}',
    "SELECT * FROM t WHERE a <> 'b';", "<div class=\"x\">&nbsp;</div>", "$ git log --oneline | head -5", "\\frac{a}{b}^2_i",
    "C:\\Users\\x\\n", "https://example.org/a?b=c&d=%20#e", "```py\nprint('hi')\n```", "!!!???...---===///***", "a_b-c.d@e.f",
)  # fmt: skip


def comparison_texts(rows: Sequence[str], special: Sequence[str], seed: int = 0) -> list[str]:
    """NUM_TEXTS texts: half of `rows` at most, the others made of words, digits, spaces, code and special tokens."""
    chance = random.Random(seed)
    found = [row for row in rows[: NUM_TEXTS // 2] if row]
    pieces = [word for line in WORDS for word in line.split(" ")] + list(WORDS)
    sources = (pieces, pieces, NUMBERS, SPACES, SPACES, CODE, special or pieces)
    while len(found) < NUM_TEXTS:
        parts = []
        for _ in range(chance.randint(1, 12)):
            parts += [chance.choice(chance.choice(sources)), chance.choice((" ", "", " "))]
        if text := "".join(parts):
            found.append(text)
    return found
