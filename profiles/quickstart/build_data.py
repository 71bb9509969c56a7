"""Rebuild the quickstart data from a folder of the unpacked packages: python build_data.py FOLDER (SOURCES.md)."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import string
import sys
import unicodedata
from collections.abc import Iterable, Iterator
from pathlib import Path

EVAL_ROWS, FIRST_SPEECH_YEAR = 100, 1953
CHUNK_WORDS, MIN_CHUNK_WORDS = 450, 200
MIN_ANSWER_WORDS, MAX_ANSWER_WORDS = 8, 90
B64 = string.ascii_uppercase + string.ascii_lowercase + string.digits + "+/"
TEMPLATES = (
    'What does "{0}" mean?',
    'Define "{0}".',
    'Explain the hacker term "{0}".',
    'What is the meaning of "{0}" in hacker slang?',
    'In hacker jargon, what does "{0}" mean?',
)
# A star stands for any ending. STRONG drops a paragraph of any source; both lists drop Jargon File paragraphs.
STRONG = "fuck* shit* cunt* bitch* asshole* nigg* negro* squaw* blackling* kike* spic coolie* jap japs gook* faggot*"
TOUCHY = """aborigin* african* anal arab* arse aryan* ass asses barf* bastard* bondage boob* bowel* brain-damaged
breast* bullshit* butthead* catholic* chinese cocaine condom* crap crapp* cretin* cripple* dammit damn* dick digitus
erotic* ethnic* excrement* fart* fascis* feces feminis* fornicat* gay gender* goddamn* heroin hitler* holocaust*
homosex* hooker* idiot* intercourse islam* japanese jew jews jewish klan lesbian* letcher* lobotom* lsd marijuana
masturbat* mating mexican* mongol* moron* muslim* naked* nazi* nipple* nude* oriental* penis* pimp* piss* polish porn*
prick* prostitut* pube pubic puke* rabbi racial racis* rape* raping redneck* retard* screw screw[aeiu]* scrot* sex*
*sexual slave slavery slaves slut* snot* spastic* spaz* *suck* suicid* tard* terroris* testic* tit tits turd* urin*
vagina* virgin vomit* wank* whore* yiddish*"""
ASCII = {
    "\u201c": '"', "\u201d": '"', "\u2018": "'", "\u2019": "'", "\u00b4": "'", "\u2014": "--", "\u2013": "-",
    "\u2011": "-", "\u2212": "-", "\u2022": "-", "\u00ad": "", "\u00d8": "O", "\u00e6": "ae", "\u0152": "OE",
    "\u00df": "ss", "\u00d7": "x", "\u00b1": "+/-", "\u00b7": "-", "\u03c0": "pi", "\u2122": "TM",
}  # fmt: skip
SAID = r"/(?=[^/]*[@`\u00b7\u00b4':])[^/\s<>~=](?:[^/\n]{0,30}[^/\s])?\s?/"  # a pronunciation such as /foo'bar/
POS = r"(?:n|vt?|vi|adj|adv|interj|excl|pref|suff|prov|imp|quant|cav|obs|pl|abbrev|poss|num|infix)\b"
LEADING = re.compile(  # etymology, sense number, variants, pronunciation, part of speech
    rf"^(?:\[(?:[^\[\]]|\[[^\[\]]*\])*\]\.?\s*|\d{{1,2}}[.,]\s+(?=[A-Z/\[(\u201c\u2018{{]|[a-z]+\.)"
    rf"|,?\s*{SAID},?\s*|/\w+/\s+(?=n\.)"
    r"|\((?i:also|alt|and|from|var|variants|often|sometimes|in full|pejorative)\b[^()]*\)\.?\s*"
    rf"|(?:{POS}(?:\.,?|,)\s*)+(?=[A-Z\[(/{{\"'\u201c\u2018]|[a-z]{{3}}))+"
)
SENSE = re.compile(r"(?:\[[^\[\]]*\]\s*)?(\d{1,2})[.,]\s")
REFERENCE = r"(?:but )?(?:see|compare|cf\.?|contrast)\b"
ASIDE = re.compile(
    rf"(?i)\s*\((?:{REFERENCE}[^(){{}}]*(?:\{{[^{{}}]*\}}[^(){{}}]*)+|[^()]*{SAID}[^()]*|(?:in )?senses? \d[^()]*)\)"
    rf"|; {REFERENCE}(?:[^{{}};.()]*\{{[^{{}}]*\}})+[^{{}};.()]*(?=[.;])"
)
BACKWARD = re.compile(r"(?:Also|Alt|Hence|It|They|These|He|But|And|However|This (?:comes|usage|has|melds|term))\b")
POINTER = re.compile(
    r"(?i)^[(\[]?(?:(?:in particular,? |but |for [^{.]{0,60}, )?see|compare|contrast|cf|syn|synonyms?|also)\b[^{]*\{"
)
UNUSABLE = re.compile(
    rf"https?:|www\.|ftp:|\.(?:com|org|net)/|\bsenses? #?\d|(?<![\w/]){SAID}(?![\w/])|\b(?:ESR|GLS|Appendix [A-C])\b"
    r"|\b[Tt]his (?:lexicon|entry)\b|\b(?:the|Jargon) File\b|^(?:see also|syn|alt\.?:)(?!\w)"
    r"|\b(?:vt|vi|adj)\. |[,(] ?see (?:the |\{)|[a-z]\.\{"
)
BREAK = re.compile(r"[.!?]+[)\]\u201d\u2019\"'}]*\s+(?=[\u201c\u2018\"'(\[{]*[A-Z0-9])")
ABBREV = re.compile(
    r"(?i)(?:^|[\s(\[\u201c\"'])(?:e\.g|i\.e|vs|cf|Mr|Mrs|Ms|Dr|St|Prof|Sen|Rep|Gen|Col|Inc|Ltd|Jr|Sr|No|Nos|Fig|Vol"
    r"|ca|approx|alt|pl|syn|orig|esp|var|usu|incl|vt|vi|adj|[A-Z]|(?:[A-Za-z]\.)+[A-Za-z]|\d{1,2})\.\s*$"
)
APPLAUSE = re.compile(r"(\s*-{0,2}\s*)[\[(](?:applause|laughter|audience[^\])]*|sic)\.?[\])](\s*-{0,2}\s*)", re.I)


def word_filter(*lists: str) -> re.Pattern[str]:
    """Compile word lists in which a star stands for any run of letters."""
    return re.compile(r"\b(?:" + "|".join(" ".join(lists).replace("*", r"\w*").split()) + r")\b", re.I)


STRONG_RE, JARGON_RE = word_filter(STRONG), word_filter(STRONG, TOUCHY)


def to_ascii(text: str) -> str:
    """Map typographic characters to ASCII and every run of white space to one space."""
    text = unicodedata.normalize("NFKD", "".join(ASCII.get(char, char) for char in text))
    text = "".join(" " if unicodedata.category(c)[0] in "CZ" else c for c in text if not unicodedata.combining(c))
    return " ".join(text.split())


def sentences(text: str) -> list[str]:
    """Split at sentence ends, never inside brackets or curly quotes nor after an abbreviation."""
    found, start = [], 0
    for match in BREAK.finditer(text):
        part = text[start : match.end()]
        unclosed = any(part.count(a) > part.count(b) for a, b in ("()", "[]", "{}", "\u201c\u201d"))
        if not unclosed and (text.startswith("See ", match.end()) or not ABBREV.search(part)):
            found.append(part.strip())
            start = match.end()
    return [s for s in (*found, text[start:].strip()) if s]


def find_folder(root: Path, marker: str) -> Path:
    """Return the folder under root that holds the marker file."""
    found = sorted(root.rglob(marker))
    return found[0].parent if found else sys.exit(f"{root} holds no {marker}: unpack the packages there first")


def chunks(paragraphs: Iterable[str], glue: str) -> list[str]:
    """Join neighbouring paragraphs into documents of about CHUNK_WORDS words."""
    done: list[str] = []
    current = ""
    for paragraph in paragraphs:
        current += glue + paragraph if current else paragraph
        if len(current.split()) >= CHUNK_WORDS:
            done.append(current)
            current = ""
    if done and len(current.split()) < MIN_CHUNK_WORDS:
        current = glue.join(filter(None, (done.pop(), current)))
    return [*done, current]


def moby_dick(folder: Path) -> Iterator[str]:
    """Yield the chapters and the epilogue; a chapter that is too short is joined to the next."""
    pending: list[str] = []
    for name in (*(f"chapter_{number}.txt" for number in range(1, 136)), "epilogue.txt"):
        for block in re.split(r"\n\s*\n", (folder / name).read_text(encoding="utf-8")):
            paragraph = to_ascii(block.replace("*", ""))
            if paragraph.isascii() and not re.fullmatch(r"|CHAPTER.*\w", paragraph) and not STRONG_RE.search(paragraph):
                pending.append(paragraph)
        if sum(len(p.split()) for p in pending) >= MIN_CHUNK_WORDS or name == "epilogue.txt":
            yield from chunks(pending, "\n\n")
            pending = []


def speeches(folder: Path) -> Iterator[str]:
    """Yield the addresses in pieces cut at sentence ends, each address headed by year and president."""
    for path in sorted(folder.glob("[12]*.json")):
        if int(path.stem[:4]) < FIRST_SPEECH_YEAR or path.stem == "1981_jimmy_carter_d":  # that one is 33,000 words
            continue
        speech = json.loads(path.read_text(encoding="utf-8"))
        text = APPLAUSE.sub(lambda m: " -- " if "-" in m[1] + m[2] else " ", to_ascii(speech["text"]))
        text = re.sub(r"\.(?: \.){2,3}", "...", re.sub(r"\[(\w+)\]", r"\1", text))
        text = re.sub(r"(?<=[a-z]{2}[.!?])(?=[A-Z][a-z ])", " ", text).replace("-- --", "--")
        kept = [s for s in sentences(text) if s.isascii() and "Congressional Record" not in s]
        head, *tail = chunks((" ".join(s.split()) for s in kept if not STRONG_RE.search(s)), " ")
        yield f"State of the Union address, {speech['year']}, {speech['name']}\n\n{head}"
        yield from tail


def jargon_entries(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield (headword, raw body) of the Jargon File's entries in dictionary order."""
    data = gzip.decompress((folder / "jargon.dict.dz").read_bytes())
    spans = []
    for line in (folder / "jargon.index").read_text(encoding="utf-8").splitlines():
        name, *numbers = line.split("\t")
        if not name.startswith("00-database"):
            spans.append([sum(B64.index(c) * 64**i for i, c in enumerate(reversed(n))) for n in numbers])
    for offset, length in sorted(spans):
        head, _, body = data[offset : offset + length].decode("utf-8").partition("\n")
        yield re.sub(r"^([^,]+), ([^,]+ )?(of|the|an?)$", r"\2\3 \1", to_ascii(head)), body.partition("\n")[2]


def prose_blocks(body: str) -> Iterator[str]:
    """Yield the unwrapped prose paragraphs of an entry; tables, verse, code and drawings are left out."""
    for block in re.split(r"\n\s*\n", body.replace("\u00ad", "")):
        lines = [line for line in block.split("\n") if line.strip()]
        drawn = re.search(r"[\u00a0\u2500-\u25ff]|[|_=*+-]{4}|\S {3,}\S", block) or len(block.strip()) < 3
        letters = sum(c.isalpha() or c == " " for c in block)
        if letters > 0.8 * len(block) and not drawn and all(re.match(r" {4}(?: {4})?\S", x) for x in lines):
            yield " ".join(block.split())


def clean_block(block: str) -> list[str]:
    """Return the plain sentences of a prose paragraph, an empty one in place of an unusable first one."""
    block = re.sub(r"([(\[\u201c])\s+|\s+(?=[)\]\u201d])", r"\1", ASIDE.sub("", block))
    block = re.sub(r"(?<=[\w\u201d\u2019)}])\s+(?=[;,.:](?:\s|$))|(?<=I/) (?=O\b)|(?<=\w) (?=\(s\))", "", block)
    block = re.sub(r"([.!?]\u201d)\.(?!\w)", r"\1", re.sub(r"([a-z]{3},)(?=[a-z]{3})", r"\1 ", block))
    block = re.sub(r"\}\s+(?=(?:s|es|ed|er|ing)\b)", "}", block)
    kept: list[str] = []
    for sentence in sentences(LEADING.sub("", block)):
        plain = to_ascii(re.sub(r"\{\s*|\s*\}", "", sentence))
        whole = re.search(r"[.!?][)\]\"']*$", plain) and plain.count("[") == plain.count("]")
        if whole and plain.isascii() and not POINTER.match(sentence) and not UNUSABLE.search(sentence):
            kept.append(plain[0].upper() + plain[1:])
        elif not kept:
            kept.append("")
    return [""] if JARGON_RE.search(" ".join(kept)) else kept


def clean_entry(body: str) -> list[tuple[int, list[str]]]:
    """Return (sense number or 0, sentences) of each prose paragraph that is more than an etymology."""
    found = ((SENSE.match(block), clean_block(block)) for block in prose_blocks(body))
    return [(int(sense[1]) if sense else 0, kept) for sense, kept in found if kept]


def answer_from(senses: list[tuple[int, list[str]]]) -> str:
    """Build an answer from the first sense of an entry; empty if its opening sentence is unusable."""
    answer = ""
    for index, (number, kept) in enumerate(senses):
        for sentence in kept:
            longer = f"{answer} {sentence}".strip()
            if not sentence or len(longer.split()) > MAX_ANSWER_WORDS or (index and number):
                return answer
            answer = longer
    return answer


def prose_from(senses: list[tuple[int, list[str]]]) -> str:
    """Join all usable sentences of an entry."""
    return "\n\n".join(filter(None, (" ".join(filter(None, kept)) for _, kept in senses)))


def chat_row(head: str, answer: str) -> dict[str, object]:
    """Return a question by one of the templates and its answer as chat messages."""
    question = TEMPLATES[hashlib.sha256(head.encode()).digest()[0] % len(TEMPLATES)].format(head)
    return {"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]}


def write(path: Path, rows: Iterable[object]) -> None:
    """Write JSON lines with \\n line ends."""
    lines = [json.dumps(row) + "\n" for row in rows]
    path.write_bytes("".join(lines).encode("ascii"))
    print(f"{path.name}: {len(lines)} rows, {path.stat().st_size} bytes")


def main() -> None:
    """Build the three files from the packages in the folder named on the command line."""
    source, here = Path(sys.argv[1]), Path(__file__).resolve().parent
    entries = {
        head: clean_entry(body)
        for head, body in jargon_entries(find_folder(source, "jargon.index"))
        if head.isascii() and not JARGON_RE.search(head)
    }
    answers: dict[str, str] = {}
    for head, senses in entries.items():
        answer = answer_from(senses)
        if len(answer.split()) >= MIN_ANSWER_WORDS and not BACKWARD.match(answer) and answer not in answers.values():
            answers[head] = answer
    held_out = sorted(answers, key=lambda head: hashlib.sha256(f"eval {head}".encode()).digest())[:EVAL_ROWS]
    unseen = {head: senses for head, senses in entries.items() if answer_from(senses) not in map(answers.get, held_out)}
    texts = [
        *moby_dick(find_folder(source, "chapter_1.txt")),
        *speeches(find_folder(source, "1790_george_washington_n.json")),
        *chunks((f"{head}: {text}" for head, senses in unseen.items() if (text := prose_from(senses))), "\n\n"),
    ]
    write(here / "corpus.jsonl", ({"text": text} for text in texts))
    write(here / "instructions.jsonl", (chat_row(*pair) for pair in answers.items() if pair[0] not in held_out))
    write(here / "eval.jsonl", (chat_row(*pair) for pair in answers.items() if pair[0] in held_out))


if __name__ == "__main__":
    main()
