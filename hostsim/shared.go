package hostsim

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
)

// sharedStore is the process-wide state behind shared data and shared queues,
// scoped by vm_id. A space lives as long as some VM of its vm_id.
type sharedStore struct {
	mu     sync.Mutex
	spaces map[string]*sharedSpace
	queues map[uint32]*sharedQueue // by token, process-wide as in Envoy
	nextID uint32
	cas    atomic.Uint32
}

// sharedSpace is what the VMs of one vm_id share.
type sharedSpace struct {
	vmID   string
	refs   int // VMs; guarded by sharedStore.mu
	mu     sync.Mutex
	data   map[string]sharedValue
	cas    *atomic.Uint32          // the last one given; one for all spaces, as in Envoy
	queues map[string]*sharedQueue // guarded by sharedStore.mu
}

// sharedValue's bytes are never changed in place, so a reader may copy them
// after it has let go of the lock.
type sharedValue struct {
	bytes []byte
	cas   uint32
}

// sharedQueue is a named queue; the last registration gets the wake-ups.
type sharedQueue struct {
	token    uint32
	space    *sharedSpace
	root     *rootContext
	messages [][]byte
}

func (s *sharedStore) init() {
	s.spaces = map[string]*sharedSpace{}
	s.queues = map[uint32]*sharedQueue{}
}

func (s *sharedStore) acquire(vmID string) *sharedSpace {
	s.mu.Lock()
	defer s.mu.Unlock()
	space := s.spaces[vmID]
	if space == nil {
		space = &sharedSpace{vmID: vmID, cas: &s.cas, data: map[string]sharedValue{}, queues: map[string]*sharedQueue{}}
		s.spaces[vmID] = space
	}
	space.refs++
	return space
}

func (s *sharedStore) release(space *sharedSpace) {
	s.mu.Lock()
	defer s.mu.Unlock()
	space.refs--
	if space.refs > 0 {
		return
	}
	delete(s.spaces, space.vmID)
	for _, q := range space.queues {
		delete(s.queues, q.token)
	}
}

func (s *sharedStore) find(vmID string) *sharedSpace {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.spaces[vmID]
}

func (sp *sharedSpace) get(key []byte) (sharedValue, bool) {
	sp.mu.Lock()
	v, ok := sp.data[string(key)]
	sp.mu.Unlock()
	return v, ok
}

// set stores a copy of value. cas 0 always overwrites; another cas must equal
// the present one, but an absent key takes any: so a constant non-zero CAS on a
// fresh key elects exactly one writer.
func (sp *sharedSpace) set(key, value []byte, cas uint32) status {
	v := append(make([]byte, 0, len(value)), value...)
	sp.mu.Lock()
	defer sp.mu.Unlock()
	if old, ok := sp.data[string(key)]; ok && cas != 0 && cas != old.cas {
		return statusCasMismatch
	}
	next := sp.cas.Add(1)
	for next == 0 { // means "unconditional" to a writer
		next = sp.cas.Add(1)
	}
	sp.data[string(key)] = sharedValue{bytes: v, cas: next}
	return statusOK
}

func (s *sharedStore) registerQueue(root *rootContext, name string) uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	space := root.in.vm.space
	q := space.queues[name]
	if q == nil {
		s.nextID++
		q = &sharedQueue{token: s.nextID, space: space}
		space.queues[name] = q
		s.queues[q.token] = q
	}
	q.root = root
	return q.token
}

func (s *sharedStore) resolveQueue(vmID, name string) (token uint32, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	space := s.spaces[vmID]
	if space == nil {
		return 0, false
	}
	q := space.queues[name]
	if q == nil {
		return 0, false
	}
	return q.token, true
}

// enqueue appends a copy of message and posts a wake-up to the registering VM.
// Towards a VM that is dead it still succeeds: the messages wait for whoever
// registers the name next.
func (s *sharedStore) enqueue(token uint32, message []byte) status {
	m := append(make([]byte, 0, len(message)), message...)
	s.mu.Lock()
	q := s.queues[token]
	if q == nil {
		s.mu.Unlock()
		return statusNotFound
	}
	q.messages = append(q.messages, m)
	root := q.root
	s.mu.Unlock()
	root.in.vm.Post(func() { root.onQueueReady(token) })
	return statusOK
}

func (s *sharedStore) dequeue(token uint32) ([]byte, status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queues[token]
	if q == nil {
		return nil, statusNotFound
	}
	if len(q.messages) == 0 {
		return nil, statusEmpty
	}
	m := q.messages[0]
	q.messages[0] = nil
	q.messages = q.messages[1:]
	return m, statusOK
}

// SharedData reads a key of a vm_id from outside (tests, debug pages). The value
// is a copy.
func (h *Host) SharedData(vmID, key string) (value []byte, cas uint32, ok bool) {
	space := h.shared.find(vmID)
	if space == nil {
		return nil, 0, false
	}
	v, ok := space.get([]byte(key))
	return slices.Clone(v.bytes), v.cas, ok
}

// SetSharedData writes a key of a vm_id from outside, whatever its CAS. It needs
// a live VM of that vm_id.
func (h *Host) SetSharedData(vmID, key string, value []byte) error {
	space := h.shared.find(vmID)
	if space == nil {
		return fmt.Errorf("set shared data %q: no live VM has vm_id %q", key, vmID)
	}
	space.set([]byte(key), value, 0)
	return nil
}

// SharedDataKeys lists the keys of a vm_id, sorted.
func (h *Host) SharedDataKeys(vmID string) []string {
	space := h.shared.find(vmID)
	if space == nil {
		return nil
	}
	space.mu.Lock()
	keys := make([]string, 0, len(space.data))
	for k := range space.data {
		keys = append(keys, k)
	}
	space.mu.Unlock()
	slices.Sort(keys)
	return keys
}

// Enqueue puts a message into a registered queue from outside.
func (h *Host) Enqueue(vmID, queue string, message []byte) error {
	token, ok := h.shared.resolveQueue(vmID, queue)
	if !ok {
		return fmt.Errorf("enqueue: vm_id %q has no queue %q (it is registered by proxy_register_shared_queue)", vmID, queue)
	}
	if st := h.shared.enqueue(token, message); st != statusOK {
		return fmt.Errorf("enqueue to %q of vm_id %q: %s", queue, vmID, st)
	}
	return nil
}
