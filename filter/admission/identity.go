package admission

import (
	"strings"
	"unsafe"

	"github.com/warmpath/warmpath/filter/abi"
	"github.com/warmpath/warmpath/shared/policy"
)

// noTenant is the number of no tenant.
const noTenant = 0xFFFF

// bypassHeader has the bypass's secret.
const bypassHeader = "x-warmpath-bypass"

// metadataPath is where the proxy has its dynamic metadata.
const metadataPath = "metadata\x00filter_metadata\x00"

// Identity is whose a request is.
type Identity struct {
	Tenant uint16
	Class  uint8
	Bypass bool
}

// Identify finds out whose a request is, by the sources that the settings trust:
// a header of the layer in front, the proxy's metadata, the API key; the first
// that answers counts, and whoever is unknown to it is the default tenant. A
// class above what the tenant may have is lowered to that.
func (g *Gate) Identify(headers abi.Pairs) Identity {
	a := g.settings
	var tenant, class, key, apiKey, secret []byte
	authorized := false
	for name, value, ok := headers.Next(); ok; name, value, ok = headers.Next() {
		switch n := unsafe.String(unsafe.SliceData(name), len(name)); {
		case n == a.TenantHeader:
			tenant = value
		case n == a.ClassHeader:
			class = value
		case n == bypassHeader:
			secret = value
		case n == "authorization" && len(a.Keys) > 0:
			// Of several the first counts, as at the engine: what follows must not
			// make the owner of a key somebody else.
			if !authorized {
				key, _ = cutBearer(value)
				authorized = true
			}
		case n == "x-api-key" && len(a.Keys) > 0 && apiKey == nil:
			apiKey = value
		}
	}
	if key == nil {
		key = apiKey
	}
	var who Identity
	if len(tenant) == 0 && len(a.Metadata) > 0 {
		tenant, _ = abi.Property(g.metadata, &g.scratch)
	}
	switch {
	case len(tenant) > 0:
		who.Tenant, _ = a.TenantIndex(tenant)
	case key != nil:
		who.Tenant = a.Keys[sum256(key)]
	}
	limits := g.limitsOf(who.Tenant)
	who.Class = limits.Class
	if len(class) > 0 {
		if c, ok := policy.ParseClass(unsafe.String(unsafe.SliceData(class), len(class))); ok {
			who.Class = max(c, limits.MaxClass)
		}
	}
	who.Bypass = secret != nil && a.BypassSecret != nil && sameSum(sum256(secret), a.BypassSecret)
	return who
}

// metadataOf is the path of the property that has the tenant's name.
func metadataOf(a *policy.Admission) string {
	return metadataPath + strings.Join(a.Metadata, "\x00")
}

// cutBearer takes the token out of an authorization header.
func cutBearer(value []byte) ([]byte, bool) {
	const scheme = "bearer "
	if len(value) <= len(scheme) {
		return nil, false
	}
	for i := range len(scheme) {
		if value[i]|0x20 != scheme[i] {
			return nil, false
		}
	}
	return value[len(scheme):], true
}

// sameSum compares in a time that tells nothing.
func sameSum(a [32]byte, b *[32]byte) bool {
	var difference byte
	for i := range a {
		difference |= a[i] ^ b[i]
	}
	return difference == 0
}
