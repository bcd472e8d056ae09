package main

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/warmpath/warmpath/filter/config"
)

func TestAHangupIsHeardUntilNobodyListens(t *testing.T) {
	heard := make(chan struct{}, 1)
	stop := onHangup(func() { heard <- struct{}{} })
	defer stop()
	if err := syscall.Kill(syscall.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	select {
	case <-heard:
	case <-time.After(5 * time.Second):
		t.Fatal("SIGHUP was not heard")
	}
}

func TestExplainReachesTheModule(t *testing.T) {
	for _, explain := range []bool{false, true} {
		doc, err := pluginConfig("g", "d", "", explain)
		if err != nil {
			t.Fatal(err)
		}
		if c, err := config.Parse(doc); err != nil || c.Explain != explain || c.Deployment != "d" {
			t.Errorf("%s: %+v, %v", doc, c, err)
		}
	}
}

func TestHalfACertificateIsRefusedBeforeAnythingStarts(t *testing.T) {
	var out, errs strings.Builder
	args := []string{"gateway", "--module", "gateway_test.go", "--upstream", "127.0.0.1:1", "--tls-cert", "tls.crt"}
	if code := run(args, &out, &errs); code != 1 || !strings.Contains(errs.String(), "belong together") {
		t.Errorf("code %d, said %q", code, errs.String())
	}
}
