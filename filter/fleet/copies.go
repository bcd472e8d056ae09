package fleet

import (
	"time"
	"unsafe"

	"github.com/warmpath/warmpath/filter/abi"
	"github.com/warmpath/warmpath/shared/policy"
	"github.com/warmpath/warmpath/shared/route"
	"github.com/warmpath/warmpath/shared/wire"
)

const (
	// ClaimTime is how long a claim counts that isn't renewed: a VM that dies leaves nothing for ever.
	ClaimTime = 5 * time.Second
	// maxClaims is twice what control has one gateway make at a time.
	maxClaims  = 64
	claimBytes = int(unsafe.Sizeof(claim{}))
)

// claim says that a VM of the gateway makes a copy of a hot prefix, so that the others don't. Claims
// stand in shared data, at most 64:
//
//	offset size
//	0      8    fingerprint of the prefix
//	8      8    when it was claimed or renewed, unix ns: it ends 5 s later
//	16     2    ref of the worker
//	18     6    0
type claim struct {
	fingerprint uint64
	at          int64
	ref         uint16
	_           [3]uint16
}

// claims are those of all VMs, as last read. Places of claims that have ended are used again.
type claims struct {
	list    [maxClaims]claim
	n       int
	scratch abi.Scratch
}

// setCopies takes the copies of hot prefixes that this gateway has to make. They come with the loads,
// and what didn't come is not wanted any more. A damaged payload leaves none.
func (f *Fleet) setCopies(payload []byte) error {
	for _, pool := range f.pools {
		pool.Copies = pool.Copies[:0]
	}
	if len(payload) == 0 {
		return nil
	}
	self := wire.MakerOf(f.config.Gateway)
	err := wire.ForEachCopy(payload, func(c *wire.Copy) error {
		if pool := f.poolByIndex(c.Pool); pool != nil && c.Maker == self && len(pool.Copies) < maxClaims {
			pool.Copies = append(pool.Copies, *c)
		}
		return nil
	})
	if err != nil {
		_ = f.setCopies(nil)
	}
	return err
}

// MakesCopies tells whether there are copies that are this gateway's to make.
func (f *Fleet) MakesCopies() bool {
	for _, pool := range f.pools {
		if len(pool.Copies) > 0 {
			return true
		}
	}
	return false
}

// CopyWanted tells whether a copy is this gateway's to make, as of a young table, and its worker takes
// requests.
func (f *Fleet) CopyWanted(fingerprint uint64, ref uint16) bool {
	w := f.workers.of(ref)
	if w == nil || f.Off() || !f.Fresh(f.now) {
		return false
	}
	if p := w.pool.View.Pool; p.Mode == policy.Observe || p.Policy.CopySlice <= 0 {
		return false
	}
	v := &w.pool.View.Workers[w.at]
	if v.State >= route.Draining || v.AvoidFor > f.Since(f.now)-w.pool.View.At {
		return false
	}
	for i := range w.pool.Copies {
		if c := &w.pool.Copies[i]; c.Fingerprint == fingerprint && c.Ref == ref {
			return true
		}
	}
	return false
}

// ClaimCopy claims a copy for this VM for so long, at most ClaimTime, or renews its claim. It answers
// false where another VM has it, or the claim of one that failed has not ended, or there is no room.
func (f *Fleet) ClaimCopy(fingerprint uint64, ref uint16, renew bool, during time.Duration) bool {
	s := &f.claims
	cas := uint32(0)
	for try := 0; ; try++ {
		// At first by what is known: every request that begins with the prefix comes here.
		at, known := s.find(fingerprint, ref, f.now)
		if known && !renew || at == maxClaims {
			return false
		}
		if try > 0 {
			s.list[at] = claim{fingerprint: fingerprint, at: f.now - int64(ClaimTime-during), ref: ref}
			s.n = max(s.n, at+1)
			if abi.SetSharedData(f.Keys.ClaimsKey, s.bytes()[:s.n*claimBytes], cas) == abi.OK {
				return true
			}
		}
		value, token, status := abi.SharedData(f.Keys.ClaimsKey, &s.scratch)
		switch cas = token; status {
		case abi.OK:
		case abi.NotFound:
			cas = wire.CreateCAS
		default:
			return false
		}
		s.n = copy(s.bytes(), value) / claimBytes
		if try == 2 {
			return false
		}
	}
}

// find is the place of a claim that counts, or else one for it: maxClaims for none. A claim from the
// future, by a clock that was set back, counts for no longer than any other.
func (s *claims) find(fingerprint uint64, ref uint16, now int64) (at int, known bool) {
	at = s.n
	for i := range s.list[:s.n] {
		c := &s.list[i]
		if age := now - c.at; age >= int64(ClaimTime) || age <= -int64(ClaimTime) {
			at = i
		} else if c.fingerprint == fingerprint && c.ref == ref {
			return i, true
		}
	}
	return at, false
}

func (s *claims) bytes() []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(&s.list)), unsafe.Sizeof(s.list))
}
