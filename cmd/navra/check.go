package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"navra/internal/config"
	"navra/internal/gateway"
	"navra/internal/policy"
	"navra/internal/store/postgres"
)

func checkCmd(s std) *cobra.Command {
	var path string
	c := &cobra.Command{
		Use: "check", Short: "Check a configuration without starting anything", Example: "  navra check --config navra.yaml", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			f, err := config.Load(path)
			if err != nil {
				return err
			}
			p, err := configPlan(f)
			if err != nil {
				return err
			}
			if _, err := policy.New(p.Policy); err != nil {
				return err
			}
			if f.Listen.Address != "" {
				err = f.CheckServe()
			}
			if err = errors.Join(err, checkStore(p.StoreURL), checkCertificates(f), checkUpstreams(f, p.Specs), checkCheckpoint(f)); err != nil {
				return err
			}
			_, err = fmt.Fprintf(s.out, "%s is valid: %s, %s, %s\n", path, count(len(f.Upstreams), "upstream"), count(len(f.Principals), "principal"), count(len(f.Roles), "role"))
			return err
		},
	}
	configFlag(c, &path)
	return c
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func checkStore(url gateway.Secret) error {
	if url == "" {
		return nil
	}
	return postgres.CheckURL(string(url))
}

// checkCheckpoint finds a file for checkpoints that could not be made: that would be seen when the first one is due.
func checkCheckpoint(f *config.File) error {
	if f.Blackbox.CheckpointTo == "" {
		return nil
	}
	dir := filepath.Dir(f.Blackbox.CheckpointTo)
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return fmt.Errorf("%s: blackbox.checkpoint_to: %s is no folder", f.Path, dir)
	}
	return nil
}

// checkUpstreams finds programs and folders that are not there and rules about upstreams that there are not.
func checkUpstreams(f *config.File, specs []gateway.Spec) error {
	var errs []error
	var names []string
	for _, u := range f.Upstreams {
		names = append(names, u.Name)
		for what, dir := range map[string]string{"cwd": u.Cwd, "root": u.Root} {
			if info, err := os.Stat(dir); dir != "" && (err != nil || !info.IsDir()) {
				errs = append(errs, fmt.Errorf("%s: upstreams.%s.%s: %s is no folder", f.Path, u.Name, what, dir))
			}
		}
	}
	for _, s := range specs {
		if err := s.Find(); err != nil {
			errs = append(errs, fmt.Errorf("%s: upstreams.%s.command: %w", f.Path, s.Name, err))
		}
	}
	for role, r := range f.Roles {
		for _, ps := range slices.Concat(r.Allow, r.Ask, r.Deny) {
			for _, pattern := range slices.Concat(ps.Tools, ps.Prompts) {
				up, _, ok := strings.Cut(pattern, "/")
				if ok && up != "*" && !slices.Contains(names, up) {
					errs = append(errs, fmt.Errorf("%s: roles.%s: pattern %q names an upstream that there is not", f.Path, role, pattern))
				}
			}
		}
	}
	return errors.Join(errs...)
}
