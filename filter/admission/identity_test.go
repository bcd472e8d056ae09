//go:build !wasm

package admission

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"

	"github.com/warmpath/warmpath/filter/abi"
	"github.com/warmpath/warmpath/shared/policy"
)

// TestTheFirstTrustedSourceThatAnswersNamesTheTenant: header, metadata, API key;
// what a client says elsewhere counts for nothing.
func TestTheFirstTrustedSourceThatAnswersNamesTheTenant(t *testing.T) {
	sum := func(s string) string {
		h := sha256.Sum256([]byte(s))
		return hex.EncodeToString(h[:])
	}
	settings, err := policy.ParseAdmission([]byte(`{
		"identity": {"tenant_header": "x-tenant", "class_header": "x-class", "metadata": ["jwt", "payload", "tenant"],
			"api_keys": {"` + sum("key of b") + `": "b"}},
		"tenants": {"a": {"index": 1, "max_class": "p0"}, "b": {"index": 2, "class": "p2", "max_class": "p1"}, "c": {"index": 3}},
		"tenant_defaults": {"max_class": "p1"},
		"bypass": {"secret_sha256": "` + sum("secret") + `"}}`))
	if err != nil {
		t.Fatal(err)
	}
	const metadata = "metadata\x00filter_metadata\x00jwt\x00payload\x00tenant"
	for _, c := range []struct {
		what    string
		headers [][2]string
		claim   string
		want    Identity
	}{
		{"nothing", nil, "", Identity{Class: 1}},
		{"a header", [][2]string{{"x-tenant", "a"}}, "", Identity{Tenant: 1, Class: 1}},
		{"the header before all", [][2]string{{"x-tenant", "a"}, {"authorization", "Bearer key of b"}}, "c", Identity{Tenant: 1, Class: 1}},
		{"an unknown name", [][2]string{{"x-tenant", "nobody"}, {"authorization", "Bearer key of b"}}, "c", Identity{Class: 1}},
		{"a claim", [][2]string{{"authorization", "Bearer key of b"}}, "c", Identity{Tenant: 3, Class: 1}},
		{"a key", [][2]string{{"authorization", "bearer key of b"}}, "", Identity{Tenant: 2, Class: 2}},
		{"a key as Anthropic's clients send it", [][2]string{{"x-api-key", "key of b"}}, "", Identity{Tenant: 2, Class: 2}},
		{"the first of two keys, as the engine reads", [][2]string{{"authorization", "Bearer key of b"}, {"authorization", "Bearer guess"}}, "", Identity{Tenant: 2, Class: 2}},
		{"the first of two", [][2]string{{"authorization", "Bearer guess"}, {"authorization", "Bearer key of b"}}, "", Identity{Class: 1}},
		{"the first of two of Anthropic's", [][2]string{{"x-api-key", "key of b"}, {"x-api-key", "guess"}}, "", Identity{Tenant: 2, Class: 2}},
		{"one of each", [][2]string{{"x-api-key", "guess"}, {"authorization", "Bearer key of b"}}, "", Identity{Tenant: 2, Class: 2}},
		{"another scheme", [][2]string{{"authorization", "Basic key of b"}}, "", Identity{Class: 1}},
		{"an unknown key", [][2]string{{"authorization", "Bearer guess"}}, "", Identity{Class: 1}},
		{"what nobody trusts", [][2]string{{"x-warmpath-tenant", "a"}, {"user", "a"}}, "", Identity{Class: 1}},
		{"a class", [][2]string{{"x-tenant", "a"}, {"x-class", "p0"}}, "", Identity{Tenant: 1}},
		{"a class above what it may have", [][2]string{{"x-tenant", "b"}, {"x-class", "P0"}}, "", Identity{Tenant: 2, Class: 1}},
		{"no class", [][2]string{{"x-tenant", "b"}, {"x-class", "p9"}}, "", Identity{Tenant: 2, Class: 2}},
		{"the secret", [][2]string{{"x-warmpath-bypass", "secret"}}, "", Identity{Class: 1, Bypass: true}},
		{"another", [][2]string{{"x-warmpath-bypass", "secret2"}}, "", Identity{Class: 1}},
	} {
		t.Run(c.what, func(t *testing.T) {
			host := abi.NewFake()
			t.Cleanup(abi.UseFake(host))
			host.Headers[abi.RequestHeaders] = append([][2]string{{":path", "/"}}, c.headers...)
			if c.claim != "" {
				host.Properties[metadata] = []byte(c.claim)
			}
			g := &Gate{}
			g.settings, g.metadata = settings, metadataOf(settings)
			var scratch abi.Scratch
			pairs, status := abi.HeaderPairs(abi.RequestHeaders, &scratch)
			if status != abi.OK {
				t.Fatal(status)
			}
			if got := g.Identify(pairs); got != c.want {
				t.Errorf("%+v, want %+v", got, c.want)
			}
		})
	}
}
