package chat

// plainPrompt takes the prompt of /v1/completions or the input of
// /v1/embeddings as it is: a string, or the first of a list of strings.
func (r *Renderer) plainPrompt(f field) {
	if r.top[fieldPromptEmbeds] > 0 || r.top[fieldSuffix] > 0 {
		r.stop(Unknown)
	}
	if r.top[fieldTruncatePrompt] > 0 {
		r.stop(Cut)
	}
	i := r.top[f]
	if r.kind(i) == '[' {
		e, ok := r.w.Element(i + 1)
		if !ok {
			r.stop(Refused)
			return
		}
		i = e
		if c := r.kind(e); c == '[' || c-'0' <= 9 {
			r.stop(TokenIDs)
		}
	}
	if r.kind(i) != '"' {
		r.stop(Refused)
	}
	if r.stopped != Complete {
		return
	}
	r.put(r.str(i))
	r.end()
}
