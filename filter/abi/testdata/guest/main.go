package main

import (
	"github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/types"
	"github.com/warmpath/warmpath/filter/abi"
)

type vm struct{ types.DefaultVMContext }
type plugin struct{ types.DefaultPluginContext }
type stream struct{ types.DefaultHttpContext }

func (*vm) NewPluginContext(uint32) types.PluginContext { return &plugin{} }
func (*plugin) NewHttpContext(uint32) types.HttpContext { return &stream{} }

func init() { abi.Start(&vm{}) }
func main() {}
