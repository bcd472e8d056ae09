"""Cuts generated text with Hugging Face's tokenizers and tiktoken, for main.go to compare.

Usage: python cases.py CASES SEED [KIND...] | go run ./integration/tokenizers/pretoken
(make test-pieces does it).

Prints one case a line: {"kind", "text", "ends"}, where ends are those of the pieces in
bytes of UTF-8. Of kind "nfc" there is the normal "form" in their place. Cases is the
number of random texts per kind; each kind also gets every code point in the
contexts that its pattern tells apart, unless --short is the first argument.
"""

import json
import random
import sys

import regex
import tiktoken
import unicodedata2
from tokenizers import Regex, normalizers
from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence, Split

CONTRACTION = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
END = r"\s*[\r\n]+|\s+(?!\S)|\s+"
UPPER, LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"


def cased(contraction):
    first = r"[^\r\n\p{L}\p{N}]?"
    return rf"{first}[{UPPER}]*[{LOWER}]+{contraction}|{first}[{UPPER}]+[{LOWER}]*{contraction}"


def split(pattern):
    return Split(Regex(pattern), "isolated")


def whole():
    return ByteLevel(add_prefix_space=False, use_regex=True)


KINDS = {
    "gpt2": whole(),
    "starcoder": Sequence([Digits(individual_digits=True), whole()]),
    "cl100k": split(rf"{CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{END}"),
    "qwen2": split(rf"{CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{END}"),
    "qwen3.5": split(
        rf"{CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{END}"
    ),
    "o200k": split(rf"{cased(CONTRACTION + '?')}|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{END}"),
    "tekken": split(rf"{cased('')}|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{END}"),
    "deepseek-v3": Sequence(
        [
            split(r"\p{N}{1,3}"),
            split("[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"),
            split(
                "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+"
                "|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|" + "\\s*[\r\n]+|\\s+(?!\\S)|\\s+"
            ),
        ]
    ),
}
# tiktoken's own patterns, which its engine alone reads as meant.
TIKTOKEN = {
    "cl100k-tail": r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s",
    "kimi-k2": r"[\p{Han}]+|"
    + cased(CONTRACTION + "?").replace(UPPER, UPPER + r"&&[^\p{Han}]").replace(LOWER, LOWER + r"&&[^\p{Han}]")
    + rf"|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{END}",
}
NFC = normalizers.NFC()
CLASSES = ("Lu", "Ll", "Lt", "Lm", "Lo", "M", "N", "P", "S", "Z", "C")

CODES = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
ASSIGNED = [c for c in CODES if unicodedata2.category(chr(c)) not in ("Cn", "Co")]
BY_CATEGORY = {}
for c in ASSIGNED:
    BY_CATEGORY.setdefault(unicodedata2.category(chr(c)), []).append(chr(c))
CATEGORIES = sorted(BY_CATEGORY)
SPACES = [" "] * 6 + list("\t\n\n\r\v\f\u0085\u00a0\u1680\u2003\u2028\u2029\u202f\u205f\u3000")
NOT_QUITE_SPACES = list("\u001c\u001f\u180e\u200b\u2060\ufeff\u0000\u007f")
ALPHABETS = [
    list("abcxyzstdmrevl"),
    list("ABCXYZSTDMREVL"),
    list("0123456789\u00b2\u0663\u2167\u0be7\U0001d7d8\u3007"),
    list("'!#$./\\-_\"@[]{}~`^\u2019\u00ab\u2026\u20ac\u00ac"),
    SPACES,
    ["\n", "\r", "\r\n", " ", "/", "!"],
    NOT_QUITE_SPACES + [" ", "a", "!"],
    list("\u00e9\u00c9\u00df\u017f\u0130\u01c5\u01c4\u1f88\u03a3\u03c2\u0416\u0436\u212a"),
    list("\u0301\u0308\u0323\u20dd\u0903\u093f\u0e31\u0345\ufe0f"),
    list("\u4e2d\u6587\u9fa5\u9fa6\u4e00\u3042\u30ab\u3099\u309b\u30fb\u30a0\u3040\u3097\u30ff\u30fc\u3100\uac00\u1100\u1161\u11a8"),
    list("\u3005\u3021\u2e80\u3400\U0002a6df\U0002ebf0\U00016fe2\U00016ff0\uf900\u4e00"),
    list("\u0627\u0628\u05d0\u0915\u094d\u0e01\u02b0\u00aa\U00010400\U00010428\U0001e900"),
    ["\U0001f600", "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f1e9\U0001f1ea", "\u2764\ufe0f", "\U0001f3fd"],
    ["'s", "'S", "'\u017f", "'re", "'RE", "'rE", "'Ll", "'ll", "'ve", "'d", "'M", "'T", "'x", "'l", "'", "''"],
    ["\ufffd", "\U000e0100", "\ue000", "\U0010ffff", "\u0378", "\U00020000", "\U000e0001"],
]


def random_text(rng):
    size = rng.choice((1, 2, 3, 4, 6, 9, 14, 24, 40))
    mixed = [rng.choice(ALPHABETS) for _ in range(rng.randint(1, 4))]
    out = []
    while len(out) < size:
        kind = rng.random()
        if kind < 0.08:
            out.append(rng.choice(BY_CATEGORY[rng.choice(CATEGORIES)]))
        elif kind < 0.10:
            out.append(chr(rng.choice(CODES)))
        elif kind < 0.45:
            out.extend(rng.choice(rng.choice(mixed)) for _ in range(rng.randint(1, 5)))
        elif kind < 0.55:
            out.extend([rng.choice(rng.choice(mixed))] * rng.randint(2, 5))
        elif kind < 0.7:
            out.append(rng.choice(SPACES))
        else:
            out.append(rng.choice(rng.choice(ALPHABETS)))
    return "".join(out)


def every_code_point(rng):
    """Yields texts of some 60 code points, each in several contexts."""
    contexts = ["{0}", "a{0}", "{0}a", " {0}", "{0} ", "A{0}B", "!{0}a", "1{0}2", "'{0} ", "'l{0}", "\n{0}\n", "  {0}{0}  ", "\u4e00{0}\u3042"]
    codes = CODES[:]
    rng.shuffle(codes)
    for at in range(0, len(codes), 60):
        yield "".join(rng.choice(contexts).format(chr(c)) for c in codes[at : at + 60])


def in_bytes(text, stops):
    sizes, at, previous = [], 0, 0
    for stop in stops:
        at += len(text[previous:stop].encode())
        previous = stop
        sizes.append(at)
    return sizes


def newer_to_regex():
    known = {name: regex.compile(rf"\p{{{name}}}") for name in CLASSES}
    return {
        chr(c)
        for c in CODES
        if any(bool(p.match(chr(c))) != unicodedata2.category(chr(c)).startswith(name) for name, p in known.items())
    }


def by_tiktoken(kind, texts):
    """Yields the ends of the pieces of each text.

    tiktoken tells no pieces, but a piece that is a token stays whole. So the regex
    module proposes pieces, an encoding is made of them, and tiktoken must encode each
    text to just those. Code points that are newer to the module than to tiktoken
    (Unicode 16) are left out.
    """
    pattern = regex.compile("(?V1)" + TIKTOKEN[kind])
    for at in range(0, len(texts), 500):
        batch = texts[at : at + 500]
        stops = [[m.end() for m in pattern.finditer(text)] for text in batch]
        ranks = {bytes([b]): b for b in range(256)}
        for text, found in zip(batch, stops):
            for start, stop in zip([0, *found], found):
                ranks.setdefault(text[start:stop].encode(), len(ranks))
        encoding = tiktoken.Encoding(kind, pat_str=TIKTOKEN[kind], mergeable_ranks=ranks, special_tokens={})
        for text, found in zip(batch, stops):
            sizes, end = [], 0
            for token in encoding.encode_ordinary(text):
                end += len(encoding.decode_single_token_bytes(token))
                sizes.append(end)
            if sizes != in_bytes(text, found):
                print(f"{kind}: tiktoken and regex differ on {text!a}: {sizes}, {in_bytes(text, found)}", file=sys.stderr)
            yield sizes


def main():
    args = sys.argv[1:]
    short = args[0] == "--short"
    args = args[short:]
    count, rng = int(args[0]), random.Random(int(args[1]))
    kinds = args[2:] or [*KINDS, *TIKTOKEN, "nfc"]
    for kind in kinds:
        texts = [random_text(rng) for _ in range(count)]
        if not short:
            texts.extend(every_code_point(rng))
        if kind == "nfc":
            for text in texts:
                if rng.random() < 0.5:
                    text = unicodedata2.normalize("NFD", text)
                print(json.dumps({"kind": kind, "text": text, "form": NFC.normalize_str(text)}))
        elif kind in TIKTOKEN:
            newer = newer_to_regex()
            texts = ["".join(c for c in text if c not in newer) for text in texts]
            for text, ends in zip(texts, by_tiktoken(kind, texts)):
                print(json.dumps({"kind": kind, "text": text, "ends": ends}))
        else:
            for text in texts:
                stops = [stop for _, (_, stop) in KINDS[kind].pre_tokenize_str(text)]
                print(json.dumps({"kind": kind, "text": text, "ends": in_bytes(text, stops)}))


main()
