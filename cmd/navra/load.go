package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"

	"navra/internal/auth"
	"navra/internal/catalogue"
	"navra/internal/config"
	"navra/internal/gateway"
	"navra/internal/ifc"
	"navra/internal/policy"
)

// configPlan maps a configuration to a plan.
func configPlan(f *config.File) (plan, error) {
	p := plan{Store: f.Store, Key: f.Key, Principals: auth.Directory(f.Principals)}
	var err error
	if p.StoreURL, err = databaseURL(f); err != nil {
		return plan{}, err
	}
	if p.StoreURL != "" && p.Key == "" {
		p.Key = databaseKey(f)
	}
	if p.Store == "" && p.StoreURL == "" {
		if p.Store, err = defaultStore(); err != nil {
			return plan{}, err
		}
	}
	if p.Policy, err = policyOptions(f); err != nil {
		return plan{}, err
	}
	for _, u := range f.Upstreams {
		env, err := u.Environ(filepath.Dir(f.Path), os.LookupEnv, os.ReadFile)
		if err != nil {
			return plan{}, err
		}
		up, err := upstreamOf(u)
		if err != nil {
			return plan{}, fmt.Errorf("upstream %q: %w", u.Name, err)
		}
		p.Upstreams = append(p.Upstreams, up)
		spec := gateway.Spec{
			Name: u.Name, Command: u.Command, Env: childEnv(os.Environ(), env), Dir: u.Cwd, Connect: u.Connect, Call: u.Call, CallMax: u.CallMax,
			Children: u.Children, OwnChildren: u.OwnChildren,
		}
		if err := reach(&spec, u, filepath.Dir(f.Path)); err != nil {
			return plan{}, fmt.Errorf("upstream %q: %w", u.Name, err)
		}
		p.Specs = append(p.Specs, spec)
	}
	p.NamesMax, p.Blackbox = f.NamesMax, f.Blackbox
	if p.Telemetry, err = telemetryPlan(f); err != nil {
		return plan{}, err
	}
	if p.Remotes, err = remotesOf(f); err != nil {
		return plan{}, err
	}
	return p, nil
}

// databaseKey is where the key lies where a PostgreSQL database is named and no key.
func databaseKey(f *config.File) string { return filepath.Join(filepath.Dir(f.Path), "navra.key") }

// reach completes a spec with how an upstream with a URL is reached.
func reach(spec *gateway.Spec, u config.Upstream, dir string) (err error) {
	if u.URL == "" {
		return nil
	}
	if spec.URL, err = url.Parse(u.URL); err != nil {
		return errors.New("its url cannot be read")
	}
	header, err := u.Header(dir, os.LookupEnv, os.ReadFile)
	if err != nil {
		return err
	}
	spec.Header = map[string]gateway.Secret{}
	for name, value := range header {
		spec.Header[name] = gateway.Secret(value)
	}
	if spec.TLS, err = trusting(u.CA); err != nil {
		return fmt.Errorf("tls.ca: %w", err)
	}
	switch u.Proxy {
	case "":
		spec.Proxy = http.ProxyFromEnvironment
	case "none":
	default:
		proxy, err := url.Parse(u.Proxy)
		if err != nil {
			return errors.New("its proxy cannot be read")
		}
		spec.Proxy = http.ProxyURL(proxy)
	}
	return nil
}

// trusting is TLS that trusts the certificates of a file alone; nil where there is none: those of the system.
func trusting(ca string) (*tls.Config, error) {
	if ca == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(ca)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no certificate in PEM form", ca)
	}
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, nil
}

func upstreamOf(u config.Upstream) (*catalogue.Upstream, error) {
	integrity, err1 := ifc.ParseIntegrity(u.Integrity)
	confidentiality, err2 := ifc.ParseConfidentiality(u.Confidentiality)
	up := &catalogue.Upstream{
		Name: u.Name, Bare: u.Bare, Label: ifc.Level{Integrity: integrity, Confidentiality: confidentiality},
		Classes: map[string]ifc.Class{}, Root: u.Root, Folder: u.Cwd, Kept: u.Name + "-" + u.ID(), Shared: u.Shared,
	}
	errs := []error{err1, err2}
	for tool, word := range u.Classes {
		class, err := ifc.ParseClass(word)
		up.Classes[tool] = class
		errs = append(errs, err)
	}
	if up.Folder == "" {
		var err error
		up.Folder, err = os.Getwd()
		errs = append(errs, err)
	}
	return up, errors.Join(errs...)
}

func policyOptions(f *config.File) (policy.Options, error) {
	o := policy.Options{
		Roles:       map[string]policy.Role{policy.LocalDefault: policy.DefaultRole()},
		OnViolation: map[string]policy.Effect{"deny": policy.Deny, "ask": policy.Ask, "observe": policy.Allow}[f.Violation],
		Results:     map[string]policy.Action{"deny": policy.DenyResult, "pseudonymise": policy.Pseudonymise, "record": policy.Record}[f.Results],
		Arguments:   map[string]policy.Effect{"deny": policy.Deny, "ask": policy.Ask, "record": policy.Allow}[f.Arguments],
		Digest:      f.Digest(),
	}
	for name, r := range f.Roles {
		clearance, err := ifc.ParseConfidentiality(r.Clearance)
		if err != nil {
			return o, fmt.Errorf("role %q: %w", name, err)
		}
		role := policy.Role{Clearance: clearance}
		for _, p := range r.Allow {
			role.Allow = append(role.Allow, policy.Patterns(p))
		}
		for _, p := range r.Ask {
			role.Ask = append(role.Ask, policy.Patterns(p))
		}
		for _, p := range r.Deny {
			role.Deny = append(role.Deny, policy.Patterns(p))
		}
		o.Roles[name] = role
	}
	return o, nil
}
