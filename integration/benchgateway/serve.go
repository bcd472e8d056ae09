package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/warmpath/warmpath/gateway"
)

// serveCommand makes this binary one of the two proxies.
const serveCommand = "serve"

// serve is a proxy in a process of its own: it prints its address and ends with
// its input. Without a module it is the proxy to compare with.
func serve(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet(serveCommand, flag.ContinueOnError)
	flags.SetOutput(stderr)
	module := flags.String("module", "", "wasm `file`; none: a plain reverse proxy")
	control := flags.String("control", "", "base `URL` of the control service")
	workers := flags.String("workers", "", "`list` of ip:port")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, stdin)
		cancel()
	}()
	run := servePlain
	if *module != "" {
		run = func(ctx context.Context, workers []string, out io.Writer) error {
			return serveModule(ctx, *module, *control, workers, out)
		}
	}
	if err := run(ctx, strings.Split(*workers, ","), stdout); err != nil {
		fmt.Fprintf(stderr, "benchgateway: serve: %v\n", err)
		return 1
	}
	return 0
}

func serveModule(ctx context.Context, module, control string, workers []string, out io.Writer) error {
	code, err := os.ReadFile(module)
	if err != nil {
		return err
	}
	known, err := gateway.NewEndpoints("default", workers...)
	if err != nil {
		return err
	}
	plugin, err := json.Marshal(map[string]any{
		"gateway": "bench", "hold": "headers", "control": map[string]string{"cluster": "control", "token": token},
	})
	if err != nil {
		return err
	}
	g, err := gateway.New(ctx, gateway.Config{
		Listen: "127.0.0.1:0", AdminListen: "127.0.0.1:0", Module: code, Plugin: plugin,
		Clusters: map[string][]string{"control": {control}}, Endpoints: known, DrainTimeout: time.Second,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	fmt.Fprintln(out, g.Addr(), g.AdminAddr())
	return g.Run(ctx)
}

// servePlain is what the gateway is without its module: the same server and the
// same reverse proxy over the same kind of transport, workers in turn.
func servePlain(ctx context.Context, workers []string, out io.Writer) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	var next atomic.Uint64
	proxy := &httputil.ReverseProxy{
		Rewrite: func(pr *httputil.ProxyRequest) {
			pr.Out.URL.Scheme, pr.Out.URL.Host = "http", workers[next.Add(1)%uint64(len(workers))]
			pr.Out.Host = pr.In.Host
			pr.SetXForwarded()
		},
		Transport: &http.Transport{
			MaxIdleConns: 4096, MaxIdleConnsPerHost: 1024, IdleConnTimeout: 90 * time.Second, DisableCompression: true,
			DialContext: (&net.Dialer{Timeout: 2 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
		},
		FlushInterval: 5 * time.Millisecond,
	}
	// As the gateway does. Without it net/http closes a request body as soon as
	// the answer begins, sometimes before the transport has seen its end, and cuts
	// the answer: one stream in some 200 here.
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex()
		proxy.ServeHTTP(w, r)
	})
	server := &http.Server{Handler: handler, Protocols: new(http.Protocols), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true)
	fmt.Fprintln(out, listener.Addr(), "-")
	context.AfterFunc(ctx, func() { server.Close() })
	if err := server.Serve(listener); err != http.ErrServerClosed {
		return err
	}
	return nil
}
