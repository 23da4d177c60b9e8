package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"navra/internal/auth/token"
	"navra/internal/blackbox"
	"navra/internal/config"
	"navra/internal/demo"
	"navra/internal/jsonrpc"
	"navra/internal/store/sqlite"
)

func demoCmd(s std) *cobra.Command {
	var stay bool
	c := &cobra.Command{
		Use: "demo [flags] [-- COMMAND [ARG]...]", Short: "Play a guarded conversation on this machine, with made-up servers, or show a server of yours behind navra",
		Example: "  navra demo\n  navra demo --stay\n  navra demo --stay -- npx -y @modelcontextprotocol/server-filesystem .",
		RunE:    func(cmd *cobra.Command, argv []string) error { return runDemo(cmd.Context(), s, stay, argv) },
	}
	c.Flags().SetInterspersed(false)
	c.Flags().BoolVar(&stay, "stay", false, "keep serving afterwards, until interrupted")
	c.AddCommand(&cobra.Command{
		Use: "server KIND", Short: "Run one of the demo's servers over stdio: " + strings.Join(demo.Kinds, ", "), Example: "  navra demo server notes", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return demo.Serve(cmd.Context(), args[0], s.in, s.out) },
	})
	return c
}

// demoConfig is the demo's configuration: %[1]s is navra's own path, %[2]s the address.
const demoConfig = `# The demo's configuration. Ann may use everything; the guest may not mail.
listen: %[2]s
auth: {tokens: true}
store: navra.db
upstreams:
  notes: {command: [%[1]q, demo, server, notes], tools: {list_notes: {class: read}, read_note: {class: read}, write_note: {class: write}}}
  web:   {command: [%[1]q, demo, server, web], label: {integrity: untrusted, confidentiality: public}, tools: {fetch: {class: egress}}}
  mail:  {command: [%[1]q, demo, server, mail], tools: {send_mail: {class: egress}, list_sent: {class: read}}}
principals:
  ann:   {roles: [local-default]}
  guest: {roles: [reader]}
roles:
  reader:
    rules:
      - allow: {tools: ["notes/*", "web/*"]}
      - deny:  {tools: ["mail/*"]}
`

// demoAddr is the usual address where it is free, else any.
func demoAddr() string {
	const usual = "127.0.0.1:8420"
	ln, err := net.Listen("tcp", usual)
	if err != nil {
		return "127.0.0.1:0"
	}
	ln.Close()
	return usual
}

// ownConfig is the configuration of the person's own server: %[1]s is the folder it runs in, %[2]s the address, %[3]s its command.
const ownConfig = `# One server behind navra, which keeps the names of its tools.
listen: %[2]s
auth: {tokens: true}
store: navra.db
upstreams:
  server: {command: %[3]s, cwd: %[1]q, prefix: none}
principals: {ann: {roles: [local-default]}}
`

// demoText is the configuration of the play, or of the server that argv starts.
func demoText(self string, argv []string) ([]byte, error) {
	if len(argv) == 0 {
		return fmt.Appendf(nil, demoConfig, self, demoAddr()), nil
	}
	dir, err := os.Getwd()
	if err != nil {
		return nil, fmt.Errorf("working folder: %w", err)
	}
	var words []jsonrpc.Raw
	for _, arg := range argv {
		words = append(words, jsonrpc.Quote(arg)) // text in JSON is text in YAML
	}
	return fmt.Appendf(nil, ownConfig, dir, demoAddr(), jsonrpc.Array(words...)), nil
}

func runDemo(ctx context.Context, s std, stay bool, argv []string) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("navra's own path: %w", err)
	}
	dir, err := os.MkdirTemp("", "navra-demo-")
	if err != nil {
		return err
	}
	path := filepath.Join(dir, "navra.yaml")
	text, err := demoText(self, argv)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return err
	}
	f, err := config.Load(path)
	if err != nil {
		return err
	}
	p, err := configPlan(f)
	if err != nil {
		return err
	}
	fmt.Fprintf(s.out, "navra demo: everything is in %s\n", dir)
	tokens, err := demoTokens(ctx, p.Store)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	addr, ended := make(chan string, 1), make(chan error, 1)
	go func() {
		ended <- serve(ctx, f, p, std{in: s.in, out: s.out, err: s.err}, logger(s, false), func(a string) { addr <- a })
	}()
	select {
	case err := <-ended:
		return err
	case a := <-addr:
		err = playDemo(ctx, s, p.Store, demo.Stage{
			URL: "http://" + a + "/mcp", Tokens: tokens, Out: s.out, Stdio: []string{self, "stdio", "--config", path}, StdioEnv: os.Environ(),
		}, stay, len(argv) > 0)
	}
	if err == nil && stay {
		<-ctx.Done()
	}
	stop()
	return errors.Join(err, <-ended)
}

// demoTokens makes a token for each of the demo's principals.
func demoTokens(ctx context.Context, path string) (map[string]string, error) {
	db, err := sqlite.Open(ctx, path, sqlite.Options{})
	if err != nil {
		return nil, err
	}
	defer db.Close()
	out := map[string]string{}
	for _, who := range []string{"ann", "guest"} {
		secret, t := token.New(who, time.Now(), time.Now().Add(24*time.Hour))
		if err := db.AddToken(ctx, t); err != nil {
			return nil, err
		}
		out[who] = secret.Reveal()
	}
	return out, nil
}

func playDemo(ctx context.Context, s std, path string, stage demo.Stage, stay, own bool) error {
	db, err := sqlite.Open(ctx, path, sqlite.Options{ReadOnly: true})
	if err != nil {
		return err
	}
	defer db.Close()
	stage.Recorded = func(principal string) (verdict, at, reason string, err error) { return lastCall(ctx, db, principal) }
	if own {
		err = demo.Show(ctx, stage, "ann")
	} else {
		err = demo.Play(ctx, stage)
	}
	if err != nil {
		return err
	}
	rep, err := db.Verify(ctx)
	if err != nil {
		return err
	}
	if !rep.OK() {
		return fmt.Errorf("the blackbox is not whole: entry %d: %s", rep.At, rep.Problem)
	}
	fmt.Fprintf(s.out, "\nThe blackbox is whole: %d entries, none edited, removed or inserted. See them:\n  %s blackbox list --store %s\n", rep.Entries, os.Args[0], path)
	if stay {
		fmt.Fprintf(s.out, "\nConnect a real client while this runs, such as Claude Code:\n  claude mcp add --transport http navra %s --header \"Authorization: Bearer %s\"\n", stage.URL, stage.Tokens["ann"])
	} else if own {
		fmt.Fprintf(s.out, "\nKeep it serving with --stay (STAY=1 for make run), or put navra before the server in your client's configuration with navra wrap.\n")
	} else {
		fmt.Fprintf(s.out, "\nConnect a real client: put navra before your own server, such as\n  claude mcp add files -- %s wrap -- npx -y @modelcontextprotocol/server-filesystem .\n", stage.Stdio[0])
	}
	return nil
}

// lastCall is what the blackbox says of a principal's last tools/call.
func lastCall(ctx context.Context, db *sqlite.DB, principal string) (verdict, stage, reason string, err error) {
	for row, err := range db.Rows(ctx, 1) {
		if err != nil {
			return "", "", "", err
		}
		e, err := blackbox.Decode(row.Encoded)
		if err != nil {
			return "", "", "", err
		}
		if e.Kind == blackbox.Request && e.Method == "tools/call" && e.Principal == principal {
			verdict, stage, reason = e.Verdict, e.Stage, e.Reason
		}
	}
	return verdict, stage, reason, nil
}
