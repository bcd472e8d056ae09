package dns

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/miekg/dns"

	"github.com/warmpath/warmpath/control/discovery"
)

// answer is what the name servers know.
type answer struct {
	at      []netip.AddrPort // in order
	ttl     time.Duration    // the shortest of all records
	why     string           // there is nobody, when there is nobody
	skipped []error          // SRV targets without an address
}

// resolver asks name servers over UDP, and over TCP when an answer is cut.
type resolver struct {
	cfg     *discovery.DNS
	servers []string
	names   func(name string) []string // a name with the search list applied
	udp     dns.Client
	tcp     dns.Client
}

func newResolver(cfg *discovery.DNS) (*resolver, error) {
	r := &resolver{
		cfg: cfg, udp: dns.Client{Timeout: cfg.Timeout}, tcp: dns.Client{Net: "tcp", Timeout: cfg.Timeout},
		names: func(name string) []string { return []string{dns.Fqdn(name)} },
	}
	if cfg.Server != "" {
		if _, err := netip.ParseAddrPort(cfg.Server); err != nil {
			return nil, discovery.Problem{Source: "discovery.dns", Field: "server", What: fmt.Sprintf("%q is not ip:port", cfg.Server), Remedy: "write 10.0.0.10:53, or leave it out for " + cfg.ResolvConf}
		}
		r.servers = []string{cfg.Server}
		return r, nil
	}
	conf, err := dns.ClientConfigFromFile(cfg.ResolvConf)
	if err != nil {
		return nil, fmt.Errorf("discovery.dns: read name servers: %w (name one with server)", err)
	}
	for _, server := range conf.Servers {
		r.servers = append(r.servers, net.JoinHostPort(server, conf.Port))
	}
	if len(r.servers) == 0 {
		return nil, discovery.Problem{Source: "discovery.dns", Field: "resolv_conf", What: cfg.ResolvConf + " names no name server", Remedy: "name one with server"}
	}
	r.names = conf.NameList
	return r, nil
}

// resolve asks for all that the source needs. An error means that nothing is
// known; a part of the fleet is never taken for the whole.
func (r *resolver) resolve(ctx context.Context) (answer, error) {
	if r.cfg.SRV != "" {
		return r.services(ctx)
	}
	found, err := r.addresses(ctx, r.names(r.cfg.Name))
	if err != nil {
		return answer{}, err
	}
	a := answer{ttl: found.ttl}
	for _, ip := range found.ips {
		a.at = append(a.at, netip.AddrPortFrom(ip, uint16(r.cfg.Port)))
	}
	if len(a.at) == 0 {
		a.why = found.why
	}
	return a, nil
}

// services follows SRV records to their targets' addresses.
func (r *resolver) services(ctx context.Context) (answer, error) {
	reply, err := r.first(ctx, r.names(r.cfg.SRV), dns.TypeSRV)
	if err != nil {
		return answer{}, err
	}
	records := recordsOf[*dns.SRV](reply)
	// A target that is the root says that the service is not offered.
	records = slices.DeleteFunc(records, func(s *dns.SRV) bool { return s.Target == "." })
	a := answer{ttl: lifetime(reply)}
	if len(records) == 0 {
		a.why = nobody(reply, dns.TypeSRV)
		return a, nil
	}
	slices.SortStableFunc(records, func(a, b *dns.SRV) int { return cmp.Compare(a.Priority, b.Priority) })
	targets := map[string]addresses{}
	for _, s := range records {
		if s.Priority != records[0].Priority {
			break
		}
		found, asked := targets[s.Target]
		if !asked {
			if found, err = r.addresses(ctx, []string{s.Target}); err != nil {
				return answer{}, err
			}
			targets[s.Target] = found
			a.ttl = min(a.ttl, found.ttl)
		}
		if len(found.ips) == 0 {
			a.skipped = append(a.skipped, fmt.Errorf("%s: %s", s.Target, found.why))
		}
		for _, ip := range found.ips {
			a.at = append(a.at, netip.AddrPortFrom(ip, s.Port))
		}
	}
	slices.SortFunc(a.at, netip.AddrPort.Compare)
	return a, nil
}

type addresses struct {
	ips []netip.Addr
	ttl time.Duration
	why string
}

// addresses asks for A and AAAA records. One of the two may be missing; when one
// can't be asked for nothing is known.
func (r *resolver) addresses(ctx context.Context, names []string) (addresses, error) {
	var out addresses
	for i, qtype := range []uint16{dns.TypeA, dns.TypeAAAA} {
		reply, err := r.first(ctx, names, qtype)
		if err != nil {
			return addresses{}, err
		}
		before := len(out.ips)
		for _, a := range recordsOf[*dns.A](reply) {
			if ip, ok := netip.AddrFromSlice(a.A); ok {
				out.ips = append(out.ips, ip.Unmap())
			}
		}
		for _, a := range recordsOf[*dns.AAAA](reply) {
			if ip, ok := netip.AddrFromSlice(a.AAAA); ok {
				out.ips = append(out.ips, ip)
			}
		}
		// How long a missing AAAA may be believed says nothing about the As.
		switch ttl := lifetime(reply); {
		case i == 0, before == 0 && len(out.ips) > 0:
			out.ttl = ttl
		case len(out.ips) > before:
			out.ttl = min(out.ttl, ttl)
		}
		if len(out.ips) == 0 {
			out.why = nobody(reply, qtype)
		}
	}
	slices.SortFunc(out.ips, netip.Addr.Compare)
	return out, nil
}

// first returns the first reply with records of the type among names (a name
// with its search list), or the last one without.
func (r *resolver) first(ctx context.Context, names []string, qtype uint16) (reply *dns.Msg, err error) {
	for _, name := range names {
		if reply, err = r.ask(ctx, name, qtype); err != nil {
			return nil, err
		}
		for _, rr := range reply.Answer {
			if rr.Header().Rrtype == qtype {
				return reply, nil
			}
		}
	}
	return reply, nil
}

// ask asks the servers in turn until one has an answer, be it that there is
// nothing.
func (r *resolver) ask(ctx context.Context, name string, qtype uint16) (*dns.Msg, error) {
	query := new(dns.Msg).SetQuestion(name, qtype)
	query.SetEdns0(1232, false)
	var errs []error
	for _, server := range r.servers {
		reply, _, err := r.udp.ExchangeContext(ctx, query, server)
		if err == nil && reply.Truncated {
			reply, _, err = r.tcp.ExchangeContext(ctx, query, server)
		}
		if err == nil && (reply.Rcode == dns.RcodeSuccess || reply.Rcode == dns.RcodeNameError) {
			reply.Question = query.Question // whatever the server repeats
			return reply, nil
		}
		var what string
		if err != nil {
			what = failure(err)
		} else {
			what = dns.RcodeToString[reply.Rcode]
		}
		errs = append(errs, fmt.Errorf("%s %s at %s: %s", dns.TypeToString[qtype], strings.TrimSuffix(name, "."), server, what))
	}
	return nil, errors.Join(errs...)
}

// failure is the text of err without the port that the question came from, so
// that the same failure reads the same.
func failure(err error) string {
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return "timeout"
	}
	var op *net.OpError
	if errors.As(err, &op) {
		err = op.Err
	}
	return err.Error()
}

func recordsOf[T dns.RR](reply *dns.Msg) []T {
	var out []T
	for _, rr := range reply.Answer {
		if record, ok := rr.(T); ok {
			out = append(out, record)
		}
	}
	return out
}

// lifetime is the shortest TTL of the answer (aliases count too), or that of its
// absence (RFC 2308).
func lifetime(reply *dns.Msg) time.Duration {
	ttl := uint32(1<<32 - 1)
	for _, rr := range reply.Answer {
		ttl = min(ttl, rr.Header().Ttl)
	}
	if len(reply.Answer) == 0 {
		for _, rr := range reply.Ns {
			if soa, ok := rr.(*dns.SOA); ok {
				ttl = min(ttl, soa.Hdr.Ttl, soa.Minttl)
			}
		}
	}
	return time.Duration(ttl) * time.Second
}

// nobody says why a reply has no records of the type.
func nobody(reply *dns.Msg, qtype uint16) string {
	name := strings.TrimSuffix(reply.Question[0].Name, ".")
	if reply.Rcode == dns.RcodeNameError {
		return "there is no name " + name + " (NXDOMAIN)"
	}
	return name + " has no " + dns.TypeToString[qtype] + " record"
}
