//go:build wasip1

// Command guest is the module under hostsim's tests: an interpreter of small
// scripts, so that a transcript shows what the module does next to what the host
// makes of it. The plugin's configuration is the script, one line per callback:
//
//	request_headers: pause
//	request_body: pause
//	request_body.end: set request x-dest a; continue
//
// A line whose name ends in ".end" is for calls with end_of_stream. Every call is
// logged, and so is what each host call answers. It speaks the ABI directly and
// uses no SDK.
package main

import (
	"os"
	"strconv"
	"strings"
	"unsafe"
)

func main() {}

// handlers of each root context; streams find theirs by their root.
var (
	scripts = map[uint32]map[string]string{}
	rootOf  = map[uint32]uint32{}
	calls   int      // shared by all contexts of the VM, lost with it
	held    []uint32 // contexts in the order of "hold"
	hoard   [][]byte
	refused bool // by refuse-if
	metrics = map[string]uint32{}
	queues  = map[string]uint32{}
	quiet   bool                // response bodies pass without a look: for benchmarks
	slow    = map[uint32]bool{} // root contexts that answer on_done with false
)

//go:wasmexport proxy_abi_version_0_2_1
func abiVersion() {}

//go:wasmexport proxy_on_context_create
func onContextCreate(id, root uint32) {
	if root != 0 {
		rootOf[id] = root
		run(id, "context_create", "on_context_create(%d, root %d)", id, root)
		return
	}
	log("on_context_create(" + itoa(id) + ")")
}

//go:wasmexport proxy_on_vm_start
func onVMStart(root, size uint32) uint32 {
	vmConfig := buffer(6, 0, size)
	log("on_vm_start(" + itoa(root) + ", config " + strconv.Quote(vmConfig) + ")")
	if vmConfig == "refuse" {
		return 0
	}
	return 1
}

//go:wasmexport proxy_on_configure
func onConfigure(root, size uint32) uint32 {
	log("on_configure(" + itoa(root) + ")")
	script := map[string]string{}
	for line := range strings.Lines(buffer(7, 0, size)) {
		name, body, _ := strings.Cut(strings.TrimSpace(line), ":")
		script[name] = strings.TrimSpace(body)
	}
	scripts[root] = script
	if script["configure"] == "refuse" {
		return 0
	}
	refused = false
	do(root, script["configure"])
	if refused {
		return 0
	}
	return 1
}

//go:wasmexport proxy_on_tick
func onTick(root uint32) { run(root, "tick", "on_tick(%d)", root) }

//go:wasmexport proxy_on_queue_ready
func onQueueReady(root, token uint32) { run(root, "queue_ready", "on_queue_ready(%d)", root) }

//go:wasmexport proxy_on_http_call_response
func onHTTPCallResponse(root, id, headers, body, trailers uint32) {
	run(root, "call_response", "on_http_call_response(%d, call %d, %d headers, %d body bytes, %d trailers)", root, id, headers, body, trailers)
}

//go:wasmexport proxy_on_request_headers
func onRequestHeaders(id, n, end uint32) uint32 {
	return run(id, "request_headers"+ifEnd(end), "on_request_headers(%d, %d headers"+sayEnd(end)+")", id, n)
}

//go:wasmexport proxy_on_request_body
func onRequestBody(id, size, end uint32) uint32 {
	return run(id, "request_body"+ifEnd(end), "on_request_body(%d, %d bytes"+sayEnd(end)+")", id, size)
}

//go:wasmexport proxy_on_request_trailers
func onRequestTrailers(id, n uint32) uint32 {
	return run(id, "request_trailers", "on_request_trailers(%d, %d trailers)", id, n)
}

//go:wasmexport proxy_on_response_headers
func onResponseHeaders(id, n, end uint32) uint32 {
	return run(id, "response_headers"+ifEnd(end), "on_response_headers(%d, %d headers"+sayEnd(end)+")", id, n)
}

//go:wasmexport proxy_on_response_body
func onResponseBody(id, size, end uint32) uint32 {
	if quiet {
		calls++
		return 0
	}
	return run(id, "response_body"+ifEnd(end), "on_response_body(%d, %d bytes"+sayEnd(end)+")", id, size)
}

//go:wasmexport proxy_on_response_trailers
func onResponseTrailers(id, n uint32) uint32 {
	return run(id, "response_trailers", "on_response_trailers(%d, %d trailers)", id, n)
}

//go:wasmexport proxy_on_log
func onLog(id uint32) { run(id, "log", "on_log(%d)", id) }

//go:wasmexport proxy_on_done
func onDone(id uint32) uint32 {
	run(id, "done", "on_done(%d)", id)
	if slow[id] {
		return 0
	}
	return 1
}

//go:wasmexport proxy_on_delete
func onDelete(id uint32) {
	run(id, "delete", "on_delete(%d)", id)
	delete(rootOf, id)
	delete(scripts, id)
}

func ifEnd(end uint32) string {
	if end != 0 {
		return ".end"
	}
	return ""
}

func sayEnd(end uint32) string {
	if end != 0 {
		return ", end"
	}
	return ""
}

// run logs the call and runs the script's line for it; a missing ".end" line
// falls back to the plain one.
func run(id uint32, name, format string, args ...uint32) uint32 {
	for _, a := range args {
		format = strings.Replace(format, "%d", itoa(a), 1)
	}
	root := rootOf[id]
	if root == 0 {
		root = id
	}
	body, ok := scripts[root][name]
	if !ok {
		body = scripts[root][strings.TrimSuffix(name, ".end")]
	}
	if !strings.HasPrefix(body, "silent") {
		log(format)
	}
	return do(id, body)
}

// do runs the statements and returns the action of the last pause or continue.
func do(id uint32, body string) (action uint32) {
	for statement := range strings.SplitSeq(body, ";") {
		words := strings.Fields(statement)
		if len(words) == 0 {
			continue
		}
		switch words[0] {
		case "env":
			log("env " + words[1] + " = " + os.Getenv(words[1]))
		case "continue":
			action = 0
		case "pause":
			action = 1
		case "action":
			action = number(words[1])
		case "need": // need MAP KEY: the rest is for streams with that header
			if !hasHeader(words[1], words[2]) {
				return action
			}
		case "refuse-if": // refuse-if KEY: the configuration, if shared data has the key
			refused = proxyGetSharedData(ptr(words[1]), size(words[1]), unsafe.Pointer(&outPtr), unsafe.Pointer(&outSize), unsafe.Pointer(&out32)) == 0
		case "silent":
		case "hold":
			held = append(held, id)
		case "count":
			calls++
			log("count " + itoa(uint32(calls)))
		case "quiet":
			quiet = true
		case "slow":
			slow[id] = true
		default:
			perform(id, words)
		}
	}
	return action
}

func itoa(n uint32) string { return strconv.FormatUint(uint64(n), 10) }

func number(s string) uint32 {
	n, err := strconv.ParseUint(s, 0, 32)
	if err != nil {
		panic(err)
	}
	return uint32(n)
}
