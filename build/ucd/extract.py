"""Writes what tokenizer/ucd needs of the Unicode Character Database as text.

Usage: node unassigned9.mjs | python extract.py > build/ucd/ucd.txt

Two versions meet here, as they do in Hugging Face's tokenizers 0.21 to 0.23: its regexp
engine (oniguruma 6.9.10) has Unicode 16 categories, its NFC (the crate
unicode-normalization-alignments 0.1.12) has Unicode 9 data. Combining classes and
canonical mappings of assigned code points never change, so those of Unicode 9 are
those of Unicode 16 less the code points that came later.
"""

import sys

import unicodedata2 as ucd

if ucd.unidata_version != "16.0.0":
    sys.exit(f"unicodedata2 holds Unicode {ucd.unidata_version}; install unicodedata2==16.0.0")

later = set()
for line in sys.stdin:
    first, last = (int(field, 16) for field in line.split())
    later.update(range(first, last + 1))
if not later:
    sys.exit("no unassigned ranges on standard input; pipe unassigned9.mjs into this program")

HANGUL = range(0xAC00, 0xD7A4)  # composed by arithmetic, not by table


def runs(values):
    """Yields (first, last, value) for maximal runs of one value that is not None."""
    start, current = 0, None
    for code, value in enumerate(values):
        if value != current:
            if current is not None:
                yield start, code - 1, current
            start, current = code, value
    if current is not None:
        yield start, len(values) - 1, current


codes = range(0x110000)
print("# Made by build/ucd/extract.py; do not edit.")
print("# G first last category: general categories of Unicode 16.0.0 (Cn left out)")
print("# C first last class: canonical combining classes of Unicode 9.0.0 (0 left out)")
print("# D code mapping...: canonical mappings of Unicode 9.0.0 that NFC composes again")
print("# X code mapping...: those that NFC leaves decomposed")
categories = [ucd.category(chr(c)) for c in codes]
for first, last, category in runs([None if c == "Cn" else c for c in categories]):
    print(f"G {first:04X} {last:04X} {category}")
classes = [0 if c in later else ucd.combining(chr(c)) for c in codes]
for first, last, value in runs([c or None for c in classes]):
    print(f"C {first:04X} {last:04X} {value}")
for c in codes:
    mapping = ucd.decomposition(chr(c))
    if not mapping or mapping.startswith("<") or c in later or c in HANGUL:
        continue
    letter = "D" if ucd.normalize("NFC", chr(c)) == chr(c) else "X"
    print(letter, f"{c:04X}", mapping)
