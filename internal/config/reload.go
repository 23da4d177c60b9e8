package config

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"reflect"
)

// PolicyName identifies what of the file can be taken up while the gateway runs: principals, roles, flow and filters.
func (f *File) PolicyName() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q %q", f.Principals, f.Roles, f.Violation, f.Results, f.Arguments))
	return hex.EncodeToString(sum[:16])
}

// WithPolicyOf returns f with the policy of another file, and the sections of that which differ otherwise: they need a restart.
func (f *File) WithPolicyOf(g *File) (merged *File, others []string) {
	m := *f
	m.Principals, m.Roles, m.Violation, m.Results, m.Arguments = g.Principals, g.Roles, g.Violation, g.Results, g.Arguments
	for _, s := range []struct {
		name     string
		was, now any
	}{
		{"listen", f.Listen, g.Listen}, {"admin", f.Admin, g.Admin}, {"auth", []bool{f.AuthTokens, f.AuthNone}, []bool{g.AuthTokens, g.AuthNone}},
		{"store", []any{f.Store, f.Database}, []any{g.Store, g.Database}}, {"key", f.Key, g.Key}, {"upstreams", f.Upstreams, g.Upstreams},
		{"names", f.NamesMax, g.NamesMax}, {"blackbox", f.Blackbox, g.Blackbox}, {"telemetry", f.Telemetry, g.Telemetry},
	} {
		if !alike(reflect.ValueOf(s.was), reflect.ValueOf(s.now)) {
			others = append(others, s.name)
		}
	}
	return &m, others
}

// alike is equality, but for where in a file something stood.
func alike(a, b reflect.Value) bool {
	switch {
	case a.IsValid() != b.IsValid():
		return false
	case !a.IsValid():
		return true
	case a.Type() != b.Type():
		return false
	}
	switch a.Kind() {
	case reflect.Interface:
		return alike(a.Elem(), b.Elem())
	case reflect.Struct:
		for i := range a.NumField() {
			where := a.Type() == reflect.TypeFor[Variable]() && a.Type().Field(i).Name == "where"
			if !where && !alike(a.Field(i), b.Field(i)) {
				return false
			}
		}
		return true
	case reflect.Slice:
		for i := range min(a.Len(), b.Len()) {
			if !alike(a.Index(i), b.Index(i)) {
				return false
			}
		}
		return a.Len() == b.Len()
	case reflect.Map:
		for _, key := range a.MapKeys() {
			if !alike(a.MapIndex(key), b.MapIndex(key)) {
				return false
			}
		}
		return a.Len() == b.Len()
	}
	return a.Equal(b)
}
