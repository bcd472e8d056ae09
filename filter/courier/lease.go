package courier

import (
	"time"

	"github.com/warmpath/warmpath/filter/abi"
	"github.com/warmpath/warmpath/filter/metrics"
	"github.com/warmpath/warmpath/shared/wire"
)

const (
	// leaseTime is how long a courier may be silent before another takes over.
	leaseTime = 2 * time.Second
	// renewBefore is the time left at which the lease is renewed.
	renewBefore = time.Second
	createCAS   = wire.CreateCAS
)

// leaseState is what keep found.
type leaseState uint8

const (
	leaseNone  leaseState = iota // another VM is the courier
	leaseKept                    // this VM was and is
	leaseTaken                   // this VM is from now on
)

// lease is the claim to be the gateway's courier. The record in shared data
// names the VM by slot and boot nonce, and an epoch that grows with each
// take-over.
type lease struct {
	courier *Courier
	held    bool
	epoch   uint64
	expiry  int64
	looked  bool   // in this callback
	clock   int64  // when valid was asked last
	wrote   bool   // a value was replaced since
	holder  uint64 // nonce of the VM that has it, as last seen; 0 nobody
	scratch abi.Scratch
	value   []byte
}

// keep renews the lease, or takes it when nobody holds it.
func (l *lease) keep(now int64) leaseState {
	c := l.courier
	slot, ok := c.fleet.Slot()
	if !ok {
		if l.held {
			c.lose()
		}
		return leaseNone
	}
	key := c.fleet.Keys.CourierKey
	value, cas, status := abi.SharedData(key, &l.scratch)
	if status != abi.OK && status != abi.NotFound {
		return leaseNone
	}
	var current wire.Courier
	if status == abi.NotFound {
		cas = createCAS
	} else {
		record, err := wire.DecodeCourier(value)
		if err != nil {
			c.metrics.Inc(metrics.BadData, metrics.BadLease)
		}
		current = record // zero for a damaged one: expired
	}
	l.holder = current.Nonce
	mine := current.Nonce == c.fleet.Nonce && current.Slot == slot
	switch {
	case l.held && !(mine && current.Epoch == l.epoch):
		c.lose()
		if current.ExpiryUnixNanos > now {
			return leaseNone
		}
	case l.held && current.ExpiryUnixNanos-now > int64(renewBefore):
		return leaseKept
	case !l.held && !mine && current.ExpiryUnixNanos > now && current.ExpiryUnixNanos-now <= int64(2*leaseTime):
		return leaseNone
	}
	took := !l.held
	next := wire.Courier{Slot: slot, Nonce: c.fleet.Nonce, Epoch: current.Epoch, ExpiryUnixNanos: now + int64(leaseTime)}
	if took {
		next.Epoch++
	}
	l.value = wire.AppendCourier(l.value[:0], &next)
	if abi.SetSharedData(key, l.value, cas) != abi.OK {
		if l.held {
			c.lose()
		}
		return leaseNone
	}
	l.held, l.epoch, l.expiry, l.holder = true, next.Epoch, next.ExpiryUnixNanos, next.Nonce
	if !took {
		return leaseKept
	}
	if status == abi.OK {
		c.metrics.Inc(metrics.CourierTakeovers, 0)
	}
	return leaseTaken
}

// resign ends the lease now.
func (l *lease) resign() bool {
	c := l.courier
	value, cas, status := abi.SharedData(c.fleet.Keys.CourierKey, &l.scratch)
	if status != abi.OK {
		return false
	}
	record, err := wire.DecodeCourier(value)
	if err != nil || record.Nonce != c.fleet.Nonce || record.Epoch != l.epoch {
		return false
	}
	record.ExpiryUnixNanos = 0
	l.value = wire.AppendCourier(l.value[:0], &record)
	return abi.SetSharedData(c.fleet.Keys.CourierKey, l.value, cas) == abi.OK
}

// late tells, at a time after the last write, that the lease had ended meanwhile: the write may
// have come too late, and is told of.
func (l *lease) late(now int64) bool {
	late := l.wrote && now > l.expiry
	l.wrote = false
	if late {
		l.courier.tellLate(now)
	}
	return late
}

// lookLeft is how much of a lease must be left for one look at it to serve all
// writes of a callback: nobody takes one that hasn't expired, all VMs share one
// clock, and each write replaces only the value that was just read.
const lookLeft = leaseTime / 4

// valid tells whether this VM holds the lease still, in this epoch.
func (l *lease) valid() bool {
	c := l.courier
	l.clock = abi.Now()
	left := l.expiry - l.clock
	switch {
	case l.late(l.clock) || !l.held || left <= 0:
		return false
	case l.looked && left > int64(lookLeft):
		return true
	}
	value, _, status := abi.SharedData(c.fleet.Keys.CourierKey, &l.scratch)
	if status != abi.OK {
		return false
	}
	record, err := wire.DecodeCourier(value)
	if err != nil || record.Nonce != c.fleet.Nonce || record.Epoch != l.epoch {
		return false
	}
	l.looked = true
	return true
}
