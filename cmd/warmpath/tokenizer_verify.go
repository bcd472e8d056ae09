package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/warmpath/warmpath/control/parity"
	"github.com/warmpath/warmpath/tokenizer/chat"
)

// tokenizerVerifyCommand compares our tokens with a running engine's.
func tokenizerVerifyCommand() *cobra.Command {
	var endpoint, vocabulary, template, engine, model, tokenEnv string
	var asJSON bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "verify --endpoint URL --vocab FILE.wpv --template NAME",
		Short: "Compare our tokens with those of a running engine",
		Long: `Sends sample texts and conversations to the /tokenize of a running engine (vLLM, or
SGLang) and compares what it answers with our tokens, one by one. It needs no GPU
time and changes nothing. The control service does the same with every worker of a
pool that has a tokenizer, when it appears and after each restart.

Exit code 0: all the same. 1: some token differs, which is shown with those around
it; or the engine can't be asked. SGLang's /tokenize takes text alone, so there the
chat template is not compared, only the tokens of what it gives.`,
		Example: `  warmpath tokenizer verify --endpoint http://10.0.0.7:8000 --vocab qwen3.wpv --template qwen3
  warmpath tokenizer verify --endpoint http://10.0.0.7:30000 --vocab qwen3.wpv --template qwen3 --engine sglang --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			u, err := url.Parse(endpoint)
			if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
				return fmt.Errorf("--endpoint %q is no address of an engine; write it as http://10.0.0.7:8000", endpoint)
			}
			encoder, err := openVocabulary(vocabulary)
			if err != nil {
				return err
			}
			t, err := chooseTemplate(template, engine)
			if err != nil {
				return err
			}
			c := &parity.Client{URL: endpoint, Token: os.Getenv(tokenEnv), HTTP: &http.Client{Timeout: timeout}}
			e := parity.Engine{Name: engine, Template: template}
			if model != "" {
				e.Models = []string{model}
			}
			report, err := parity.Verify(cmd.Context(), c, parity.New(encoder.Vocab(), t), e, parity.Samples(), time.Now)
			if err != nil {
				return fmt.Errorf("verify with %s: %w (is the engine up, is --endpoint its address, and does it want a token? --token-env names the variable it is in)", endpoint, err)
			}
			if asJSON {
				out := json.NewEncoder(cmd.OutOrStdout())
				out.SetEscapeHTML(false)
				if err := out.Encode(report); err != nil {
					return fmt.Errorf("write the report: %w", err)
				}
			} else {
				printReport(cmd.OutOrStdout(), &report)
			}
			switch report.Outcome {
			case parity.Differs:
				return errors.New("the engine has other tokens: is this its model's vocabulary and template?")
			case parity.Unverified:
				return fmt.Errorf("not verified: %s (vLLM has /tokenize unless a proxy hides it; SGLang has it from 0.5 on)", report.Reason)
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&endpoint, "endpoint", "", "address of the engine, such as http://10.0.0.7:8000")
	f.StringVar(&vocabulary, "vocab", "", "compiled vocabulary (a tokenizer.json works too, slower)")
	f.StringVar(&template, "template", "", "family of the chat template, or a `file` with a declared one: "+strings.Join(chat.Families(), ", "))
	f.StringVar(&engine, "engine", "vllm", "vllm or sglang")
	f.StringVar(&model, "model", "", "model to ask for, if the engine serves several")
	f.StringVar(&tokenEnv, "token-env", "WARMPATH_ENGINE_TOKEN", "environment variable with the engine's API key")
	f.DurationVar(&timeout, "timeout", 30*time.Second, "end of one call")
	f.BoolVar(&asJSON, "json", false, "print the report as JSON")
	return cmd
}

// printReport writes a report for people.
func printReport(w io.Writer, r *parity.Report) {
	for _, s := range r.Skipped {
		fmt.Fprintf(w, "skipped %q: %s\n", s.Sample, s.Why)
	}
	of := ""
	if r.Model != "" {
		of = " of " + r.Model
	}
	switch r.Outcome {
	case parity.Same:
		fmt.Fprintf(w, "the same: %d samples, %d tokens%s\n", r.Compared, r.Tokens, of)
	case parity.SameTokens:
		fmt.Fprintf(w, "the same tokens: %d samples, %d tokens%s; this engine's /tokenize can't show how it renders conversations\n", r.Compared, r.Tokens, of)
	}
	d := r.Difference
	if d == nil {
		return
	}
	fmt.Fprintf(w, "%d samples are the same, then %s\n\n", r.Compared, d)
	fmt.Fprintf(w, "  %8s  %-34s %s\n", "token", "ours ("+strconv.Itoa(d.OursCount)+" in all)", "the engine's ("+strconv.Itoa(d.TheirsCount)+")")
	cell := func(tokens []parity.Token, i int) string {
		if i >= len(tokens) {
			return "-"
		}
		text := []rune(strconv.Quote(tokens[i].Text))
		if len(text) > 24 {
			text = append(text[:23], '…')
		}
		return fmt.Sprintf("%6d %s", tokens[i].ID, string(text))
	}
	for i := range max(len(d.Ours), len(d.Theirs)) {
		mark := " "
		if i == d.At {
			mark = ">"
		}
		fmt.Fprintf(w, "%s %8d  %-34s %s\n", mark, d.Position-d.At+i, cell(d.Ours, i), cell(d.Theirs, i))
	}
	fmt.Fprintln(w)
}
