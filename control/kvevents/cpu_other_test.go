//go:build !unix

package kvevents

import "time"

// cpuTime is not known here.
func cpuTime() time.Duration { return 0 }
