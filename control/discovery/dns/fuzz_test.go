package dns

import (
	"testing"
	"time"

	"github.com/miekg/dns"
)

// FuzzReply: whatever a name server answers, how long it lasts has a bound and
// there is a word for what is missing.
func FuzzReply(f *testing.F) {
	for _, text := range []string{"w.llm. 5 IN A 10.0.0.1", "w.llm. 5 IN AAAA fd00::1", "_http._tcp.w.llm. 5 IN SRV 0 10 8000 a.w.llm."} {
		rr, err := dns.NewRR(text)
		if err != nil {
			f.Fatal(err)
		}
		reply := new(dns.Msg).SetQuestion(rr.Header().Name, rr.Header().Rrtype)
		reply.Answer = append(reply.Answer, rr)
		wire, err := reply.Pack()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(wire)
	}
	f.Fuzz(func(t *testing.T, wire []byte) {
		var reply dns.Msg
		if reply.Unpack(wire) != nil {
			return
		}
		reply.Question = []dns.Question{{Name: "w.llm.", Qtype: dns.TypeA}} // as ask does
		if ttl := lifetime(&reply); ttl < 0 || ttl > (1<<32)*time.Second {
			t.Fatal(ttl)
		}
		for _, s := range recordsOf[*dns.SRV](&reply) {
			if s == nil {
				t.Fatal("a record that is none")
			}
		}
		_, _ = recordsOf[*dns.A](&reply), recordsOf[*dns.AAAA](&reply)
		if nobody(&reply, dns.TypeA) == "" {
			t.Fatal("no word")
		}
	})
}
