"""Answers with the reference's token ids, in batch.

encode KIND FILE TEXTS IDS SPECIAL: KIND is hf (FILE: tokenizer.json) or tiktoken
(FILE: rank file named after its encoding). TEXTS holds texts as [u32 length]
[bytes], little endian; bytes that are no UTF-8 are replaced as Python's codec
does. IDS receives [u32 count][u32 ids] each. SPECIAL 1 asks for BOS and so on.

bench KIND FILE: reads lines "PATH ROUNDS", where PATH holds texts as above, and
answers each with the CPU nanoseconds and the number of ids of every round: one
thread, one batch call.
"""

import array
import os
import struct
import sys
import time

# One thread where speed is measured; read when tokenizers is imported.
os.environ["TOKENIZERS_PARALLELISM"] = "false" if sys.argv[1] == "bench" else "true"


def read_texts(path):
    with open(path, "rb") as f:
        data = f.read()
    at, texts = 0, []
    while at < len(data):
        (n,) = struct.unpack_from("<I", data, at)
        texts.append(data[at + 4 : at + 4 + n].decode("utf-8", errors="replace"))
        at += 4 + n
    return texts


def open_hf(path):
    from tokenizers import Tokenizer

    # AutoTokenizer would rebuild some backends from their class name.
    tok = Tokenizer.from_file(path)
    encode = getattr(tok, "encode_batch_fast", tok.encode_batch)
    return lambda texts, special: [e.ids for e in encode(texts, add_special_tokens=special)]


def open_tiktoken(path):
    import tiktoken
    from tiktoken import load
    from tiktoken_ext import openai_public

    # The published definition, with its download replaced by the file at hand.
    name = os.path.basename(path).removesuffix(".tiktoken")
    openai_public.load_tiktoken_bpe = lambda *_, **__: load.load_tiktoken_bpe(path)
    load_file = load.read_file
    load.read_file = lambda p: open(p, "rb").read() if os.path.exists(p) else load_file(p)
    enc = tiktoken.Encoding(**openai_public.ENCODING_CONSTRUCTORS[name]())
    return lambda texts, special: enc.encode_batch(texts, num_threads=1, allowed_special="all")


def main():
    mode, kind, path = sys.argv[1:4]
    encode = {"hf": open_hf, "tiktoken": open_tiktoken}[kind](path)
    if mode == "bench":
        print("ready", flush=True)
        for line in sys.stdin:
            texts_path, rounds = line.split()
            texts = read_texts(texts_path)
            answer = []
            for _ in range(int(rounds)):
                start = time.process_time_ns()
                ids = encode(texts, False)
                spent = time.process_time_ns() - start
                answer += [str(spent), str(sum(map(len, ids)))]
            print(" ".join(answer), flush=True)
        return
    texts = read_texts(sys.argv[4])
    special = sys.argv[6] == "1"
    with open(sys.argv[5] + ".part", "wb") as out:
        for at in range(0, len(texts), 4096):
            for ids in encode(texts[at : at + 4096], special):
                out.write(struct.pack("<I", len(ids)))
                out.write(array.array("I", ids).tobytes())
    os.rename(sys.argv[5] + ".part", sys.argv[5])


if __name__ == "__main__":
    main()
