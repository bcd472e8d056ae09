package engine

import (
	"fmt"
	"math"
	"time"
)

// A GPU is what its maker publishes of it.
type GPU struct {
	Name string
	// Memory in GB, Bandwidth in GB/s.
	Memory, Bandwidth float64
	// BF16 and FP8 are dense TFLOP/s of its tensor cores; 0 where it has none.
	BF16, FP8 float64
	// Source of the figures.
	Source string
}

// Published figures of GPUs. Where a datasheet gives one rate "with sparsity", half of it. The datasheets were
// read where other public documents quote them, not in the original. Memory is the number in the product's name: an H100 shows 81,559 MiB (85.5 GB) to
// nvidia-smi and an H200 143,771 MiB (150.8 GB), so real caches are larger than the derived ones.
var (
	l4 = GPU{
		Name: "L4", Memory: 24, Bandwidth: 300, BF16: 121, FP8: 242.5,
		// If FP32 accumulation halves these rates, as on the maker's other chips of the kind, isn't said there.
		// allenai/OLMo-core (src/olmo_core/train/callbacks/speed_monitor.py) counts so.
		Source: "NVIDIA L4 Tensor Core GPU Datasheet: 24 GB, 300 GB/s, BF16 242, FP8 485 TFLOPS with sparsity",
	}
	a10g = GPU{
		Name: "A10G", Memory: 24, Bandwidth: 600, BF16: 70,
		// The document itself could not be read: its BF16 is quoted in allenai/OLMo-core (as above), memory and
		// bandwidth in baseten's "NVIDIA A10 vs A10G for ML model inference".
		Source: "NVIDIA A10G Datasheet for AWS, 17 February 2022, as quoted by others: 24 GB, 600 GB/s, BF16 70 TFLOPS, 140 with sparsity",
	}
	a100 = GPU{
		Name: "A100 SXM 80 GB", Memory: 80, Bandwidth: 2039, BF16: 312,
		Source: "NVIDIA A100 Tensor Core GPU Datasheet, 2188504, May 2022: 80 GB, 2,039 GB/s, BF16 312 TFLOPS, 624 with sparsity",
	}
	h100 = GPU{
		Name: "H100 SXM", Memory: 80, Bandwidth: 3350, BF16: 989.4, FP8: 1979,
		// The architecture's whitepaper has the dense rates, 989.4 and 1,978.9.
		Source: "NVIDIA H100 Tensor Core GPU Datasheet, 2287922: 80 GB, 3.35 TB/s, BF16 1,979, FP8 3,958 TFLOPS with sparsity",
	}
	h200 = GPU{
		Name: "H200 SXM", Memory: 141, Bandwidth: 4800, BF16: 989.4, FP8: 1979,
		Source: "NVIDIA H200 Tensor Core GPU Datasheet, 3367400, July 2024: 141 GB, 4.8 TB/s, BF16 1,979, FP8 3,958 TFLOPS with sparsity",
	}
)

// A Model is the shape of one, as its config.json has it.
type Model struct {
	Name string
	// Total and Active parameters, in 1e9. Active are those that one token is multiplied with: all of
	// a dense model. Published counts have the input embedding too, which is looked up and not multiplied: 7 %
	// of Llama-3.1-8B's, 1 to 3 % of the larger ones' (gpt-oss leaves it out).
	Total, Active float64
	// Experts of a layer and those that one token goes to; 0 for a dense model.
	Experts, PerToken int
	// Layers whose attention sees, and keeps the KV of, the whole context. Layers with a sliding
	// window are left out: they keep a few blocks.
	Layers int
	// Heads of queries, heads of keys and values; the size of a head.
	Heads, KVHeads, HeadSize int
	// Latent is how many values of a token a layer keeps instead of keys and values (multi-head latent
	// attention: kv_lora_rank and qk_rope_head_dim); 0 for none. KeySize is then the size of a head's
	// keys (qk_nope_head_dim and qk_rope_head_dim), HeadSize that of its values (v_head_dim).
	Latent, KeySize int
	// Source of the figures.
	Source string
}

// Models of the presets.
var (
	llama8b = Model{
		Name: "Llama-3.1-8B", Total: 8.03, Active: 8.03, Layers: 32, Heads: 32, KVHeads: 8, HeadSize: 128,
		Source: "meta-llama/llama-models, models/sku_list.py; weights: meta-llama/Llama-3.1-8B, model.safetensors.index.json, total_size 16,060,522,496",
	}
	llama70b = Model{
		Name: "Llama-3.1-70B", Total: 70.6, Active: 70.6, Layers: 80, Heads: 64, KVHeads: 8, HeadSize: 128,
		Source: "meta-llama/llama-models, models/sku_list.py; weights: meta-llama/Llama-3.1-70B, model.safetensors.index.json, total_size 141,107,412,992",
	}
	qwen32b = Model{
		Name: "Qwen3-32B", Total: 32.8, Active: 32.8, Layers: 64, Heads: 64, KVHeads: 8, HeadSize: 128,
		Source: "Qwen/Qwen3-32B: model card (32.8B, 31.2B without embeddings), config.json; model.safetensors.index.json, total_size 65,524,246,528",
	}
	gptoss120b = Model{
		Name: "gpt-oss-120b", Total: 116.8, Active: 5.1, Experts: 128, PerToken: 4, Layers: 18, Heads: 64, KVHeads: 8, HeadSize: 64,
		// 18 of 36 layers have a window of 128 tokens: transformers 5.19, GptOssConfig.
		Source: "openai/gpt-oss-120b: original/config.json, model card (arXiv 2508.10925: 116.83B, 5.13B active, 60.8 GiB); tensors of 65,248,815,744 bytes",
	}
	deepseekV3 = Model{
		Name: "DeepSeek-V3", Total: 671, Active: 37, Experts: 256, PerToken: 8, Layers: 61, Heads: 128, HeadSize: 128, Latent: 512 + 64, KeySize: 128 + 64,
		// README_WEIGHTS.md counts 36.7B active, 0.9B of them the input embedding. The 688.6 GB of its files have a
		// module for multi-token prediction that isn't counted here.
		Source: "deepseek-ai/DeepSeek-V3: README_WEIGHTS.md, arXiv 2412.19437; shape: transformers 5.19, DeepseekV3Config",
	}
)

// A Preset is a model on GPUs that are split among it (tensor parallel).
type Preset struct {
	Name string
	Model
	GPU  GPU
	GPUs int
	// Weights in GB, and what they are. Those of BF16 and MXFP4 are the files' own sizes; of FP8 a byte for
	// each parameter and two for those of the embeddings, if these stay BF16.
	Weights float64
	Format  string
	// FP8 tells whether tensor cores multiply FP8; BF16 otherwise.
	FP8 bool
	// Use is the share of the memory that the engine may take (vLLM: gpu-memory-utilization).
	Use float64
	// Overhead is what activations, graphs and buffers take of each GPU, in GB: an assumption.
	Overhead float64
	// blocks of the cache where scenarios have had another rounding of it from the start.
	blocks int
}

// What of the published figures is reached, the same for all: assumptions.
const (
	bandwidthShare = 0.7 // of the memory's bandwidth, in decoding
	computeShare   = 0.4 // of the tensor cores' rate, in prefill
	kvBytes        = 2   // of a value in the KV cache: BF16
	touchedBy      = 32  // requests of a batch that a mixture's weights are read for
)

// Presets lists the pairs of model and GPU, small ones first. The two of Llama-3.1-70B in FP8 are
// DefaultParams and what the scenarios of package virtual play. They have had all weights in FP8 from the
// start. Files that keep the embeddings in BF16 have 72.7 GB and not 70.6: a step reads 2.9 % more.
func Presets() []Preset {
	return []Preset{
		{Name: "llama-3.1-8b-l4", Model: llama8b, GPU: l4, GPUs: 1, Weights: 9.08, Format: "FP8, embeddings BF16", FP8: true, Use: 0.9, Overhead: 2},
		{Name: "llama-3.1-8b-a10g", Model: llama8b, GPU: a10g, GPUs: 1, Weights: 16.06, Format: "BF16", Use: 0.9, Overhead: 2},
		{Name: "llama-3.1-8b-a100", Model: llama8b, GPU: a100, GPUs: 1, Weights: 16.06, Format: "BF16", Use: 0.9, Overhead: 4.5},
		{Name: "llama-3.1-8b-h100", Model: llama8b, GPU: h100, GPUs: 1, Weights: 16.06, Format: "BF16", Use: 0.9, Overhead: 4.5},
		{Name: "qwen3-32b-h100", Model: qwen32b, GPU: h100, GPUs: 1, Weights: 34.3, Format: "FP8, embeddings BF16", FP8: true, Use: 0.9, Overhead: 4.5},
		{Name: "llama-3.1-70b-4xa100", Model: llama70b, GPU: a100, GPUs: 4, Weights: 141.1, Format: "BF16", Use: 0.9, Overhead: 4.5},
		{Name: "llama-3.1-70b-2xh100", Model: llama70b, GPU: h100, GPUs: 2, Weights: 70.6, Format: "FP8", FP8: true, Use: 0.9, Overhead: 4.5, blocks: 12_288},
		{Name: "llama-3.1-70b-2xh200", Model: llama70b, GPU: h200, GPUs: 2, Weights: 70.6, Format: "FP8", FP8: true, Use: 0.75, Overhead: 4.5, blocks: 25_150},
		{Name: "gpt-oss-120b-h100", Model: gptoss120b, GPU: h100, GPUs: 1, Weights: 65.25, Format: "MXFP4, multiplied as BF16", Use: 0.9, Overhead: 4.5},
		{Name: "deepseek-v3-8xh200", Model: deepseekV3, GPU: h200, GPUs: 8, Weights: 673, Format: "FP8, embeddings BF16", FP8: true, Use: 0.9, Overhead: 4.5},
	}
}

// FindPreset returns the one of a name.
func FindPreset(name string) (Preset, error) {
	all := Presets()
	names := make([]string, len(all))
	for i, p := range all {
		if p.Name == name {
			return p, nil
		}
		names[i] = p.Name
	}
	return Preset{}, fmt.Errorf("engine: no preset %q; there are %v", name, names)
}

// TokenBytes is what the KV cache keeps of one token, each copy counted. GPUs share a model's heads
// of keys and values; a latent is kept whole on each of them.
func (p Preset) TokenBytes() float64 {
	if p.Latent > 0 {
		return float64(p.Layers*p.Latent*kvBytes) * float64(p.GPUs)
	}
	return float64(p.Layers*p.KVHeads*p.HeadSize*2*kvBytes) * max(1, float64(p.GPUs)/float64(p.KVHeads))
}

// Read is how many GB of weights a step reads: all of a dense model; of a mixture's experts those that
// 32 tokens reach, if each goes to any with the same chance.
func (p Preset) Read() float64 {
	if p.Experts == 0 {
		return p.Weights
	}
	share := float64(p.PerToken) / float64(p.Experts)
	inExperts := (p.Total - p.Active) / (1 - share) / p.Total
	return p.Weights * (1 - inExperts*math.Pow(1-share, touchedBy))
}

// Params derives the parameters, so:
//
//	cache      Use x memory, less weights and overhead, divided by TokenBytes
//	a step     Read at 70 % of the bandwidth of all GPUs
//	KV         TokenBytes at the same
//	a token    2 FLOP for each active parameter at 40 % of the tensor cores' rate
//	a pair     2 FLOP for each value of a key and of a value of each head and layer, at the same
//
// Times are rounded to half a unit of their second digit, as what they are made of is. No network between
// GPUs is counted. A batch has 256 requests at most, a step 2,048 tokens, the queue no end.
func (p Preset) Params() Params {
	gpus := float64(p.GPUs)
	bandwidth := p.GPU.Bandwidth * 1e9 * gpus * bandwidthShare
	rate := p.GPU.BF16
	if p.FP8 {
		rate = p.GPU.FP8
	}
	rate *= 1e12 * gpus * computeShare
	key := p.KeySize
	if key == 0 {
		key = p.HeadSize
	}
	pair := float64(2 * p.Layers * p.Heads * (key + p.HeadSize))
	blocks := p.blocks
	if blocks == 0 {
		blocks = p.derivedBlocks()
	}
	return Params{
		CapacityBlocks: blocks, MaxRunning: 256, MaxQueued: -1, StepTokens: 2048,
		StepBase:                 rounded(p.Read() * 1e9 / bandwidth),
		StepPerRequest:           50 * time.Microsecond,
		DecodePerKVToken:         rounded(p.TokenBytes() / bandwidth),
		PrefillPerToken:          rounded(2 * p.Active * 1e9 / rate),
		PrefillPerToken1KContext: rounded(1000 * pair / rate),
	}
}

// derivedBlocks is the size of the cache.
func (p Preset) derivedBlocks() int {
	room := 1e9 * (float64(p.GPUs)*(p.Use*p.GPU.Memory-p.Overhead) - p.Weights)
	return int(room / p.TokenBytes() / BlockTokens)
}

// rounded makes a duration of seconds, to half a unit of the second digit.
func rounded(seconds float64) time.Duration {
	ns := seconds * 1e9
	unit := math.Pow(10, math.Floor(math.Log10(ns))-1) / 2
	return time.Duration(math.Round(math.Round(ns/unit) * unit))
}
