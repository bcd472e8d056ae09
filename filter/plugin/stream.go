package plugin

import (
	"github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/types"

	"github.com/warmpath/warmpath/filter/admission"
	"github.com/warmpath/warmpath/filter/body"
	"github.com/warmpath/warmpath/filter/books"
	"github.com/warmpath/warmpath/filter/usage"
	"github.com/warmpath/warmpath/shared/fingerprint"
)

// phase is how far a request has come.
type phase uint8

const (
	phasePassing  phase = iota // nothing to do with it; the zero value, so that a panic lets it flow
	phaseHeld                  // waits for the end of its body
	phaseWaiting               // waits for a slot
	phaseReleased              // routed: booked and reported
	phaseRefused               // answered by us
)

// stream is one request with its response. All state of a request lives here
// and goes with it; nothing is kept by stream id anywhere else.
type stream struct {
	types.DefaultHttpContext
	plugin *Plugin
	id     uint32

	phase    phase
	endpoint body.Endpoint
	tier     uint8
	pool     uint8
	attempts uint8
	sentCell uint8 // where sibling VMs were told of it, see fleet.NoteSent

	bodySeen  bool // the request body callback came
	measured  bool // the prompt was read and looked up
	answered  bool // response headers came
	upstream  bool // and they are an upstream's
	bodyEnded bool // the response is complete
	events    bool // the response is a stream of events
	grouped   bool // the pool has a control group
	control   bool // and this request is in it
	single    bool // not to be tried again, though there was a second worker
	anyRank   bool // the worker is one of several ranks, and the engine chooses
	noted     bool // the fleet remembers that it was sent
	keyKept   bool // authorization is the client's

	status  uint16
	named   uint16 // the worker that the endpoint header names first, 0 for none
	best    uint16
	second  uint16
	claimed uint16 // the worker of the dispatch report
	served  uint16 // who answered, 0 for unknown

	// authorization is kept for the slices of copies in the buffer mode, where the headers have gone on
	// when the prompt is known.
	authorization string

	exclude         [2]uint32
	promptTokens    uint32
	predictedTokens uint32 // what the worker need not compute, as far as is known
	heldTokens      uint32 // of them, what it is sure to name as cached
	heldBytes       int
	session         uint64
	prompt          uint64 // names the prompt, 0 for not known
	reportID        uint64
	arrived         int64 // unix ns
	firstTokenAt    int64 // unix ns, 0 for not seen

	explanation []byte // for the response, nil unless asked for

	claim  books.Claim
	ticket admission.Ticket
	usage  *usage.Reader
	kept   []fingerprint.Checkpoint
}
