package hostsim

import (
	"context"
	"fmt"
)

// A host that tells every call, and a write of a header that fails once.
func ExampleHost_Inject() {
	ctx := context.Background()
	host, err := NewHost(ctx, Options{Log: func(LogEntry) {}, Trace: func(e Event) { fmt.Println(e) }})
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
		VM: VMConfig{Module: module}, Plugins: []PluginConfig{{Name: "by hand"}}, Workers: 1, NoCanary: true, NoMain: true,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fault, err := ParseFault("replace_header_map_value:1=BadArgument")
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := host.Inject(fault); err != nil {
		fmt.Println(err)
		return
	}
	fleet.Workers[0].Do(func() {
		stream := fleet.Plugins[0][0].NewStream(&Recorder{})
		stream.RequestHeaders(NewHeaderMap(":method", "GET", ":path", "/", ":authority", "llm"), true)
		stream.Close()
	})
	// Output:
	// #1 proxy_on_context_create(id 1, parent 0)
	// #2 proxy_on_context_create(id 2, parent 1)
	// #2 proxy_on_request_headers(headers 3, end_of_stream true)
	// #2 !! fault proxy_replace_header_map_value:1=BadArgument
	// #2   proxy_replace_header_map_value(request_headers, "x-hand", "made") = BadArgument
	// #2   proxy_log(info, "seen") = Ok
	// #2 proxy_on_request_headers = Continue
}
