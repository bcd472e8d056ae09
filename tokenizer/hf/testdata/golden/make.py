#!/usr/bin/env python3
"""Makes the goldens beside it: small tokenizers trained on a few sentences, and what Hugging
Face's tokenizers makes of texts that touch every rule. Run it with `pip install tokenizers`;
the goldens change only if the library's answers do."""
import json
import os
import random

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = os.path.dirname(os.path.abspath(__file__))
CORPUS = """The quick brown fox jumps over the lazy dog. I'll say it's the one that you've seen; we're here, they'd gone.
def merge(left, right):\n    return [left, right] if left < right else None  # compare\n\tfor (i = 0; i < 10; i++) { sum += data[i]; }
1234567890 3.14159 2024-11-29 0x1F600 v1.2.3 100,000,000
Der schnelle braune Fuchs springt über den faulen Hund. Größe, Übung, naïve café, e\u0301te\u0301
Быстрая коричневая лиса прыгает через ленивую собаку. Γρήγορη καφέ αλεπού.
敏捷的棕色狐狸跳过懒狗。中文分词测试，你好世界。素早い茶色の狐がのろまな犬を飛び越える。カタカナ 빠른 갈색 여우가 게으른 개를 뛰어넘는다.
الثعلب البني السريع يقفز فوق الكلب الكسول שועל חום זריז हिन्दी में परीक्षण ไทยภาษา
😀 😃 👍🏽 👨‍👩‍👧 🇩🇪 <|user|> </think> [INST] user system assistant\n\n\n   spaces      and\ttabs\r\n""".split("\n") * 2

QWEN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA = QWEN.replace(r"|\p{N}|", r"|\p{N}{1,3}|")
O200K = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
TEKKEN = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
DEEPSEEK = [r"\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+", "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"]


def split(*patterns, **byte_level):
    steps = [pre_tokenizers.Split(Regex(p), "isolated") for p in patterns]
    return pre_tokenizers.Sequence(steps + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def special(*names):
    return [AddedToken(n, special=True, normalized=False) for n in names]


FAMILIES = {
    "qwen": dict(nfc=True, pre=split(QWEN), added=special("<|endoftext|>", "<|im_start|>", "<|im_end|>") + [AddedToken(n, normalized=False) for n in ("<think>", "</think>")]),
    "llama": dict(pre=split(LLAMA), added=special("<|begin_of_text|>", "<|eot_id|>"), bos="<|begin_of_text|>", ignore_merges=True),
    "o200k": dict(pre=split(O200K), added=special("<|start|>", "<|end|>", "<|message|>"), ignore_merges=True),
    "tekken": dict(pre=split(TEKKEN), added=special("<s>", "</s>", "[INST]", "[/INST]"), bos="<s>", eos="</s>"),
    "deepseek": dict(pre=split(*DEEPSEEK), added=special("<｜begin▁of▁sentence｜>") + [AddedToken(n) for n in ("<｜User｜>", "<｜Assistant｜>")]),
    "gpt2": dict(pre=pre_tokenizers.ByteLevel(add_prefix_space=True), added=special("<|endoftext|>")),
    "starcoder": dict(pre=pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]), added=special("<|endoftext|>")),
    # Every way an added token can behave.
    "added": dict(
        nfc=True,
        pre=split(QWEN),
        added=[
            AddedToken("<a>", special=True, normalized=False),
            AddedToken("<a>b", normalized=False),
            AddedToken("<left>", lstrip=True, normalized=False),
            AddedToken("<right>", rstrip=True, normalized=False),
            AddedToken("<both>", lstrip=True, rstrip=True, normalized=False),
            AddedToken("word", single_word=True, normalized=False),
            AddedToken("caf\u00e9", normalized=True),
            AddedToken("re\u0301s", normalized=True),
            AddedToken("na\u0308h", normalized=False),
            AddedToken("  ", normalized=True),
            AddedToken("<mark>", lstrip=True, rstrip=True, normalized=True),
            AddedToken("é", single_word=True, normalized=True),
        ],
    ),
}


def texts(rng, added):
    yield from ["", " ", "\n", "a", "\u00a0", "é", "e\u0301"]
    yield from added
    lines = [line for line in CORPUS if line]
    odd = ["  ", "   \n ", "\r\n\r\n", "'ll", "'S", " 'd", "ſ", "\u0301", "\u200d", "\ufeff", "\u3000", "\x00", "\u0085", "½", "Ⅷ", "٣", "ǅ", "ß", "İ", "ﬁ", "\U0001f9ff", "\U00020000", "_", "-", "\u1112\u1161\u11ab", "ā̈", "क्ष", "ＡＢ", "²", "ⓐ"]
    for _ in range(160):
        parts = []
        for _ in range(rng.randint(1, 9)):
            kind = rng.random()
            line = rng.choice(lines)
            if kind < 0.45:
                at = rng.randrange(len(line))
                parts.append(line[at : at + rng.randint(1, 14)])
            elif kind < 0.65:
                parts.append(rng.choice(odd))
            elif kind < 0.9:
                name = rng.choice(added)
                parts.append(name if rng.random() < 0.85 else name[: rng.randint(1, len(name))])
            else:
                parts.append(rng.choice([" ", "x", "a", "中", "1", "_"]) * rng.randint(1, 100))
        yield rng.choice(["", "", " ", "\n"]).join(parts)


for name, f in FAMILIES.items():
    t = Tokenizer(models.BPE(ignore_merges=f.get("ignore_merges", False)))
    t.normalizer = normalizers.NFC() if f.get("nfc") else None
    t.pre_tokenizer = f["pre"]
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=520, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    if f.get("ignore_merges"):
        # Tokens that merging cannot make, as published vocabularies have some.
        file = json.loads(t.to_str())
        for token in ("quick", "Ġlazy", "Ġcompare", "123"):
            file["model"]["vocab"].setdefault(token, len(file["model"]["vocab"]))
        t = Tokenizer.from_str(json.dumps(file))
    t.add_tokens(f["added"])
    if f.get("bos"):
        bos, eos = f["bos"], f.get("eos")
        t.post_processor = processors.TemplateProcessing(
            single=bos + " $A" + (" " + eos if eos else ""),
            special_tokens=[(n, t.token_to_id(n)) for n in (bos, eos) if n],
        )
    cases, rng = [], random.Random(name)
    for text in texts(rng, [a.content for a in f["added"]]):
        cases.append({"text": text, "ids": t.encode(text, add_special_tokens=False).ids, "special": t.encode(text).ids})
    with open(os.path.join(HERE, name + ".json"), "w") as out:
        json.dump({"tokenizer": json.loads(t.to_str()), "cases": cases}, out, ensure_ascii=True, separators=(",", ":"))
        out.write("\n")
    print(name, t.get_vocab_size(), "tokens,", len(cases), "cases")
