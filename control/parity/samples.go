package parity

// Sample is one request that is tokenised on both sides.
type Sample struct {
	Name string
	// Messages and Tools are JSON, of a chat, and More an object of further
	// fields; Prompt is plain text. One of Messages and Prompt is set.
	Messages, Tools, More, Prompt string
	// Templates are those that the sample is for; none: all.
	Templates []string
}

const weatherTool = `[{"type":"function","function":{"name":"get_weather","description":"Current weather in a city","parameters":{"type":"object","properties":{"city":{"type":"string","description":"e.g. Łódź"},"unit":{"type":"string","enum":["C","F"]}},"required":["city"]}}}]`

// Samples are requests that bring out where tokenizers and templates differ:
// white space, digits, scripts, marks, text that looks like control tokens; the
// turns of a conversation with and without a system message; tools.
func Samples() []Sample {
	return []Sample{
		{Name: "plain text", Prompt: "Hello, world! The quick brown fox can't jump over 13 lazy dogs; it's 2026-11-29."},
		{Name: "white space", Prompt: "a  b   c\n\n\td \r\n  e\u00a0f\u2003g   \n   "},
		{Name: "digits", Prompt: "0 12 123 1234 1234567890 3.14159 ²³½ ٤٥٦ ४५६ 1e-10"},
		{Name: "scripts", Prompt: "Zażółć gęślą jaźń, 你好世界, こんにちは, 안녕하세요, Привет, مرحبا, שלום, नमस्ते, สวัสดี"},
		{Name: "marks and emoji", Prompt: "e\u0301 cafe\u0301 n\u0303 \u0061\u0328 🙂 👩‍👩‍👧‍👦 🇵🇱 ﬁ ① Å Å"},
		{Name: "code", Prompt: "func main() {\n\tfor i := 0; i < 10; i++ {\n\t\tfmt.Println(\"%d\\n\", i) // don't\n\t}\n}\nx**=2; y!=z==>>w"},
		{Name: "case", Prompt: "HTTPServer's iPhone McDONALD'S I'LL we'Re THEY'VE don't CamelCaseWord"},
		{Name: "control tokens in text", Prompt: "before<|im_end|>after <|endoftext|> <|eot_id|></s>[INST]<think>x</think>"},
		{Name: "one user turn", Messages: `[{"role":"user","content":"Hello, world!"}]`},
		{Name: "system and user", Messages: `[{"role":"system","content":"You are terse.\nAnswer in Polish."},{"role":"user","content":" What's 2+2? "}]`},
		{Name: "several turns", Messages: `[{"role":"system","content":"You are helpful."},{"role":"user","content":"First?"},{"role":"assistant","content":"One.\n\nTwo."},{"role":"user","content":"Second: żółw 🐢"},{"role":"assistant","content":"Yes"},{"role":"user","content":"and?"}]`},
		{Name: "content in parts", Messages: `[{"role":"user","content":[{"type":"text","text":"part one"},{"type":"text","text":"part two"}]},{"role":"assistant","content":"ok"},{"role":"user","content":"and?"}]`},
		{Name: "tools", Messages: `[{"role":"user","content":"Weather in Łódź?"}]`, Tools: weatherTool},
		{Name: "tool call and result", Messages: `[{"role":"system","content":"Use tools."},{"role":"user","content":"Weather?"},{"role":"assistant","content":null,"tool_calls":[{"id":"call00001","type":"function","function":{"name":"get_weather","arguments":"{\"city\": \"Łódź\", \"unit\": \"C\"}"}}]},{"role":"tool","tool_call_id":"call00001","content":"{\"t\": 7}"},{"role":"user","content":"Thanks"}]`, Tools: weatherTool},
		{Name: "tool result at the end", Messages: `[{"role":"user","content":"Weather in Gdańsk and Łódź?"},{"role":"assistant","content":"","tool_calls":[{"id":"call00002","type":"function","function":{"name":"get_weather","arguments":"{\"city\":\"Gdańsk\"}"}}]},{"role":"tool","tool_call_id":"call00002","content":"7 °C <b>&\n"}]`, Tools: weatherTool},
		{Name: "answer to go on with", Messages: `[{"role":"user","content":"Count."},{"role":"assistant","content":"One, two,"}]`, More: `{"add_generation_prompt":false,"continue_final_message":true}`},
		{Name: "no generation prompt", Messages: `[{"role":"user","content":"Hi"},{"role":"assistant","content":"Hello."}]`, More: `{"add_generation_prompt":false}`},
		{Name: "reasoning in an answer", Messages: `[{"role":"user","content":"Think."},{"role":"assistant","content":"<think>\nhm\n</think>\n\nDone."},{"role":"user","content":"Again."}]`},
		{Name: "thinking switched off", Messages: `[{"role":"user","content":"Quick."}]`, More: `{"chat_template_kwargs":{"enable_thinking":false}}`, Templates: []string{"qwen3"}},
		{Name: "control tokens in a turn", Messages: `[{"role":"user","content":"say <|im_end|> and <|eot_id|> literally"}]`},
	}
}
