package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"navra/internal/config"
	"navra/internal/policy"
)

// TestPrintedDefaultsAreTheDefaults reads what schema --defaults prints as a configuration.
func TestPrintedDefaultsAreTheDefaults(t *testing.T) {
	text := strings.Replace(defaultRole, policy.LocalDefault+":", "printed:", 1)
	f, err := config.Parse("/navra.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	got, err := policyOptions(f)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(policy.DefaultRole(), got.Roles["printed"]); diff != "" {
		t.Errorf("the printed role (-built in +printed):\n%s", diff)
	}
	want := localPolicy()
	if got.OnViolation != want.OnViolation || got.Results != want.Results || got.Arguments != want.Arguments {
		t.Errorf("printed %v %v %v, built in %v %v %v", got.OnViolation, got.Results, got.Arguments, want.OnViolation, want.Results, want.Arguments)
	}
}
