package chat

import (
	"math"
	"testing"

	"github.com/warmpath/warmpath/shared/jsontext"
)

// dumped is json.dumps(json.loads(src), ensure_ascii=False) by a dumper.
func dumped(src string, d dumper) (string, Reason, bool) {
	r := &Renderer{max: 1 << 20}
	d.r, d.src = r, []byte(src)
	end := d.dump(jsontext.SkipSpace(d.src, 0))
	whole := !d.invalid && jsontext.SkipSpace(d.src, end) == len(d.src)
	return string(r.out), r.stopped, whole
}

func TestJSONIsWrittenAsPythonWritesWhatItHasRead(t *testing.T) {
	for src, want := range map[string]string{
		`{"a":1,"b":[true,false,null]}`: `{"a": 1, "b": [true, false, null]}`,
		"[ ]":                           `[]`, "{ }": `{}`, " \t\r\n[1 , 2]\n": `[1, 2]`,
		`-0`: `0`, `-0.0`: `-0.0`, `0.10`: `0.1`, `1e5`: `100000.0`, `1E+2`: `100.0`, `1e16`: `1e+16`, `1e15`: `1000000000000000.0`,
		`0.0001`: `0.0001`, `0.00001`: `1e-05`, `1e400`: `Infinity`, `-1e400`: `-Infinity`, `1e-400`: `0.0`, `-1.5e300`: `-1.5e+300`,
		`9007199254740993`: `9007199254740993`, `9007199254740993.0`: `9007199254740992.0`,
		`123456789012345678901234567890`: `123456789012345678901234567890`, `5e-324`: `5e-324`, `0e0`: `0.0`,
		`NaN`: `NaN`, `[Infinity,-Infinity]`: `[Infinity, -Infinity]`,
		`"\u0041\u00e9\/\b\f\n\r\t\"\\"`: `"Aé/\b\f\n\r\t\"\\"`, `"\u001f\u007f\u2028"`: "\"\\u001f\u007f\u2028\"",
		`"\ud83d\udea2"`: `"🚢"`, `"é港"`: `"é港"`,
		`{"a":1,"b":2,"a":3}`:                           `{"a": 3, "b": 2}`,
		`{"a":1,"\u0061":[1,2],"b":0,"b":{},"a":"xyz"}`: `{"a": "xyz", "b": {}}`,
		`{"a":{"x":1,"x":2},"a":{"y":1,"y":[]}}`:        `{"a": {"y": []}}`,
	} {
		if got, why, ok := dumped(src, dumper{}); got != want || why != Complete || !ok {
			t.Errorf("%s: %s (%s, %v), Python writes %s", src, got, why, ok, want)
		}
	}
	want := "{\n    \"a\": [\n        1,\n        {\n            \"b\": []\n        }\n    ],\n    \"c\": {}\n}"
	if got, _, _ := dumped(`{"a":[1,{"b":[]}],"c":{}}`, dumper{indent: 4}); got != want {
		t.Errorf("with an indent: %s", got)
	}
}

func TestWhatPythonRefusesIsInvalid(t *testing.T) {
	for _, src := range []string{
		``, `{`, `[1,]`, `{"a":1,}`, `{"a"}`, `{a:1}`, `01`, `1.`, `.5`, `+1`, `1e`, `tru`, `'a'`, `"a`, "\"\t\"", `"\x"`, `"\u00g0"`, `[1 2]`, `{"a":1 "b":2}`, `-`, `-Inf`, `nan`, "\ufeff1", `1}`,
	} {
		if got, _, ok := dumped(src, dumper{}); ok {
			t.Errorf("%q is read as %s", src, got)
		}
	}
}

func TestWhatCannotBeTextStops(t *testing.T) {
	deep, digits := "", "1"
	for range maxDepth + 1 {
		deep += "["
	}
	for range maxIntDigits {
		digits += "0"
	}
	for src, want := range map[string]Reason{
		`"\ud83d"`: BadText, `"\udea2\ud83d"`: BadText, `{"\ud83dx":1}`: BadText, "\"\xff\"": BadText, deep: TooMany, digits: Refused,
	} {
		if _, why, _ := dumped(src, dumper{}); why != want {
			t.Errorf("%.20q: %s, want %s", src, why, want)
		}
	}
}

func TestOrjsonMakesFloatsBeyond64Bits(t *testing.T) {
	for src, want := range map[string]string{
		`18446744073709551615`: `18446744073709551615`, `18446744073709551616`: `1.8446744073709552e+19`,
		`-9223372036854775808`: `-9223372036854775808`, `-9223372036854775809`: `-9.223372036854776e+18`, `-0`: `0`,
	} {
		if got, _, ok := dumped(src, dumper{dialect: orJSON}); got != want || !ok {
			t.Errorf("%s: %s, want %s", src, got, want)
		}
	}
	for _, src := range []string{`NaN`, `1e400`, `[-Infinity]`} {
		if got, _, ok := dumped(src, dumper{dialect: orJSON}); ok {
			t.Errorf("%s is read as %s", src, got)
		}
	}
}

func TestFloatsAsRustWritesThem(t *testing.T) {
	for f, want := range map[float64]string{
		1e15: "1000000000000000.0", 1e16: "1e+16", 1e-5: "0.00001", 1.5e-5: "0.000015", 1e-6: "1e-6", 1.25e-10: "1.25e-10",
		5e-324: "5e-324", math.MaxFloat64: "1.7976931348623157e+308", 1: "1.0", -2.5: "-2.5",
	} {
		if got := string(appendFloatRust(nil, f)); got != want {
			t.Errorf("%g: %s, want %s", f, got, want)
		}
	}
}

func TestDatesAreThoseOfTheCalendar(t *testing.T) {
	for day, want := range map[int][2]string{
		0: {"01 Jan 1970", "1970-01-01"}, testDay: {"04 Jul 2026", "2026-07-04"}, 11016: {"29 Feb 2000", "2000-02-29"},
		11017: {"01 Mar 2000", "2000-03-01"}, 20818: {"31 Dec 2026", "2026-12-31"}, 19782: {"29 Feb 2024", "2024-02-29"},
	} {
		if got := [2]string{string(appendDay(nil, day)), string(appendISODay(nil, day))}; got != want {
			t.Errorf("day %d: %v, want %v", day, got, want)
		}
	}
}
