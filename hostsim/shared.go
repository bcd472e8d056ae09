package hostsim

type sharedStore struct{}

func (s *sharedStore) init() {}

// SharedData reads a key of a vm_id from outside (tests, debug pages). The value
// is a copy.
func (h *Host) SharedData(vmID, key string) (value []byte, cas uint32, ok bool) { return nil, 0, false }

// SetSharedData writes a key of a vm_id from outside, whatever its CAS. It needs
// a live VM of that vm_id.
func (h *Host) SetSharedData(vmID, key string, value []byte) error { return nil }

// SharedDataKeys lists the keys of a vm_id, sorted.
func (h *Host) SharedDataKeys(vmID string) []string { return nil }

// Enqueue puts a message into a registered queue from outside.
func (h *Host) Enqueue(vmID, queue string, message []byte) error { return nil }
