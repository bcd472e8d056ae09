package body

// Reason says why a request has no key. Such a request is still served: it is
// routed by load alone and passes byte for byte.
type Reason uint8

// Reasons for no key. Scan and Render return those up to Empty; the rest are
// for the caller, so that one counter holds them all.
const (
	OK            Reason = iota
	BadJSON              // the body is not one JSON text; the engine will refuse it
	TooDeep              // nested deeper than MaxDepth
	NotObject            // JSON may be fine, but the top level is not an object
	NoPromptField        // the endpoint's prompt field is absent or null
	BadPromptType        // the prompt field holds a type that the endpoint does not define
	Empty                // there is no text in the prompt
	Compressed           // content-encoding other than identity
	OverCap              // the body is larger than what is buffered or scanned
	NotJSON              // content type other than JSON
	NoBody               // a body-less call, such as the list of models

	NumReasons // one more than the last reason
)

var reasonNames = [NumReasons]string{
	"ok", "bad_json", "too_deep", "not_object", "no_prompt_field", "bad_prompt_type",
	"empty", "compressed", "over_cap", "not_json", "no_body",
}

// String returns the label value of no_key_total{reason}.
func (r Reason) String() string {
	if r < NumReasons {
		return reasonNames[r]
	}
	return "unknown"
}
