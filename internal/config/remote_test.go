package config

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestRemotes(t *testing.T) {
	f, err := Parse("/etc/navra.yaml", []byte(`
blackbox:
  checkpoint_to: {url: "https://witness.example/put", headers: {X-Key: "${env:K}"}, timeout: 3s}
  ship: {otlp: {endpoint: "https://collector.example", headers: {Authorization: "Bearer ${file:t}"}, ca: ca.pem, payloads: true}}
`))
	if err != nil {
		t.Fatal(err)
	}
	b := f.Blackbox
	if b.CheckpointTo != "" || b.Checkpoints.URL != "https://witness.example/put" || b.Checkpoints.Timeout != 3*time.Second {
		t.Errorf("checkpoint_to: %+v", b)
	}
	if b.Ship.URL != "https://collector.example" || b.Ship.CA != "/etc/ca.pem" || b.Ship.Timeout != DefaultRemote || !b.ShipPayloads {
		t.Errorf("ship: %+v", b)
	}
	if strings.Contains(fmt.Sprintf("%v %+v", b, b), "env:K") {
		t.Errorf("a header's value is printed: %+v", b)
	}
	env := func(name string) (string, bool) { return "v-" + name, true }
	read := func(path string) ([]byte, error) { return []byte("in " + path + "\n"), nil }
	for _, tt := range []struct {
		of   Remote
		want map[string]string
	}{
		{b.Checkpoints, map[string]string{"X-Key": "v-K"}},
		{b.Ship, map[string]string{"Authorization": "Bearer in /etc/t"}},
	} {
		got, err := tt.of.Header("/etc", env, read)
		if diff := cmp.Diff(tt.want, got); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", tt.of.URL, err, diff)
		}
	}
}

func TestCheckpointToIsAPathOrAnAddress(t *testing.T) {
	for text, want := range map[string][2]string{
		"checkpoint":         {"/etc/checkpoint", ""},
		"/a/b":               {"/a/b", ""},
		"\"http://h/x?k=v\"": {"", "http://h/x?k=v"},
	} {
		f, err := Parse("/etc/navra.yaml", []byte("blackbox: {checkpoint_to: "+text+"}\n"))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := [2]string{f.Blackbox.CheckpointTo, f.Blackbox.Checkpoints.URL}; got != want {
			t.Errorf("%s = %q, want %q", text, got, want)
		}
	}
}
