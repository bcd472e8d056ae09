package hostsim

import (
	"context"
	"fmt"
)

// A request through a module that was written by hand: it adds a header and
// holds the body back until it is whole.
func Example() {
	ctx := context.Background()
	host, err := NewHost(ctx, Options{Log: func(LogEntry) {}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer host.Close(ctx)
	module, err := host.Compile(ctx, "by hand", handModule())
	if err != nil {
		fmt.Println(err)
		return
	}
	fleet, err := host.Deploy(ctx, FleetConfig{
		VM: VMConfig{Module: module, VMID: "example"}, Plugins: []PluginConfig{{Name: "by hand"}}, Workers: 2,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	worker, plugin := fleet.Workers[0], fleet.Plugins[0][0]
	worker.Do(func() {
		stream := plugin.NewStream(&Recorder{Line: func(line string) { fmt.Println(line) }})
		stream.RequestHeaders(NewHeaderMap(":method", "POST", ":path", "/", ":authority", "llm"), false)
		stream.RequestData([]byte("hello, "), false)
		stream.RequestData([]byte("world"), true)
		stream.ResponseHeaders(NewHeaderMap(":status", "204"), true)
	})
	// Output:
	// -> upstream headers {:method: POST, :path: /, :authority: llm, x-hand: made}
	// -> upstream data "hello, world" end
	// <- client headers {:status: 204} end
}
