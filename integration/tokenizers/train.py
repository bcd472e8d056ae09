"""Trains one small vocabulary per family of rules and writes tokenizer.json files.

train.py TEXT FOLDER: the settings (normaliser, pre-tokeniser, post-processor,
flags) are those of the published vocabulary of each family; only the merges are
learnt, from TEXT, so that the files stay below 30 KB. They are learnt from windows
of a few characters, across every boundary that a pre-tokeniser draws: were a
boundary drawn elsewhere, a merge would be there to show it.
"""

import json
import os
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
CASED = rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+%s|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*%s"
PUNCTUATION = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
PUNCTUATION_SLASH = r" ?[^\s\p{L}\p{N}]+[\r\n/]*"

QWEN2 = rf"{CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}|{PUNCTUATION}|{SPACES}"
QWEN35 = rf"{CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{SPACES}"
CL100K = rf"{CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}|{PUNCTUATION}|{SPACES}"
O200K = CASED % (CONTRACTIONS + "?", CONTRACTIONS + "?") + rf"|\p{{N}}{{1,3}}|{PUNCTUATION_SLASH}|{SPACES}"
TEKKEN = CASED % ("", "") + rf"|\p{{N}}|{PUNCTUATION_SLASH}|{SPACES}"
DEEPSEEK = (
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
    "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"
)


def split(*patterns):
    steps = [pre_tokenizers.Split(Regex(p), "isolated") for p in patterns]
    return pre_tokenizers.Sequence([*steps, BYTES])


def bos(token):
    # Filled in once the token has its id.
    return lambda tok: processors.TemplateProcessing(
        single=f"{token} $A", pair=f"{token} $A {token}:1 $B:1", special_tokens=[(token, tok.token_to_id(token))]
    )


CHATML = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
FAMILIES = {
    "qwen": dict(normalizer=normalizers.NFC(), pre=split(QWEN2), special=CHATML, added=["<tool_call>", "</tool_call>", "<think>", "</think>"]),
    "qwen3.5": dict(normalizer=normalizers.NFC(), pre=split(QWEN35), special=CHATML),
    "starcoder": dict(
        pre=pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)]),
        special=["<|endoftext|>", "<fim_prefix>"],
    ),
    "llama3": dict(pre=split(CL100K), special=["<|begin_of_text|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>"], post=bos("<|begin_of_text|>"), ignore_merges=True),
    "gpt-oss": dict(pre=split(O200K), special=["<|startoftext|>", "<|start|>", "<|message|>", "<|end|>", "<|channel|>"], ignore_merges=True),
    "mistral-nemo": dict(pre=split(TEKKEN), special=["<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[TOOL_CALLS]"], post=bos("<s>"), ignore_merges=True),
    "deepseek-v3": dict(
        normalizer=normalizers.Sequence([]),
        pre=split(r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", DEEPSEEK),
        special=["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"],
        added=["<｜User｜>", "<｜Assistant｜>", "<｜tool▁calls▁begin｜>"],
        normalized=True,
    ),
    # No model has all of these; each flag occurs in some.
    "flags": dict(
        normalizer=normalizers.NFC(),
        pre=split(QWEN2),
        special=CHATML,
        flags={
            "<mask>": dict(lstrip=True, normalized=False),
            "<end>": dict(rstrip=True, normalized=False),
            "<both>": dict(lstrip=True, rstrip=True, normalized=False),
            "word": dict(single_word=True, normalized=False),
            "<a>": dict(normalized=False),
            "<a>b": dict(normalized=False),
            "caf\u00e9": dict(normalized=True),
            "\u212b": dict(normalized=False),
        },
    ),
    "gpt2": dict(pre=pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True), special=["<|endoftext|>"]),
}


def train(family, text, path):
    tok = Tokenizer(models.BPE(ignore_merges=family.get("ignore_merges", False)))
    tok.pre_tokenizer = split(r"[\s\S]{1,5}")
    tok.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=900, min_frequency=1, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    tok.train_from_iterator([text[i:] for i in range(5)], trainer)
    tok.pre_tokenizer = family["pre"]
    if "normalizer" in family:
        tok.normalizer = family["normalizer"]
    tok.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in family["special"]])
    tok.add_tokens([AddedToken(t, normalized=family.get("normalized", False)) for t in family.get("added", [])])
    tok.add_tokens([AddedToken(t, **flags) for t, flags in family.get("flags", {}).items()])
    post = family.get("post")
    tok.post_processor = post(tok) if post else processors.ByteLevel(trim_offsets=False)

    data = json.loads(tok.to_str())
    # Published vocabularies have tokens that merging never reaches: only a
    # piece that is such a token whole gets it, and only under ignore_merges.
    merges = data["model"]["merges"]
    data["model"]["merges"] = merges[:-40] + [m for i, m in enumerate(merges[-40:]) if i % 4]
    with open(path, "w", encoding="utf-8") as f:
        json.dump(data, f, ensure_ascii=False, separators=(",", ":"))
        f.write("\n")
    Tokenizer.from_file(path)


def main():
    text_path, folder = sys.argv[1:3]
    with open(text_path, encoding="utf-8") as f:
        text = f.read()
    for name, family in FAMILIES.items():
        train(family, text, os.path.join(folder, name + ".tokenizer.json"))


if __name__ == "__main__":
    main()
