package wire

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var (
	exampleLeases = Leases{
		Nonce: 0xabcdef, Term: 3, Sequence: 12, Answers: 40, DurationMillis: 2000, FloorMillis: 30_000, Tenants: 0x01020304, Flags: LeasesLearning,
	}
	exampleLease = Lease{
		Tenant: WholeClass, Pool: 1, Class: 0, Slots: 64, Floor: 4, PrefillTokens: 100_000, TokensPerSecond: 25_000,
	}
	examplePoolLease   = Lease{Tenant: WholeClass, Pool: 1, Class: AnyClass, Slots: 80, Floor: 4, PrefillTokens: 120_000, TokensPerSecond: 30_000}
	exampleTenantLease = Lease{
		Tenant: 7, Pool: AnyPool, Class: AnyClass, Flags: NoSlots | NoTokens, Slots: 2, PrefillTokens: NoLimit, Requests: NoCredit, Tokens: 1 << 40,
	}
	exampleUsage = Usage{Nonce: 0xabcdef, Sequence: 41, Term: 3, Lease: 12, Tenants: 0x01020304}
	exampleUsed  = Used{
		Tenant: WholeClass, Pool: 1, Class: 0, InUse: 60, Waiting: 5, OldestWaitMillis: 800, PrefillTokens: 90_000, WaitingTokens: 20_000, Refused: 2,
	}
	exampleTenantUsed = Used{Tenant: 7, Pool: AnyPool, Class: AnyClass, InUse: 2, Waiting: 1, Requests: 300, Tokens: 1 << 39, Slots: 2}
	exampleLatency    = Latency{Pool: 1, Class: 0, Nonce: 0xabcdef, Counts: &[TTFTBuckets]uint32{3: 1, 60: 250}}
)

func exampleLeasesBytes(b []byte) []byte {
	return AppendLease(AppendLease(AppendLease(AppendLeases(b, &exampleLeases), &examplePoolLease), &exampleLease), &exampleTenantLease)
}

func exampleUsageBytes(b []byte) []byte {
	tenant := exampleUsed
	tenant.Tenant = 7
	pool := Used{Tenant: WholeClass, Pool: 1, Class: AnyClass, InUse: 70, Slots: 80}
	return AppendUsed(AppendUsed(AppendUsed(AppendUsed(AppendUsage(b, &exampleUsage), &pool), &exampleUsed), &tenant), &exampleTenantUsed)
}

// leasesAgain and usageAgain decode a payload and encode what they read.
func leasesAgain(b, payload []byte) ([]byte, error) {
	l, records, err := DecodeLeases(payload)
	if err != nil {
		return b, err
	}
	b = AppendLeases(b, &l)
	err = ForEachLease(records, func(l *Lease) error { b = AppendLease(b, l); return nil })
	return b, at(err, leasesFixed)
}

func usageAgain(b, payload []byte) ([]byte, error) {
	u, records, err := DecodeUsage(payload)
	if err != nil {
		return b, err
	}
	b = AppendUsage(b, &u)
	err = ForEachUsed(records, func(u *Used) error { b = AppendUsed(b, u); return nil })
	return b, at(err, usageFixed)
}

func TestLeasesAndUsageSurviveTheTrip(t *testing.T) {
	leases := guard(t, exampleLeasesBytes)
	if again, err := leasesAgain(nil, leases); err != nil || !bytes.Equal(again, leases) {
		t.Errorf("%v\n% x\n% x", err, leases, again)
	}
	usage := guard(t, exampleUsageBytes)
	if again, err := usageAgain(nil, usage); err != nil || !bytes.Equal(again, usage) {
		t.Errorf("%v\n% x\n% x", err, usage, again)
	}
	for n := range len(leases) {
		if again, err := leasesAgain(nil, leases[:n]); err == nil && !bytes.Equal(again, leases[:n]) {
			t.Errorf("%d bytes of leases read as %d", n, len(again))
		}
	}
	wantFault(t, leasesFixed, "cut short", func() error { _, err := leasesAgain(nil, leases[:leasesFixed+39]); return err })
	wantFault(t, usageFixed-1, "cut short", func() error { _, err := usageAgain(nil, usage[:usageFixed-1]); return err })
}

func TestRecordsOfNeitherAClassNorATenantAreRefused(t *testing.T) {
	for _, l := range []Lease{
		{Tenant: WholeClass, Pool: AnyPool, Class: AnyClass},
		{Tenant: WholeClass, Pool: 1, Class: 3},
		{Tenant: 7, Pool: 1, Class: 0},
		{Tenant: 7, Pool: AnyPool, Class: 0},
	} {
		wantFault(t, 0, "leases", func() error { return ForEachLease(AppendLease(nil, &l), func(*Lease) error { return nil }) })
	}
	for _, u := range []Used{
		{Tenant: 7, Pool: 1, Class: BypassClass},
		{Tenant: WholeClass, Pool: AnyPool, Class: BypassClass},
		{Tenant: WholeClass, Pool: 1, Class: 4},
		{Tenant: 7, Pool: 1, Class: AnyClass},
	} {
		wantFault(t, 0, "usage", func() error { return ForEachUsed(AppendUsed(nil, &u), func(*Used) error { return nil }) })
	}
	bypass := Used{Tenant: WholeClass, Pool: 1, Class: BypassClass, InUse: 2}
	if err := ForEachUsed(AppendUsed(nil, &bypass), func(u *Used) error {
		if *u != bypass {
			t.Errorf("%+v", u)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

func TestLatencySurvivesTheTrip(t *testing.T) {
	full := Latency{Pool: 0, Class: 2, Nonce: 5, Counts: &[TTFTBuckets]uint32{}}
	for i := range full.Counts {
		full.Counts[i] = uint32(i + 1)
	}
	empty := Latency{Class: 1, Counts: &[TTFTBuckets]uint32{}}
	want := []Latency{exampleLatency, full, empty}
	b := guard(t, func(b []byte) []byte {
		for i := range want {
			b = AppendLatency(b, &want[i])
		}
		return b
	})
	i := 0
	if err := ForEachLatency(b, func(l *Latency) error {
		if diff := cmp.Diff(&want[i], l); diff != "" {
			t.Error(diff)
		}
		i++
		return nil
	}); err != nil || i != 3 {
		t.Fatal(i, err)
	}
	walk := func(b []byte) error { return ForEachLatency(b, func(*Latency) error { return nil }) }
	one := AppendLatency(nil, &exampleLatency)
	wantFault(t, 2, "more buckets", func() error { return walk(one[:len(one)-1]) })
	one[1] = 3
	wantFault(t, 1, "no such class", func() error { return walk(one) })
	one[1], one[12] = 0, 60
	wantFault(t, 20, "don't ascend", func() error { return walk(one) })
}

func TestABucketIsAtMostAnEighthWide(t *testing.T) {
	before := -1
	for ms := uint32(0); ms < 1<<20; ms += 1 + ms/64 {
		i := TTFTBucket(ms)
		if i != before && i != before+1 && ms < 64 {
			t.Fatalf("%d ms: bucket %d after %d", ms, i, before)
		}
		end := TTFTBucketEnd(i)
		if end < ms || TTFTBucket(end) != i || i+1 < TTFTBuckets && TTFTBucket(end+1) != i+1 {
			t.Fatalf("%d ms: bucket %d ends at %d", ms, i, end)
		}
		if float64(end-ms) > float64(ms)/8+1 {
			t.Fatalf("%d ms: bucket ends at %d", ms, end)
		}
		before = i
	}
	if TTFTBucket(NoTTFT) != TTFTBuckets-1 {
		t.Error(TTFTBucket(NoTTFT))
	}
}
