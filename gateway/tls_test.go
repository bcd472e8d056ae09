package gateway

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// writePair makes a certificate of 127.0.0.1 that vouches for itself.
func writePair(t *testing.T, dir string, serial int64, when time.Time) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	for name, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: cert}, keyFile: {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(name, when, when); err != nil {
			t.Fatal(err)
		}
	}
	return certFile, keyFile
}

func pool(t *testing.T, certFile string) *x509.CertPool {
	t.Helper()
	data, err := os.ReadFile(certFile)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(data)
	return roots
}

func TestTLSClientsChooseTheirProtocol(t *testing.T) {
	certFile, keyFile := writePair(t, t.TempDir(), 1, time.Now())
	up, _ := worker(t, "up", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, r.Header.Get("X-Forwarded-Proto"))
	})
	g := start(t, []string{up}, func(c *Config) { c.CertFile, c.KeyFile = certFile, keyFile })
	for major, set := range map[int]func(*http.Protocols){1: func(p *http.Protocols) { p.SetHTTP1(true) }, 2: func(p *http.Protocols) { p.SetHTTP2(true) }} {
		tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool(t, certFile)}, Protocols: new(http.Protocols)}
		set(tr.Protocols)
		defer tr.CloseIdleConnections()
		resp, err := (&http.Client{Transport: tr}).Post(g.URL()+"/held", "text/plain", strings.NewReader("dest="+up+"\n"))
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != 200 || resp.ProtoMajor != major || string(body) != "https" {
			t.Errorf("got %d %q over %s, want HTTP/%d", resp.StatusCode, body, resp.Proto, major)
		}
	}
	if _, err := tls.Dial("tcp", g.Addr(), &tls.Config{RootCAs: pool(t, certFile), MinVersion: tls.VersionTLS11, MaxVersion: tls.VersionTLS11}); err == nil {
		t.Error("TLS 1.1 is spoken")
	}
	if back := say(t, g, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); !strings.HasPrefix(back, "HTTP/1.0 400") {
		t.Errorf("plain HTTP on the TLS port: %q", back)
	}
}

func TestARenewedCertificateIsServedFromTheNextLookOn(t *testing.T) {
	dir := t.TempDir()
	now := time.Now()
	certFile, keyFile := writePair(t, dir, 1, now)
	var logged bytes.Buffer
	c, err := newCertificate(certFile, keyFile, slog.New(slog.NewTextHandler(&logged, nil)))
	if err != nil {
		t.Fatal(err)
	}
	c.now = func() time.Time { return now }
	serial := func() int64 {
		pair, err := c.get(nil)
		if err != nil {
			t.Fatal(err)
		}
		return pair.Leaf.SerialNumber.Int64()
	}
	now = c.looked
	writePair(t, dir, 2, now.Add(time.Minute))
	if got := serial(); got != 1 {
		t.Errorf("serial %d within the same second: the files are looked at for every handshake", got)
	}
	now = now.Add(lookEvery)
	if got := serial(); got != 2 {
		t.Errorf("serial %d after the renewal, want 2", got)
	}
	key, err := os.ReadFile(keyFile)
	if err != nil {
		t.Fatal(err)
	}
	writePair(t, dir, 3, now.Add(2*time.Minute))
	if err := os.WriteFile(keyFile, key, 0o600); err != nil { // half of the renewal
		t.Fatal(err)
	}
	now = now.Add(lookEvery)
	if got := serial(); got != 2 || !strings.Contains(logged.String(), "stays") {
		t.Errorf("serial %d with a key that doesn't fit, log %q", got, logged.String())
	}
	if err := c.reload(); err == nil || !strings.Contains(err.Error(), "with key") {
		t.Errorf("reload says %v of a key that doesn't fit", err)
	}
	os.Remove(certFile)
	now = now.Add(lookEvery)
	if got := serial(); got != 2 {
		t.Errorf("serial %d without a file", got)
	}
	writePair(t, dir, 4, now.Add(3*time.Minute))
	now = now.Add(lookEvery)
	if got := serial(); got != 4 {
		t.Errorf("serial %d after the whole renewal, want 4", got)
	}
}

func TestWorkersThatSpeakTLSMustProveThemselves(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile := writePair(t, dir, 1, time.Now())
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, h2 := range []bool{false, true} {
		up := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			w.Header().Set("X-Proto", r.Proto)
			_, _ = w.Write(body)
		}))
		up.EnableHTTP2 = h2
		up.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
		up.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
		up.StartTLS()
		defer up.Close()
		address := up.Listener.Addr().String()
		for _, known := range []bool{true, false} {
			g := start(t, []string{"https://" + address}, func(c *Config) {
				if known {
					c.UpstreamCAFile = certFile
				}
			})
			body := "dest=" + address + "\n"
			resp, err := http.Post(g.URL()+"/held", "text/plain", strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			got, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if known && (string(got) != body || resp.Header.Get("X-Proto") != pick(h2, "HTTP/2.0", "HTTP/1.1")) {
				t.Errorf("h2 %v: got %d %q over %q", h2, resp.StatusCode, got, resp.Header.Get("X-Proto"))
			}
			if !known && resp.StatusCode != 503 {
				t.Errorf("h2 %v: an unknown worker got the request: %d %q", h2, resp.StatusCode, got)
			}
		}
	}
}

func TestCertificateErrorsSayWhatIsWrong(t *testing.T) {
	known, _ := NewEndpoints("", "127.0.0.1:1")
	dir := t.TempDir()
	certFile, keyFile := writePair(t, dir, 1, time.Now())
	for want, edit := range map[string]func(*Config){
		"belong together":   func(c *Config) { c.CertFile = certFile },
		"nowhere.crt":       func(c *Config) { c.CertFile, c.KeyFile = filepath.Join(dir, "nowhere.crt"), keyFile },
		"with key":          func(c *Config) { c.CertFile, c.KeyFile = keyFile, keyFile },
		"no certificate in": func(c *Config) { c.UpstreamCAFile = keyFile },
		"workers' CA":       func(c *Config) { c.UpstreamCAFile = filepath.Join(dir, "nowhere.pem") },
	} {
		cfg := Config{Module: guest, Endpoints: known, Listen: "127.0.0.1:0"}
		edit(&cfg)
		if _, err := New(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error with %q, got %v", want, err)
		}
	}
}
