package chat

const (
	deepSeekBegin     = "<｜begin▁of▁sentence｜>"
	deepSeekEnd       = "<｜end▁of▁sentence｜>"
	deepSeekUser      = "<｜User｜>"
	deepSeekAssistant = "<｜Assistant｜>"
	deepSeekOutputs   = "<｜tool▁outputs▁begin｜>"
	deepSeekOutput    = "<｜tool▁output▁begin｜>"
	deepSeekOutputEnd = "<｜tool▁output▁end｜>"
	deepSeekOutputsX  = "<｜tool▁outputs▁end｜>"
)

// deepSeekV3 is the template of DeepSeek-V3: all system texts come first, tools'
// definitions aren't shown. An assistant's tool calls are shown only where its
// content is null, which neither engine leaves so; what the tools answered is.
func (r *Renderer) deepSeekV3() {
	r.lit(deepSeekBegin)
	system := 0
	for i := range r.msgs {
		m := &r.msgs[i]
		if m.role != roleSystem {
			continue
		}
		if !r.enter(m) {
			return
		}
		if r.resumes(i) {
			// The text goes on with other turns after the place to resume at.
			r.stop(Unknown)
			return
		}
		if system > 0 {
			r.lit("\n\n")
		}
		r.put(m.content)
		system++
	}
	r.end()
	outputs, inTool := false, false
	for i := range r.msgs {
		m := &r.msgs[i]
		if !r.going() || !r.enter(m) {
			return
		}
		switch m.role {
		case roleUser:
			inTool = false
			r.lit(deepSeekUser)
			if !r.content(m, i) {
				return
			}
		case roleAssistant:
			if inTool {
				r.lit(deepSeekOutputsX)
			} else {
				r.lit(deepSeekAssistant)
			}
			inTool = false
			if !r.content(m, i) {
				return
			}
			r.lit(deepSeekEnd)
		case roleTool:
			inTool = true
			if outputs {
				r.lit("\n" + deepSeekOutput)
			} else {
				r.lit(deepSeekOutputs + deepSeekOutput)
			}
			outputs = true
			if !r.content(m, i) {
				return
			}
			r.lit(deepSeekOutputEnd)
		}
		r.end()
	}
	if inTool {
		r.lit(deepSeekOutputsX)
		r.end()
	}
	if inTool {
		r.generate("", "")
	} else {
		r.generate(deepSeekAssistant, "")
	}
}
