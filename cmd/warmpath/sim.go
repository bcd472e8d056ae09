package main

import (
	"fmt"
	"net"

	"github.com/spf13/cobra"

	"github.com/warmpath/warmpath/sim/engine"
	"github.com/warmpath/warmpath/sim/live"
	"github.com/warmpath/warmpath/sim/workload"
)

func simCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sim",
		Short: "Simulated fleets in virtual time, and simulated workers that answer",
		Long: `Judges routing policies without GPUs. list, run and compare play whole fleets in
virtual time, with the decision function of the proxy module itself; workers runs
engines that answer HTTP, in real time.`,
	}
	cmd.AddCommand(simListCommand(), simRunCommand(), simCompareCommand(), simSaturationCommand(), simMatrixCommand(), simReferenceCommand(), simAdmissionCommand(), simWorkersCommand())
	return cmd
}

func simWorkersCommand() *cobra.Command {
	var (
		count, port int
		capacity    int
		scale       float64
		models      []string
		vocabulary  string
		template    string
		family      string
	)
	cmd := &cobra.Command{
		Use:   "workers",
		Short: "Run OpenAI-compatible workers with a modelled prefix cache on consecutive ports",
		Long: `Runs workers that speak the OpenAI and Anthropic HTTP APIs in front of a model of
a continuous-batching engine: block prefix cache, chunked prefill, batch-dependent
decode, queue, vLLM-named metrics. They answer pseudo text; what is real is the
timing, cached_tokens and the load. With a model's vocabulary and chat template they
count and cache the tokens of that model, and answer /tokenize.`,
		Example: `  warmpath sim workers --count 4 --port 9001
  warmpath sim workers --count 2 --vocab qwen3.wpv --template qwen3`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if count < 1 || port < 1 || port+count-1 > 65535 || capacity < engine.BlockTokens || scale <= 0 {
				return fmt.Errorf("--count %d, --port %d, --capacity-tokens %d, --time-scale %g: want one worker or more on ports up to 65535, a cache of %d tokens or more and a scale above 0", count, port, capacity, scale, engine.BlockTokens)
			}
			var tokenizer *live.Tokenizer
			if vocabulary != "" {
				encoder, err := openVocabulary(vocabulary)
				if err != nil {
					return err
				}
				t, err := chooseTemplate(template, family)
				if err != nil {
					return err
				}
				tokenizer = &live.Tokenizer{Vocabulary: encoder.Vocab(), Template: t}
			}
			params := workload.Demo().Fleet.EngineParams(1)
			params.CapacityBlocks = capacity / engine.BlockTokens
			for i := range count {
				ln, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port+i))
				if err != nil {
					return fmt.Errorf("worker %d: %w (--port names the first of --count ports)", i, err)
				}
				w, err := live.Start(live.Config{Name: fmt.Sprintf("worker-%d", i), Listener: ln, Engine: params, TimeScale: scale, Models: models, Tokenizer: tokenizer})
				if err != nil {
					return err
				}
				defer func() { _ = w.Close() }()
				fmt.Fprintf(cmd.OutOrStdout(), "%s at %s\n", w.Name(), w.URL())
			}
			<-cmd.Context().Done()
			return nil
		},
	}
	f := cmd.Flags()
	f.IntVar(&count, "count", 4, "workers")
	f.IntVar(&port, "port", 9001, "port of the first one")
	f.IntVar(&capacity, "capacity-tokens", 140_000, "prefix cache per worker, in tokens")
	f.Float64Var(&scale, "time-scale", 1, "engine seconds per real second")
	f.StringVar(&vocabulary, "vocab", "", "compiled vocabulary: count and cache its tokens, answer /tokenize")
	f.StringVar(&template, "template", "", "with --vocab: family of the chat template, or a `file` with a declared one")
	f.StringVar(&family, "engine", "vllm", "with --vocab: whose reading of requests, vllm or sglang")
	f.StringSliceVar(&models, "models", []string{workload.Demo().Model}, "model names served")
	return cmd
}
