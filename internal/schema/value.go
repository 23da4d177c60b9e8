package schema

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"

	"navra/internal/jsonrpc"
)

// maxDigits bounds a number's digits: the library computes with numbers of any size.
const maxDigits = 400

// valueOf is a JSON value as the library takes it. A number that it cannot compute with is huge to it.
func valueOf(raw jsonrpc.Raw) (any, error) {
	switch {
	case len(raw) == 0:
		return nil, &Fault{Why: "there is no value"}
	case raw.IsObject():
		out := map[string]any{}
		for name, e := range raw.Members() {
			v, err := valueOf(e)
			if err != nil {
				return nil, err
			}
			out[name] = v
		}
		return out, nil
	case raw.IsArray():
		out := []any{}
		for e := range raw.Elements() {
			v, err := valueOf(e)
			if err != nil {
				return nil, err
			}
			out = append(out, v)
		}
		return out, nil
	}
	if s, ok := raw.Text(); ok {
		return s, nil
	}
	switch string(raw) {
	case "null":
		return nil, nil
	case "true", "false":
		return string(raw) == "true", nil
	}
	return number(string(raw)), nil
}

// number keeps the digits of integers, and makes a float of what has a fraction or an exponent.
func number(s string) any {
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return n
	}
	if !strings.ContainsAny(s, ".eE") && len(s) <= maxDigits {
		return json.Number(s)
	}
	f, _ := strconv.ParseFloat(s, 64)
	return math.Copysign(min(math.Abs(f), math.MaxFloat64), f)
}
