package main

import (
	"bytes"
	"encoding/json"
	"io"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestARestartedServiceKnowsWhatWasStoredBeforeTheReplayBegins(t *testing.T) {
	var out bytes.Buffer
	// The prefix lies 1,000 batches before what the engine can replay.
	if code := run([]string{"-workers", "2", "-blocks", "1200", "-batches", "11000", "-missed", "50"}, &out, io.Discard); code != 0 {
		t.Fatal("exit code", code)
	}
	var f figures
	if err := json.Unmarshal(out.Bytes(), &f); err != nil {
		t.Fatal(err)
	}
	if f.Entries < 500 || f.PrefixEntries != 14 {
		t.Errorf("%d entries, %d of the prefixes: too few to tell anything", f.Entries, f.PrefixEntries)
	}
	if f.UsableIn5 < 0.99 || f.PrefixUsable != 1 || f.Untrue != 0 || f.Restart99Seconds == 0 || f.Restart99Seconds > 5 {
		t.Errorf("%s", out.Bytes())
	}
}

func TestOptionsThatMakeNoSenseAreRefused(t *testing.T) {
	for _, args := range [][]string{{"-workers", "0"}, {"-blocks", "10"}, {"-missed", "10000"}, {"-nonsense"}} {
		if code := run(args, io.Discard, io.Discard); code != 2 {
			t.Errorf("%v: exit code %d", args, code)
		}
	}
}
