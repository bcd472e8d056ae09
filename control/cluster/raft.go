package cluster

import (
	"time"
	_ "unsafe" // for linkname
)

// A NATS server takes 4 to 9 s to notice that the server which led its documents has died, and the
// lease of the leader here can't be renewed for as long. Its options don't say otherwise, so the
// servers inside are told by their variables. They are read when a group of servers begins.
//
// The linker doesn't complain about a variable that NATS has no more: it is then one of this package,
// 0 at first, and servers go by whatever replaced it. found tells, and a test asks. After an upgrade
// of NATS look at what reads the three in its server/raft.go, and at the time in TestThreeReplicasElectOneLeader.

//go:linkname minElectionTimeout github.com/nats-io/nats-server/v2/server.minElectionTimeout
var minElectionTimeout time.Duration

//go:linkname maxElectionTimeout github.com/nats-io/nats-server/v2/server.maxElectionTimeout
var maxElectionTimeout time.Duration

//go:linkname heartbeatInterval github.com/nats-io/nats-server/v2/server.hbInterval
var heartbeatInterval time.Duration

// found: the variables are NATS's own.
var found bool

func init() {
	found = minElectionTimeout > 0 && maxElectionTimeout > minElectionTimeout && heartbeatInterval > 0
	minElectionTimeout, maxElectionTimeout, heartbeatInterval = 800*time.Millisecond, 1600*time.Millisecond, 200*time.Millisecond
}
