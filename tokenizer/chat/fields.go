package chat

// field is a top-level field of a body that the prompt depends on.
type field uint8

const (
	fieldNone field = iota
	fieldMessages
	fieldPrompt
	fieldInput
	fieldSystem
	fieldInstructions
	fieldTools
	fieldToolChoice
	fieldChatTemplate
	fieldTemplateKwargs
	fieldAddGenerationPrompt
	fieldContinueFinal
	fieldAddSpecial
	fieldReasoningEffort
	fieldReasoning
	fieldTruncatePrompt
	fieldPromptEmbeds
	fieldSuffix
	fieldKVTransfer
	fieldInputIDs
	fieldPreviousResponse
	fieldPreviousInput
	fieldThinking
	fieldOutputConfig
	fieldMMKwargs
	numFields
)

func fieldOf(name []byte) field {
	switch string(name) {
	case "messages":
		return fieldMessages
	case "prompt":
		return fieldPrompt
	case "input":
		return fieldInput
	case "system":
		return fieldSystem
	case "instructions":
		return fieldInstructions
	case "tools":
		return fieldTools
	case "tool_choice":
		return fieldToolChoice
	case "chat_template":
		return fieldChatTemplate
	case "chat_template_kwargs":
		return fieldTemplateKwargs
	case "add_generation_prompt":
		return fieldAddGenerationPrompt
	case "continue_final_message":
		return fieldContinueFinal
	case "add_special_tokens":
		return fieldAddSpecial
	case "reasoning_effort":
		return fieldReasoningEffort
	case "reasoning":
		return fieldReasoning
	case "truncate_prompt_tokens":
		return fieldTruncatePrompt
	case "prompt_embeds":
		return fieldPromptEmbeds
	case "suffix":
		return fieldSuffix
	case "kv_transfer_params":
		return fieldKVTransfer
	case "input_ids":
		return fieldInputIDs
	case "previous_response_id":
		return fieldPreviousResponse
	case "previous_input_messages":
		return fieldPreviousInput
	case "thinking":
		return fieldThinking
	case "output_config":
		return fieldOutputConfig
	case "mm_processor_kwargs":
		return fieldMMKwargs
	}
	return fieldNone
}

// options are the arguments of a template.
type options struct {
	generate   bool   // add_generation_prompt
	resume     bool   // continue_final_message
	prefill    []byte // what the answer shall begin with, where the engine tokenises it apart
	addSpecial bool
	noThinking bool // enable_thinking is false
	noTools    bool
	toolChoice []byte // the one tool that is offered, nil: all
	effort     []byte // reasoning_effort, nil: not given
	date       []byte // date_string, nil: not given
	toolsApart bool   // tools_in_user_message is false
}

// readFields finds the top-level fields. Of duplicates the last counts, as in
// Python's json.loads; null is like absent.
func (r *Renderer) readFields(req Request) {
	for t := req.Doc.Tops(); t.Next(); {
		f := fieldOf(t.Name)
		r.top[f] = t.Value
		if r.body[t.Value] == 'n' {
			r.top[f] = 0
		}
	}
	r.top[fieldNone] = 0
}

// flag reads a boolean field.
func (r *Renderer) flag(i int, absent bool) bool {
	switch r.kind(i) {
	case 't':
		return true
	case 'f':
		return false
	}
	if i > 0 {
		r.stop(Unknown) // engines make booleans of some strings and numbers
	}
	return absent
}

// readOptions reads the arguments of the template out of the request.
func (r *Renderer) readOptions() {
	o := &r.opts
	o.generate = r.flag(r.top[fieldAddGenerationPrompt], true)
	o.resume = r.flag(r.top[fieldContinueFinal], false)
	if r.tmpl.engine == SGLang {
		// These two are no fields of its requests.
		o.generate = true
	} else {
		o.addSpecial = r.flag(r.top[fieldAddSpecial], false)
		// Without add_generation_prompt it is true, which the template's tokenizer
		// refuses; Harmony doesn't ask for either.
		if o.resume && o.generate && (r.top[fieldAddGenerationPrompt] > 0 || r.tmpl.family != familyGPTOSS) {
			r.stop(Refused)
		}
		if r.top[fieldTruncatePrompt] > 0 {
			r.stop(Cut)
		}
		if r.top[fieldKVTransfer] > 0 {
			r.kvTransfer(r.top[fieldKVTransfer])
		}
	}
	if r.tmpl.engine == SGLang {
		if r.top[fieldInputIDs] > 0 {
			r.stop(TokenIDs)
		}
		if r.top[fieldReasoning] > 0 {
			r.stop(Unknown)
		}
	}
	r.readEffort(r.top[fieldReasoningEffort])
	r.readArguments()
}

// readArguments reads what is given to the template alone.
func (r *Renderer) readArguments() {
	if r.tmpl.family == familyGPTOSS {
		return // Harmony has no template
	}
	if r.top[fieldChatTemplate] > 0 && r.tmpl.engine == VLLM {
		r.stop(RequestTemplate)
	}
	r.templateKwargs(r.top[fieldTemplateKwargs])
}

// kvTransfer stops where the prompt's ids came with the request.
func (r *Renderer) kvTransfer(i int) {
	if r.kind(i) != '{' {
		return
	}
	for at := i + 1; ; {
		m, ok := r.w.Member(at)
		if !ok {
			return
		}
		if string(m.Name) == "prompt_token_ids" && r.kind(m.Value) != 'n' {
			r.stop(TokenIDs)
		}
		at = r.w.Skip(m.Value)
	}
}

// readEffort reads reasoning_effort. "none" means no thinking unless the template's
// arguments say otherwise.
func (r *Renderer) readEffort(i int) {
	if i == 0 {
		return
	}
	if r.kind(i) != '"' {
		r.stop(Unknown)
		return
	}
	e := r.str(i)
	switch string(e) {
	case "none":
		r.opts.noThinking = true
	case "minimal", "low", "medium", "high", "xhigh", "max":
	case "ultra":
		if r.tmpl.engine == VLLM {
			r.stop(Refused)
		}
	default:
		r.stop(Refused)
	}
	r.opts.effort = e
}

// templateKwargs reads chat_template_kwargs. What no template here asks for
// doesn't change the prompt; a name that may mean something stops.
func (r *Renderer) templateKwargs(i int) {
	if i == 0 {
		return
	}
	if r.kind(i) != '{' {
		r.stop(Refused)
		return
	}
	llama := r.tmpl.family == familyLlama31 || r.tmpl.family == familyLlama32
	for at := i + 1; ; {
		m, ok := r.w.Member(at)
		if !ok {
			return
		}
		kind := r.kind(m.Value)
		switch string(m.Name) {
		case "enable_thinking":
			r.opts.noThinking = kind == 'f'
		case "thinking", "reasoning_effort", "preserve_thinking", "clear_thinking":
		case "add_generation_prompt", "continue_final_message":
			if r.tmpl.engine == SGLang {
				r.stop(Refused) // given twice
			} // the request's own fields override these
		case "chat_template":
			if kind != 'n' || r.tmpl.engine == SGLang {
				r.stop(RequestTemplate)
			}
		case "date_string":
			if llama {
				if kind != '"' {
					r.stop(Argument)
				} else {
					r.opts.date = r.str(m.Value)
				}
			}
		case "tools_in_user_message":
			if llama {
				r.opts.toolsApart = !r.flag(m.Value, true)
			}
		default:
			r.stop(Argument)
		}
		at = r.w.Skip(m.Value)
	}
}
