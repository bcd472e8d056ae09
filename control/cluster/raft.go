package cluster

import (
	"time"
	_ "unsafe" // for linkname
)

// A NATS server takes 4 to 9 s to notice that the server which led its documents has died, and the
// lease of the leader here can't be renewed for as long. Its options don't say otherwise, so the
// servers inside are told by their variables. They are read when a group of servers begins.

//go:linkname minElectionTimeout github.com/nats-io/nats-server/v2/server.minElectionTimeout
var minElectionTimeout time.Duration

//go:linkname maxElectionTimeout github.com/nats-io/nats-server/v2/server.maxElectionTimeout
var maxElectionTimeout time.Duration

//go:linkname heartbeatInterval github.com/nats-io/nats-server/v2/server.hbInterval
var heartbeatInterval time.Duration

func init() {
	minElectionTimeout, maxElectionTimeout, heartbeatInterval = 800*time.Millisecond, 1600*time.Millisecond, 200*time.Millisecond
}
