package control

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers/legacy"

	"github.com/warmpath/warmpath/docs"
	"github.com/warmpath/warmpath/shared/wire"
)

func init() {
	openapi3filter.RegisterBodyDecoder("application/yaml", openapi3filter.YamlBodyDecoder)
}

// TestEveryAnswerIsAsTheOpenAPIDocumentSays runs real requests, good and bad,
// against a live service and holds both directions against the document.
func TestEveryAnswerIsAsTheOpenAPIDocumentSays(t *testing.T) {
	doc, err := openapi3.NewLoader().LoadFromData(docs.OpenAPI)
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.Validate(t.Context()); err != nil {
		t.Fatal(err)
	}
	doc.Servers = nil
	router, err := legacy.NewRouter(doc)
	if err != nil {
		t.Fatal(err)
	}
	covered := map[string]bool{}
	file, hash := wpv(t, t.TempDir(), "a.wpv", "el")
	bubble(t, func(t *testing.T) {
		b := start(t, newEngines(alpha, beta), Config{Workers: specs(alpha, beta), Token: "secret", HeartbeatToken: "beats"})
		try := func(name, method, path, contentType string, body []byte, token string, want int) {
			t.Helper()
			req := httptest.NewRequest(method, "http://control"+path, bytes.NewReader(body))
			if contentType != "" {
				req.Header.Set("Content-Type", contentType)
			}
			if token != "" {
				req.Header.Set("Authorization", "Bearer "+token)
			}
			rec := httptest.NewRecorder()
			b.s.Handler().ServeHTTP(rec, req)
			if rec.Code != want {
				t.Errorf("%s: %d, want %d: %s", name, rec.Code, want, rec.Body)
				return
			}
			route, params, err := router.FindRoute(req)
			if err != nil {
				if want != http.StatusNotFound && want != http.StatusMethodNotAllowed {
					t.Errorf("%s: not in the document: %v", name, err)
				}
				return
			}
			covered[fmt.Sprintf("%s %s %d", method, route.Path, want)] = true
			in := &openapi3filter.RequestValidationInput{
				Request: req, PathParams: params, Route: route,
				Options: &openapi3filter.Options{AuthenticationFunc: func(context.Context, *openapi3filter.AuthenticationInput) error { return nil }},
			}
			req.Body = io.NopCloser(bytes.NewReader(body))
			if err := openapi3filter.ValidateRequest(t.Context(), in); (err == nil) != (want < 400 || want == 401 || want == 404 || want == 409 || want == 503) {
				t.Errorf("%s: the document says of the request: %v", name, err)
			}
			out := &openapi3filter.ResponseValidationInput{RequestValidationInput: in, Status: rec.Code, Header: rec.Header(), Options: &openapi3filter.Options{IncludeResponseStatus: true}}
			out.SetBodyBytes(rec.Body.Bytes())
			if err := openapi3filter.ValidateResponse(t.Context(), out); err != nil {
				t.Errorf("%s: the document says of the answer: %v", name, err)
			}
		}
		const token, octets, json, yaml = "secret", "application/octet-stream", "application/json", "application/yaml"
		<-b.s.Ready()
		g := b.gateway("g")
		g.catchUp()
		g.sequence = 1
		_, record := g.dispatch(g.refOf(alpha), prompt("system"))
		epoch, version, _ := b.s.Table().Position()

		try("health", "GET", "/healthz", "", nil, "", 200)
		try("ready", "GET", "/readyz", "", nil, "", 200)
		for _, path := range []string{"/openapi.yaml", "/metrics", "/v1/table", "/v1/status", "/v1/workers", "/v1/policy"} {
			try("no token "+path, "GET", path, "", nil, "", 401)
			try("other token "+path, "GET", path, "", nil, "secrex", 401)
		}
		for _, path := range []string{"/openapi.yaml", "/metrics", "/v1/status", "/v1/workers", "/v1/policy"} {
			try("get "+path, "GET", path, "", nil, token, 200)
		}
		try("resync", "GET", "/v1/table?epoch=0&version=0&wait_ms=0", "", nil, token, 200)
		try("nothing new", "GET", fmt.Sprintf("/v1/table?epoch=%d&version=%d&wait_ms=0", epoch, version), "", nil, token, 204)
		try("bad epoch", "GET", "/v1/table?epoch=-1", "", nil, token, 400)
		try("pages", "GET", fmt.Sprintf("/v1/table/pages?epoch=%d&bits=10&range=0", epoch), "", nil, token, 200)
		try("pages of another epoch", "GET", "/v1/table/pages?epoch=1&bits=10&range=0", "", nil, token, 409)
		compare := wire.AppendHeader(nil, &wire.Header{Kind: wire.Pages, Wire: wire.Version})
		compare = wire.AppendSection(compare, wire.SectionDigests, wire.AppendDigest(nil, 7))
		try("pages that differ", "POST", fmt.Sprintf("/v1/table/pages?epoch=%d&bits=10&range=0", epoch), octets, compare, token, 200)
		try("pages that differ, of another epoch", "POST", "/v1/table/pages?epoch=1&bits=10&range=0", octets, compare, token, 409)
		try("batch", "POST", "/v1/batch", octets, g.frame(nil, record), token, 200)
		time.Sleep(100 * time.Millisecond) // in the table
		for _, path := range []string{"/v1/table/entries", "/v1/table/top"} {
			try("no token "+path, "GET", path, "", nil, "", 401)
			try("get "+path, "GET", path, "", nil, token, 200)
		}
		try("some entries", "GET", fmt.Sprintf("/v1/table/entries?epoch=%d&page=1000&pages=8", epoch), "", nil, token, 200)
		try("entries of another epoch", "GET", "/v1/table/entries?epoch=1", "", nil, token, 409)
		try("too many pages", "GET", "/v1/table/entries?pages=65", "", nil, token, 400)
		try("top of a pool", "GET", "/v1/table/top?pool=default&limit=3", "", nil, token, 200)
		try("top of no pool", "GET", "/v1/table/top?pool=nope", "", nil, token, 404)
		try("top of none", "GET", "/v1/table/top?limit=0", "", nil, token, 400)
		beat := func(fields string) []byte { return []byte(`{"worker":"` + alpha + `",` + fields + `}`) }
		try("heartbeat", "POST", "/v1/heartbeat", json, beat(`"sequence":1,"started_ms":1000000,"state":"serving","load":{"age_ms":12.5,"running":3,"waiting":1,"kv_share":0.5,"utilization":0.1},"engine":{"max_running":8,"queue_limit":4,"capacity_tokens":1000,"block_tokens":16,"prefix_caching":true},"cache":{"cleared":true,"paths":[[{"fingerprint":"00000000000000aA","units":4}]],"removed":["00000000000000bb"]},"eviction":{"in_ms":10,"for_ms":20,"share":0.5,"reason":"test"}`), token, 200)
		try("heartbeat with tokens", "POST", "/v1/heartbeat", json, beat(`"sequence":2,"cache":{"complete":true,"prefixes":[{"model":"m","cache_salt":"s","tokens":[1,2,3]}]}`), token, 200)
		try("status with heartbeats", "GET", "/v1/status", "", nil, token, 200)
		try("repeated heartbeat", "POST", "/v1/heartbeat", json, beat(`"sequence":2`), token, 200)
		try("heartbeat of before", "POST", "/v1/heartbeat", json, beat(`"sequence":3,"started_ms":1000`), token, 409)
		try("heartbeat of nobody", "POST", "/v1/heartbeat", json, []byte(`{"worker":"10.9.9.9:1","sequence":1}`), token, 404)
		try("heartbeat without sequence", "POST", "/v1/heartbeat", json, []byte(`{"worker":"`+alpha+`"}`), token, 400)
		try("heartbeat of unknown key", "POST", "/v1/heartbeat", json, beat(`"sequence":4,"loads":{}`), token, 400)
		try("heartbeat over 1", "POST", "/v1/heartbeat", json, beat(`"sequence":4,"load":{"kv_share":50}`), token, 400)
		try("heartbeat as text", "POST", "/v1/heartbeat", "text/plain", beat(`"sequence":4`), token, 415)
		try("heartbeat with its own token", "POST", "/v1/heartbeat", json, beat(`"sequence":5`), "beats", 200)
		try("anything else with it", "GET", "/v1/status", "", nil, "beats", 401)
		try("heartbeat without token", "POST", "/v1/heartbeat", json, beat(`"sequence":4`), "", 401)
		try("batch without token", "POST", "/v1/batch", octets, g.frame(nil, record), "", 401)
		try("off", "POST", "/v1/mode", json, []byte(`{"off":true}`), token, 200)
		try("on", "POST", "/v1/mode", json, []byte(`{"off":false}`), token, 200)
		try("observe", "POST", "/v1/mode", json, []byte(`{"pool":"default","mode":"observe"}`), token, 200)
		try("no such pool", "POST", "/v1/mode", json, []byte(`{"pool":"nope","mode":"observe"}`), token, 404)
		try("no such mode", "POST", "/v1/mode", json, []byte(`{"pool":"default","mode":"steer"}`), token, 400)
		try("neither", "POST", "/v1/mode", json, []byte(`{}`), token, 400)
		try("both", "POST", "/v1/mode", json, []byte(`{"off":true,"pool":"default","mode":"route"}`), token, 400)
		try("unknown key", "POST", "/v1/mode", json, []byte(`{"of":true}`), token, 400)
		try("mode as text", "POST", "/v1/mode", "text/plain", []byte(`{"off":true}`), token, 415)
		for _, path := range []string{"/v1/quota", "/v1/quota?history=true"} {
			try("no token "+path, "GET", path, "", nil, "", 401)
			try("before there is a quota "+path, "GET", path, "", nil, token, 200)
		}
		try("dry quota", "PUT", "/v1/quota?dry_run=true", json, []byte(`{"tenants":{"acme":{"concurrency":3}}}`), token, 200)
		try("quota", "PUT", "/v1/quota", yaml, []byte("tenants: {acme: {concurrency: 3}}\n"), token, 200)
		try("quota as text", "PUT", "/v1/quota", "text/plain", []byte("{}"), token, 415)
		try("quota without token", "PUT", "/v1/quota", yaml, []byte("{}"), "", 401)
		try("batch with usage", "POST", "/v1/batch", octets, g.frame(nil, record), token, 200)
		try("enforce", "POST", "/v1/mode", json, []byte(`{"pool":"default","mode":"enforce"}`), token, 200)
		time.Sleep(1200 * time.Millisecond) // a step of the controller
		for _, path := range []string{"/v1/quota", "/v1/quota?history=true", "/v1/policy", "/metrics"} {
			try("with a quota "+path, "GET", path, "", nil, token, 200)
		}
		try("bad flag", "GET", "/v1/quota?history=maybe", "", nil, token, 400)
		try("drain", "POST", "/v1/workers/drain", json, []byte(`{"address":"`+beta+`"}`), token, 200)
		try("undrain", "POST", "/v1/workers/drain", json, []byte(`{"address":"`+beta+`","drain":false}`), token, 200)
		try("workers as json", "PUT", "/v1/workers", json, []byte(`{"workers":[{"address":"`+alpha+`"},{"address":"`+beta+`","pool":"other"}]}`), token, 200)
		try("events", "PUT", "/v1/workers", json, []byte(`{"workers":[{"address":"`+alpha+`","kv_events":"auto"},{"address":"`+beta+`","kv_events":{"endpoint":"tcp://10.0.0.7:5557","replay":"tcp://10.0.0.7:5558","topic":"kv","model":"m"}}]}`), token, 200)
		for _, path := range []string{"/v1/workers", "/v1/status", "/metrics"} {
			try("with events "+path, "GET", path, "", nil, token, 200)
		}
		try("workers as yaml", "PUT", "/v1/workers", yaml, []byte("workers:\n- address: "+alpha+"\n"), token, 200)
		try("worker of unknown key", "PUT", "/v1/workers", json, []byte(`{"workers":[{"adress":"`+alpha+`"}]}`), token, 400)
		try("policy", "PUT", "/v1/policy", json, []byte(`{"pools":[{"name":"default","models":["*"],"policy":{"name":"round_robin"}}]}`), token, 200)
		try("policy of unknown rule", "PUT", "/v1/policy", json, []byte(`{"pools":[{"name":"default","models":["*"],"policy":{"name":"best"}}]}`), token, 400)
		try("policy with a tokenizer", "PUT", "/v1/policy", json, []byte(`{"pools":[{"name":"default","models":["*"],"tokenizer":{"file":"`+file+`","template":"qwen3","engine":"vllm"}}]}`), token, 200)
		try("status with a tokenizer", "GET", "/v1/status", "", nil, token, 200)
		try("piece", "GET", "/v1/vocabulary/"+hash.String()+"?shard=0", "", nil, token, 200)
		try("piece without token", "GET", "/v1/vocabulary/"+hash.String(), "", nil, "", 401)
		try("piece beyond the end", "GET", "/v1/vocabulary/"+hash.String()+"?shard=40", "", nil, token, 404)
		try("tokenizer of unknown key", "PUT", "/v1/policy", json, []byte(`{"pools":[{"name":"default","models":["*"],"tokenizer":{"vocab":"x","file":"`+file+`","template":"qwen3","engine":"vllm"}}]}`), token, 400)
		try("no such path", "GET", "/v2/table", "", nil, token, 404)
		try("wrong method", "DELETE", "/v1/workers", "", nil, token, 405)
		// What the document can't rule out but the service does.
		for name, c := range map[string]struct {
			method, path, kind, body string
			want                     int
		}{
			"not a frame":      {"POST", "/v1/batch", octets, "hello", 400},
			"name for address": {"PUT", "/v1/workers", json, `{"workers":[{"address":"engine:8000"}]}`, 400},
			"unknown setting":  {"PUT", "/v1/quota", yaml, "tenats: {}", 400},
			"two of one":       {"PUT", "/v1/workers", json, `{"workers":[{"address":"` + alpha + `"},{"address":"` + alpha + `"}]}`, 400},
			"unknown address":  {"POST", "/v1/workers/drain", json, `{"address":"10.9.9.9:1"}`, 400},
			"no hash":          {"GET", "/v1/vocabulary/" + strings.ToUpper(hash.String()) + "x", "", "", 400},
			"far range":        {"GET", fmt.Sprintf("/v1/table/pages?epoch=%d&bits=10&range=8", epoch), "", "", 400},
			"huge batch":       {"POST", "/v1/batch", octets, strings.Repeat("x", 5<<20), 413},
			"huge list":        {"PUT", "/v1/workers", json, strings.Repeat(" ", 5<<20), 413},
			"huge heartbeat":   {"POST", "/v1/heartbeat", json, strings.Repeat(" ", 9<<20), 413},
			"path that falls":  {"POST", "/v1/heartbeat", json, string(beat(`"sequence":6,"cache":{"paths":[[{"fingerprint":"00000000000000aa","units":4},{"fingerprint":"00000000000000ab","units":4}]]}`)), 400},
			"no fingerprint":   {"POST", "/v1/heartbeat", json, string(beat(`"sequence":6,"cache":{"removed":["0000000000000000"]}`)), 400},
		} {
			status, body := b.do(c.method, c.path, []byte(c.body), c.kind)
			var e struct {
				Error struct{ Code, Message, Remedy string }
			}
			decode(t, body, &e)
			if status != c.want || e.Error.Code == "" || e.Error.Message == "" || e.Error.Remedy == "" {
				t.Errorf("%s: %d %s", name, status, body)
			}
		}
	})
	for path, item := range doc.Paths.Map() {
		for method := range item.Operations() {
			if !covered[method+" "+path+" 200"] {
				t.Errorf("%s %s: no test sees its 200", method, path)
			}
		}
	}
}
