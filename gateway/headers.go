package gateway

import (
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/warmpath/warmpath/hostsim"
)

// headerMap turns net/http's request into the module's view. What only we may
// set is dropped first, so that no client can speak for the module, and so is
// what is for this hop alone: by the Connection header, or Upgrade, which without
// that asks for nothing.
func headerMap(r *http.Request) *hostsim.HeaderMap {
	path := r.RequestURI
	if !strings.HasPrefix(path, "/") { // a whole URL, as to a forward proxy
		path = r.URL.RequestURI()
	}
	h := hostsim.NewHeaderMap(":method", r.Method, ":path", path, ":authority", r.Host, ":scheme", pick(r.TLS != nil, "https", "http"))
	for key, values := range r.Header {
		if httpguts.HeaderValuesContainsToken(r.Header["Connection"], key) {
			continue
		}
		key = strings.ToLower(key)
		if key == "upgrade" || key == endpointHeader || key == maxRetriesHeader || strings.HasPrefix(key, ourPrefix) && key != excludeHeader && key != bypassHeader {
			continue
		}
		addField(h, key, values)
	}
	if r.ContentLength > 0 {
		h.Set("content-length", itoa(r.ContentLength))
	}
	return h
}

func addField(h *hostsim.HeaderMap, key string, values []string) {
	for _, v := range values {
		h.Add(key, v)
	}
}

// addFields adds all of net/http's fields.
func addFields(h *hostsim.HeaderMap, fields http.Header) *hostsim.HeaderMap {
	for key, values := range fields {
		addField(h, key, values)
	}
	return h
}

// rewrite makes the upstream request out of what the module let go; its body is
// each attempt's own.
func rewrite(pr *httputil.ProxyRequest) {
	x := exchangeOf(pr.In.Context())
	out := pr.Out
	// ReverseProxy has put these back for a client that asks for them. Only
	// WebSocket leaves HTTP here: another protocol, h2c above all, would be a way
	// around the module for whatever comes after.
	switched := strings.EqualFold(out.Header.Get("Upgrade"), "websocket")
	for key := range out.Header {
		if key == "Te" || switched && (key == "Connection" || key == "Upgrade") {
			continue
		}
		delete(out.Header, key)
	}
	out.URL = &url.URL{}
	for _, f := range x.reqHeaders.Fields() {
		switch {
		case f.Key == ":path":
			setPath(out.URL, f.Value)
		case f.Key == ":authority":
			out.Host = f.Value
		case f.Key == ":method":
			out.Method = f.Value
		case hopByHop(f.Key):
		default:
			out.Header.Add(f.Key, f.Value)
		}
	}
	if _, ok := out.Header["User-Agent"]; !ok {
		out.Header["User-Agent"] = nil // don't let net/http add its own
	}
	pr.SetXForwarded()
}

// setPath keeps the target's bytes as they came: RawPath where the decoded form
// would lose something, Opaque where net/url would still write it in its own way
// ("|" as "%7C").
func setPath(u *url.URL, target string) {
	parsed, err := url.ParseRequestURI(target)
	if err != nil {
		u.Opaque = target
		return
	}
	u.Path, u.RawPath, u.RawQuery, u.ForceQuery = parsed.Path, parsed.RawPath, parsed.RawQuery, parsed.ForceQuery
	path, _, _ := strings.Cut(target, "?")
	if u.EscapedPath() != path && !strings.HasPrefix(path, "//") { // which Opaque would take for a host
		u.Opaque = path
	}
}

// hopByHop names what must not travel on: hop-by-hop fields, framing (net/http
// sets it), Expect (already answered) and the module's notes to the proxy.
func hopByHop(key string) bool {
	switch key {
	case ":scheme", "connection", "keep-alive", "proxy-connection", "proxy-authenticate", "proxy-authorization",
		"te", "trailer", "transfer-encoding", "upgrade", "content-length", "expect", endpointHeader, maxRetriesHeader:
		return true
	}
	return strings.HasPrefix(key, ourPrefix)
}

// statusOf reads the status of a final answer. What a module makes of it may be
// none, and net/http panics at those.
func statusOf(value string) int {
	if status, err := strconv.Atoi(value); err == nil && status >= 200 && status <= 999 {
		return status
	}
	return http.StatusInternalServerError
}

// applyResponseHeaders takes over what the module changed. The body stays as it
// is, so framing stays net/http's.
func applyResponseHeaders(resp *http.Response, h *hostsim.HeaderMap) {
	clear(resp.Header)
	for _, f := range h.Fields() {
		if f.Key == ":status" {
			resp.StatusCode = statusOf(f.Value)
		} else if !strings.HasPrefix(f.Key, ":") {
			resp.Header.Add(f.Key, f.Value)
		}
	}
}

// setTrailers makes trailers hold what the module let through, except for names
// that belong to the headers (framing, routing, credentials): a receiver that
// merges the two must not be misled. Names that were announced stay, with nothing
// to say.
func setTrailers(trailers http.Header, h *hostsim.HeaderMap) {
	for key := range trailers {
		trailers[key] = nil
	}
	for _, f := range h.Fields() {
		if httpguts.ValidTrailerHeader(http.CanonicalHeaderKey(f.Key)) {
			trailers.Add(f.Key, f.Value)
		}
	}
}
