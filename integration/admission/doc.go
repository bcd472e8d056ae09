// Package admission proves the limits at the workers: real processes, eight
// gateways of two VMs each, one control service, and workers that count how many
// requests they have at once. Nothing but counts is asserted.
//
//	make bench-admission
//	go test -tags admission ./integration/admission -v -requests 5000 -aborts 2000
//
// The test binary is the gateways too: it starts itself eight times (main_test.go).
// Request times are lognormal with a mean of 2 s, a tenth of that by default.
package admission
