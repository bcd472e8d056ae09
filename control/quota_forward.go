package control

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/warmpath/warmpath/control/admission"
	"github.com/warmpath/warmpath/control/api"
)

// A gateway talks to any replica. What it reports of its admission goes on to the
// leader, whose answer is part of the ack. Without a leader there is none: the
// gateway goes on with its lease to the end, and then with its floor.
//
// The question, little endian; the answer is a byte, then sections of an ack (0) or
// what is wrong (1, 2):
//
//	offset size
//	0      2    g, length of the gateway's name
//	2      4    u, length of the USAGE payload, 0 none
//	6      4    length of the LATENCY payload, 0 none
//	10     g    name
//	10+g   u    USAGE, then LATENCY
const (
	forwardFixed = 10
	// forwardTime is how long a gateway's batch waits for the leader.
	forwardTime = 400 * time.Millisecond

	answerSections = 0
	answerFault    = 1 // of the question
	answerNoLeader = 2
)

var errNoLeader = errors.New("no replica leads")

func ledgerSubject(nonce uint64) string { return "ledger." + strconv.FormatUint(nonce, 16) }
func quotaSubject(nonce uint64) string  { return "quota." + strconv.FormatUint(nonce, 16) }

// admit takes a gateway's usage and latencies over, here or at the leader, and
// appends what the ack says to them.
func (s *Service) admit(gateway string, usage, latency []byte, now time.Time, ack []byte) ([]byte, error) {
	if s.cluster == nil {
		return s.admission.Batch(gateway, usage, latency, now, ack)
	}
	if s.policy.Load().settings == nil || len(usage) == 0 && len(latency) == 0 {
		return ack, nil
	}
	if s.cluster.Leads() {
		return s.grant(gateway, usage, latency, now, ack)
	}
	sections, err := s.askLeader(ledgerSubject, appendQuestion(nil, gateway, usage, latency))
	switch {
	case err != nil || len(sections) == 0 || sections[0] == answerNoLeader:
		// Not the gateway's fault. It is counted, and the log says who leads.
		s.quota.unanswered.Add(1)
		return ack, nil
	case sections[0] == answerFault:
		return ack, fmt.Errorf("the leader: %s", sections[1:])
	}
	s.quota.forwarded.Add(1)
	return append(ack, sections[1:]...), nil
}

// grant answers as the leader. A lease that was made while the leader's own ended
// is not given: the next leader may have begun.
func (s *Service) grant(gateway string, usage, latency []byte, now time.Time, ack []byte) ([]byte, error) {
	before := len(ack)
	answered, err := s.admission.Batch(gateway, usage, latency, now, ack)
	switch {
	case errors.Is(err, admission.ErrNotYet):
		return ack[:before], nil // with its next batch
	case err != nil:
		return ack[:before], err
	case !s.cluster.Leads():
		return ack[:before], nil
	}
	return answered, nil
}

// askLeader sends a question to whoever leads.
func (s *Service) askLeader(subject func(nonce uint64) string, question []byte) ([]byte, error) {
	leader, _, ok := s.cluster.Leader()
	if !ok || leader.Nonce == s.cluster.Self().Nonce {
		return nil, errNoLeader
	}
	ctx, cancel := context.WithTimeout(context.Background(), forwardTime)
	defer cancel()
	return s.cluster.Request(ctx, subject(leader.Nonce), question)
}

// answerOthers answers the other replicas' questions until ctx ends.
func (s *Service) answerOthers(ctx context.Context) error {
	self := s.cluster.Self().Nonce
	stop, err := s.cluster.Serve(ledgerSubject(self), s.answerUsage)
	if err != nil {
		return err
	}
	defer stop()
	stopQuota, err := s.cluster.Serve(quotaSubject(self), s.answerQuota)
	if err != nil {
		return err
	}
	defer stopQuota()
	<-ctx.Done()
	return nil
}

func (s *Service) answerUsage(question []byte) []byte {
	gateway, usage, latency, err := decodeQuestion(question)
	if err != nil {
		return append([]byte{answerFault}, err.Error()...)
	}
	if !s.cluster.Leads() {
		return []byte{answerNoLeader}
	}
	out, err := s.grant(gateway, usage, latency, time.Now(), []byte{answerSections})
	if err != nil {
		return append([]byte{answerFault}, err.Error()...)
	}
	return out
}

func appendQuestion(b []byte, gateway string, usage, latency []byte) []byte {
	b = binary.LittleEndian.AppendUint16(b, uint16(min(len(gateway), 65535)))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(usage)))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(latency)))
	b = append(b, gateway[:min(len(gateway), 65535)]...)
	return append(append(b, usage...), latency...)
}

func decodeQuestion(b []byte) (gateway string, usage, latency []byte, err error) {
	if len(b) < forwardFixed {
		return "", nil, nil, errors.New("question: cut short")
	}
	g, u, l := uint64(binary.LittleEndian.Uint16(b)), uint64(binary.LittleEndian.Uint32(b[2:])), uint64(binary.LittleEndian.Uint32(b[6:]))
	b = b[forwardFixed:]
	if uint64(len(b)) != g+u+l {
		return "", nil, nil, fmt.Errorf("question: %d bytes, announced were %d", len(b), g+u+l)
	}
	return string(b[:g]), b[g : g+u], b[g+u:], nil
}

// What another replica asks the leader about admission begins with one of these.
const (
	askQuota   = 0
	askHistory = 1
	askEffect  = 2 // then the settings
)

// answerQuota is GET /v1/quota, and what a dry run says, for a replica that doesn't lead.
func (s *Service) answerQuota(question []byte) []byte {
	var answer any
	if len(question) > 0 && question[0] == askEffect {
		answer = s.ownEffect(question[1:])
	} else {
		answer = s.ownQuota(len(question) > 0 && question[0] == askHistory)
	}
	out, err := json.Marshal(answer)
	if err != nil {
		s.log.Error("quota not written", "err", err)
		return nil
	}
	return out
}

// Quota is what GET /v1/quota answers: the leader's view.
func (s *Service) Quota(history bool) api.Quota {
	if s.cluster == nil || s.cluster.Leads() || s.policy.Load().settings == nil {
		return s.ownQuota(history)
	}
	out := s.ownQuota(false)
	answer, err := s.askLeader(quotaSubject, []byte{flag(history)})
	if err == nil {
		var of api.Quota
		if err = json.Unmarshal(answer, &of); err == nil {
			return of
		}
	}
	out.Enabled, out.Problem = true, "no answer from the leader: "+err.Error()
	return out
}
