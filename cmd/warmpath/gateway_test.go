package main

import (
	"strings"
	"syscall"
	"testing"
	"time"
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

func TestHalfACertificateIsRefusedBeforeAnythingStarts(t *testing.T) {
	var out, errs strings.Builder
	args := []string{"gateway", "--module", "gateway_test.go", "--upstream", "127.0.0.1:1", "--tls-cert", "tls.crt"}
	if code := run(args, &out, &errs); code != 1 || !strings.Contains(errs.String(), "belong together") {
		t.Errorf("code %d, said %q", code, errs.String())
	}
}
