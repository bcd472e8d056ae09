//go:build bare

// Command guest with the tag bare is the least a module can be: the bridge and
// contexts that do nothing.
package main

import (
	"github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/types"

	"github.com/warmpath/warmpath/filter/abi"
)

type (
	vm     struct{ types.DefaultVMContext }
	plugin struct{ types.DefaultPluginContext }
	stream struct{ types.DefaultHttpContext }
)

func (*vm) NewPluginContext(uint32) types.PluginContext { return &plugin{} }
func (*plugin) NewHttpContext(uint32) types.HttpContext { return &stream{} }

func init() { abi.Start(&vm{}) }

func main() {}
