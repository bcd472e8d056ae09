// Package pretty stands in for github.com/tidwall/pretty where the wasm module
// is built. gjson needs that package for its @pretty and @ugly modifiers, and
// it brings encoding/json along, 0.6 MiB of code that a proxy would compile at
// each start. The module uses no modifiers: here they return the JSON as it is.
//
// build/wasmprep puts it in place by a replace directive that only the module's
// build sees; the companion binary has the real package.
package pretty

// Options has the fields that gjson sets.
type Options struct {
	Width    int
	Prefix   string
	Indent   string
	SortKeys bool
}

// DefaultOptions is what gjson copies before it sets its own.
var DefaultOptions = &Options{}

// Pretty returns json as it is.
func Pretty(json []byte) []byte { return json }

// PrettyOptions returns json as it is.
func PrettyOptions(json []byte, _ *Options) []byte { return json }

// Ugly returns json as it is.
func Ugly(json []byte) []byte { return json }
