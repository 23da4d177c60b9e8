package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// Built once for all tests.
var navraBin, fixtureBin string

// When set, this test binary plays an agent host: it runs the command it is given and passes its stdio through. It is how a test
// gets a second host process.
const playHost = "NAVRA_TEST_HOST"

func TestMain(m *testing.M) {
	if os.Getenv(playHost) != "" {
		os.Exit(host(os.Args[1:]))
	}
	dir, err := os.MkdirTemp("", "navra-e2e")
	if err != nil {
		panic(err)
	}
	runDir = dir
	navraBin, fixtureBin = filepath.Join(dir, "navra"), filepath.Join(dir, "fixture")
	for _, build := range [][]string{{"-race", "-o", navraBin, "navra/cmd/navra"}, {"-o", fixtureBin, "navra/test/fixture"}} {
		if out, err := exec.Command("go", append([]string{"build"}, build...)...).CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build %v: %v\n%s", build, err, out)
			os.Exit(1)
		}
	}
	atOnce()
	code := m.Run()
	if !searchRun() && code == 0 {
		code = 1
	}
	os.RemoveAll(dir)
	os.Exit(code)
}

// atOnce lets more tests run at once than there are processors, where nobody has said how many: most of them wait.
func atOnce() {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if n := runtime.GOMAXPROCS(0); !given {
		flag.Set("test.parallel", fmt.Sprint(2*n))
	}
}

func host(args []string) int {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), playHost+"=")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return 1
	}
	return 0
}

// A message is what the tests see of JSON-RPC.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Code    int             `json:"code"`
		Message string          `json:"message"`
		Data    json.RawMessage `json:"data"`
	} `json:"error"`
	Batch []message `json:"-"` // where an array came
}

func (m *message) UnmarshalJSON(b []byte) error {
	if bytes.HasPrefix(bytes.TrimSpace(b), []byte("[")) {
		return json.Unmarshal(b, &m.Batch)
	}
	type plain message
	return json.Unmarshal(b, (*plain)(m))
}

// An answer is a tools/call result.
type answer struct {
	Content []struct {
		Type, Text string
	}
	StructuredContent json.RawMessage
	IsError           bool
	Meta              map[string]json.RawMessage `json:"_meta"`
}

func (a answer) text() string {
	var parts []string
	for _, c := range a.Content {
		parts = append(parts, c.Text)
	}
	return strings.Join(parts, "\n")
}

// A client speaks JSON-RPC to navra over stdio.
type client struct {
	t      testing.TB
	cmd    *exec.Cmd
	in     io.WriteCloser
	stderr *lockedBuffer

	mu      sync.Mutex
	next    int
	waiting map[string]chan message
	notes   []message
	raw     []string
	closed  chan struct{}
	arrived chan struct{} // a token for each note
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}
func (l *lockedBuffer) String() string { l.mu.Lock(); defer l.mu.Unlock(); return l.b.String() }

// A setup is the surroundings of one test: a home with the store, and a working folder.
type setup struct {
	t    testing.TB
	Home string
	Dir  string
	Env  []string // added
}

func newSetup(t testing.TB) *setup {
	home, err := os.MkdirTemp(runDir, "home-") // it is searched at the end of the run
	if err != nil {
		t.Fatal(err)
	}
	s := &setup{t: t, Home: home, Dir: t.TempDir()}
	if real, err := filepath.EvalSymlinks(s.Dir); err == nil {
		s.Dir = real
	}
	return s
}

func (s *setup) env(extra ...string) []string {
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + s.Home, "XDG_STATE_HOME=" + filepath.Join(s.Home, "state"), "TMPDIR=" + os.TempDir(), "LANG=C.UTF-8"}
	if v, ok := os.LookupEnv("npm_config_cache"); ok {
		env = append(env, "npm_config_cache="+v)
	}
	env = append(env, "GORACE=atexit_sleep_ms=0 halt_on_error=1") // a race ends navra, and so fails the test
	return append(append(env, s.Env...), extra...)
}

// start runs a command that speaks MCP over stdio, and connects to it. It does not initialize.
func (s *setup) start(args ...string) *client {
	s.t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir, cmd.Env = s.Dir, s.env()
	return connect(s.t, cmd)
}

// startAs runs navra under a host process of its own.
func (s *setup) startAs(args ...string) *client {
	s.t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Dir, cmd.Env = s.Dir, s.env(playHost+"=1")
	return connect(s.t, cmd)
}

func connect(t testing.TB, cmd *exec.Cmd) *client {
	t.Helper()
	c := &client{t: t, cmd: cmd, stderr: &lockedBuffer{}, waiting: map[string]chan message{}, closed: make(chan struct{}), arrived: make(chan struct{}, 10_000)}
	cmd.Stderr, cmd.WaitDelay = c.stderr, patience
	var err error
	if c.in, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go c.read(out)
	t.Cleanup(func() {
		c.close()
		capture(c.stderr.String())
		if t.Failed() {
			t.Logf("stderr of %v:\n%s", cmd.Args, c.stderr)
		}
	})
	return c
}

func (c *client) read(out io.Reader) {
	defer close(c.closed)
	r := bufio.NewReader(out)
	for {
		line, err := r.ReadBytes('\n')
		if len(bytes.TrimSpace(line)) > 0 {
			var m message
			if json.Unmarshal(line, &m) != nil {
				m.Method = "not JSON: " + string(line)
			}
			c.take(string(line), m)
		}
		if err != nil {
			return
		}
	}
}

func (c *client) take(line string, m message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.raw = append(c.raw, line)
	if ch := c.waiting[string(m.ID)]; ch != nil && m.Method == "" {
		delete(c.waiting, string(m.ID))
		ch <- m
		return
	}
	c.notes = append(c.notes, m)
	c.arrived <- struct{}{}
}

// send writes one raw line.
func (c *client) send(line string) {
	c.t.Helper()
	if _, err := io.WriteString(c.in, line+"\n"); err != nil {
		c.t.Fatalf("write to %v: %v\n%s", c.cmd.Args, err, c.stderr)
	}
}

// begin sends a request and returns where its answer will come.
func (c *client) begin(method string, params any) (id string, ch chan message) {
	c.t.Helper()
	c.mu.Lock()
	c.next++
	id = fmt.Sprint(c.next)
	ch = make(chan message, 1)
	c.waiting[id] = ch
	c.mu.Unlock()
	b, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": json.RawMessage(id), "method": method, "params": params})
	if err != nil {
		c.t.Fatal(err)
	}
	c.send(string(b))
	return id, ch
}

// patience is how long a test waits for what has to come. It is long: a busy machine may stand still for seconds, and only a failure waits so long.
const patience = 2 * time.Minute

func (c *client) request(method string, params any) message {
	c.t.Helper()
	_, ch := c.begin(method, params)
	return c.await(method, ch)
}

func (c *client) await(what string, ch chan message) message {
	c.t.Helper()
	select {
	case m := <-ch:
		return m
	case <-c.closed:
		select {
		case m := <-ch:
			return m
		default:
		}
		c.t.Fatalf("%s: the connection ended\n%s", what, c.stderr)
	case <-time.After(patience):
		c.t.Fatalf("%s: no answer\n%s", what, c.stderr)
	}
	return message{}
}

func (c *client) notify(method string, params any) {
	c.t.Helper()
	b, _ := json.Marshal(map[string]any{"jsonrpc": "2.0", "method": method, "params": params})
	c.send(string(b))
}

var hello = map[string]any{"protocolVersion": "2025-11-25", "capabilities": map[string]any{}, "clientInfo": map[string]any{"name": "test", "version": "1"}}

// open initializes.
func (c *client) open() *client {
	c.t.Helper()
	if m := c.request("initialize", hello); m.Error != nil {
		c.t.Fatalf("initialize: %+v", m.Error)
	}
	c.notify("notifications/initialized", map[string]any{})
	return c
}

// call calls a tool. A JSON-RPC error fails the test.
func (c *client) call(tool string, args any) answer {
	c.t.Helper()
	return result(c.t, c.request("tools/call", map[string]any{"name": tool, "arguments": args}))
}

func result(t testing.TB, m message) (a answer) {
	t.Helper()
	if m.Error != nil {
		t.Fatalf("error %d %s %s", m.Error.Code, m.Error.Message, m.Error.Data)
	}
	if err := json.Unmarshal(m.Result, &a); err != nil {
		t.Fatal(err)
	}
	return a
}

// close ends the connection by closing stdin, and waits until the program has ended and all that it wrote is read.
func (c *client) close() {
	c.in.Close()
	c.end()
}

// end waits for the program's end: first for that of its output, which Wait would throw away.
func (c *client) end() {
	select {
	case <-c.closed:
	case <-time.After(patience):
		c.cmd.Process.Kill()
	}
	c.cmd.Wait()
	<-c.closed
}
